package httpfrontend

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"

	"github.com/python-executor/python-executor/core/executor"
)

// artifacts serves all artifacts of an Execution as a tar.
func (f *frontend) artifacts(w http.ResponseWriter, r *http.Request, id string) error {
	archive, err := f.svc.Artifacts(r.Context(), id)
	if err != nil {
		return err
	}
	defer archive.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": id + ".tar"}))
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return send(w, archive, fmt.Sprintf("the artifacts of %s", id))
}

// artifact serves one artifact. Its name and content come from the program, so a browser must save it without a look at its
// content. The path is compared with the names in the tar, not with a file system.
func (f *frontend) artifact(w http.ResponseWriter, r *http.Request, id string) error {
	name := r.PathValue("path")
	if !fs.ValidPath(name) || name == "." {
		return executor.Errorf(executor.NotFound, "no artifact has that path")
	}
	archive, err := f.svc.Artifacts(r.Context(), id)
	if err != nil {
		return err
	}
	defer archive.Close()
	files := tar.NewReader(archive)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return executor.Errorf(executor.NotFound, "no artifact has that path")
		}
		if err != nil {
			return fmt.Errorf("read the artifacts of %s: %w", id, err)
		}
		if h.Typeflag != tar.TypeReg || path.Clean(h.Name) != name {
			continue
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", disposition(path.Base(name)))
		w.Header().Set("Content-Length", strconv.FormatInt(h.Size, 10))
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusOK)
			return nil
		}
		return send(w, files, fmt.Sprintf("artifact %q of %s", name, id))
	}
}

// disposition returns a Content-Disposition with the name of a file, or without it if a header cannot have that name.
func disposition(name string) string {
	if d := mime.FormatMediaType("attachment", map[string]string{"filename": name}); d != "" {
		return d
	}
	return "attachment"
}

// send copies r to the client. It returns read errors. A write error means that the client has disconnected, and is ignored.
func send(w http.ResponseWriter, r io.Reader, what string) error {
	buf := make([]byte, 128<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", what, err)
		}
	}
}
