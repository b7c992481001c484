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

// artifacts serves what an Execution kept, as a tar.
func (f *frontend) artifacts(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
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

// artifact serves one file. The program chose its name and content, so a browser is told to save it and to look no
// further; the names are compared with those in the tar, no file system is asked.
func (f *frontend) artifact(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	name := r.PathValue("path")
	if !fs.ValidPath(name) || name == "." {
		return executor.Errorf(executor.NotFound, "there is no such artifact")
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
			return executor.Errorf(executor.NotFound, "there is no such artifact")
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

// disposition names the file as far as a header can.
func disposition(name string) string {
	if d := mime.FormatMediaType("attachment", map[string]string{"filename": name}); d != "" {
		return d
	}
	return "attachment"
}

// send copies r to the client. Our own failure to read is an error; the client's leaving is not.
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
