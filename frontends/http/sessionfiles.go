package httpfrontend

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// modeHeader carries the permission bits of a downloaded file, in octal.
const modeHeader = "X-File-Mode"

const badPath = "must be a path in the work folder: relative, with slashes, without . and .. and NUL, at most 255 bytes between two slashes"

// filePath returns the id and the file in the path. The mux has decoded each segment, so an escaped slash or dot is checked as
// such.
func filePath(r *http.Request) (id, name string, err error) {
	if id, err = sessionID(r); err != nil {
		return "", "", err
	}
	if name = r.PathValue("path"); !validPath(name) {
		return "", "", errFilePath(name)
	}
	return id, name, nil
}

// onFile returns the handler of an operation on the file of a Session in the path.
func onFile(h func(w http.ResponseWriter, r *http.Request, id, name string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, name, err := filePath(r)
		if err != nil {
			return err
		}
		return h(w, r, id, name)
	}
}

func errFilePath(name string) error {
	return in("path", executor.FieldErrorf(executor.Invalid, "path", "%s", sessionPathProblem(name)))
}

// sessionPathProblem says what is wrong with a path for which validPath is false.
func sessionPathProblem(name string) string {
	if path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return "must stay inside the session folder"
	}
	return badPath
}

// readFile serves a file of a Session. Its name and content come from the program, so a browser must save it without a look at its
// content. A file that becomes shorter meanwhile cuts the connection, so that the client does not take a part for the whole.
func (f *frontend) readFile(w http.ResponseWriter, r *http.Request, id, name string) error {
	file, content, err := f.svc.ReadFile(r.Context(), id, name)
	if err != nil {
		return in("path", err)
	}
	defer content.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", disposition(path.Base(name)))
	h.Set("Content-Length", strconv.FormatInt(file.SizeBytes, 10))
	h.Set(modeHeader, fmt.Sprintf("%04o", file.Mode&0o7777))
	if !file.ModTime.IsZero() {
		h.Set("Last-Modified", file.ModTime.UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	what := fmt.Sprintf("file %q of %s", name, id)
	counted := &countedReader{r: io.LimitReader(content, file.SizeBytes)}
	if err := send(w, counted, what); err != nil {
		return err
	}
	if r.Context().Err() == nil && counted.ended && counted.n < file.SizeBytes {
		return fmt.Errorf("read %s: it ended after %d of %d bytes", what, counted.n, file.SizeBytes)
	}
	return nil
}

// countedReader counts what was read, and records whether the end was reached.
type countedReader struct {
	r     io.Reader
	n     int64
	ended bool
}

// Read implements io.Reader.
func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.ended = c.ended || ended(err)
	return n, err
}

// writeFile makes or replaces a file of a Session from the request's body, which is streamed.
func (f *frontend) writeFile(w http.ResponseWriter, r *http.Request, id, name string) error {
	var options pyexec.WriteOptions
	if err := readQuery(r, &options, func(d *decoder) {
		if _, err := strconv.ParseUint(options.Mode, 8, 9); options.Mode != "" && err != nil {
			d.bad("mode", "must be permission bits in octal, from 0 to 777 (got %.40q)", options.Mode)
		}
		if options.Directory && (options.Mode != "" || r.ContentLength > 0) {
			d.bad("directory", "must be given without a mode and a body")
		}
	}); err != nil {
		return err
	}
	limit := min(f.opts.MaxFileBytes, f.opts.MaxBodyBytes)
	b, err := f.openBody(w, r, limit)
	if err != nil {
		return err
	}
	source := &fileBody{body: b}
	target := executor.File{Path: name, SizeBytes: r.ContentLength, Directory: options.Directory}
	if mode, err := strconv.ParseUint(options.Mode, 8, 32); err == nil {
		target.Mode = uint32(mode)
	}
	file, err := f.svc.WriteFile(r.Context(), id, target, source)
	if cause := source.failure.Load(); cause != nil && (err != nil || !b.done.Load()) {
		// The upload broke. The error of the Service is only a consequence.
		return bodyError("the file", *cause)
	}
	if err != nil {
		source.settle()
		return in("path", tooMuch(err))
	}
	return writeJSON(w, http.StatusOK, apijson.FileOf(file))
}

// fileBody is a body that keeps its first read error, even if its reader drops that error.
type fileBody struct {
	*body
	touched atomic.Bool
	failure atomic.Pointer[error]
}

// Read implements io.Reader.
func (b *fileBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	n, err := b.body.Read(p)
	if err != nil && !ended(err) {
		b.failure.CompareAndSwap(nil, &err)
	}
	return n, err
}

// settle settles a body that was refused half-way. If nothing was read yet it reads nothing.
func (b *fileBody) settle() {
	if b.touched.Load() && !b.done.Load() {
		b.body.settle()
	}
}

// removeFile removes a file or a folder of a Session.
func (f *frontend) removeFile(w http.ResponseWriter, r *http.Request, id, name string) error {
	if err := f.svc.RemoveFile(r.Context(), id, name); err != nil {
		return in("path", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
