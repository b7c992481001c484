package httpfrontend

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/apijson"
)

// modeHeader carries the permission bits of a downloaded file, in octal.
const modeHeader = "X-File-Mode"

const badPath = "must be a path in the work folder: relative, with slashes, without . and .. and NUL, at most 255 bytes between two slashes"

// filesQuery reads the query of a list of files. "" and "." are the work folder itself.
func filesQuery(r *http.Request) (folder string, recursive bool, err error) {
	q, err := queryOf(r)
	if err != nil {
		return "", false, err
	}
	var bad []executor.FieldError
	if folder = q.Get("path"); folder != "" && folder != "." && !validPath(folder) {
		bad = append(bad, executor.FieldError{Field: "path", Message: badPath})
	}
	if v := q.Get("recursive"); v != "" {
		if recursive, err = strconv.ParseBool(v); err != nil {
			bad = append(bad, executor.FieldError{Field: "recursive", Message: "must be true or false"})
		}
	}
	return folder, recursive, queryError(bad)
}

// filePath returns the id and the file of the path. The mux has decoded it segment by segment, so that an escaped slash
// or dot is one here, and is looked at.
func filePath(r *http.Request) (id, name string, err error) {
	if id, err = sessionID(r); err != nil {
		return "", "", err
	}
	if name = r.PathValue("path"); !validPath(name) {
		return "", "", errFilePath()
	}
	return id, name, nil
}

func errFilePath() error {
	return in("path", executor.FieldErrorf(executor.Invalid, "path", "%s", badPath))
}

// readFile serves a file of a Session. Its name and content are the program's, so a browser is told to save it and to look
// no further. A file that shrinks meanwhile cuts the connection; the client does not take a part for the whole.
func (f *frontend) readFile(w http.ResponseWriter, r *http.Request) error {
	id, name, err := filePath(r)
	if err != nil {
		return err
	}
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

// countedReader knows how much it gave, and whether that was all.
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
func (f *frontend) writeFile(w http.ResponseWriter, r *http.Request) error {
	id, name, err := filePath(r)
	if err != nil {
		return err
	}
	limit := min(f.opts.MaxFileBytes, f.opts.MaxBodyBytes)
	b, err := f.openBody(w, r, limit)
	if err != nil {
		return err
	}
	source := &fileBody{body: b}
	file, err := f.svc.WriteFile(r.Context(), id, name, r.ContentLength, source)
	if cause := source.failure.Load(); cause != nil && (err != nil || !b.done.Load()) {
		// The upload broke; what the Service says of it is only a consequence.
		return bodyError("the file", *cause)
	}
	if err != nil {
		source.settle()
		return in("path", tooMuch(err))
	}
	return writeJSON(w, http.StatusOK, apijson.FileOf(file))
}

// fileBody is a body that remembers why it could not be read, whatever its reader makes of that.
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

// settle takes in a bounded rest of a body that was refused half-way: many clients read no answer before they have sent
// everything. Nothing is read where nothing was.
func (b *fileBody) settle() {
	if !b.touched.Load() || b.done.Load() {
		return
	}
	timer := time.AfterFunc(settleTime, b.stop)
	defer timer.Stop()
	_ = b.drain(settleBytes) // the answer is sent anyway
}

// removeFile removes a file or a folder of a Session.
func (f *frontend) removeFile(w http.ResponseWriter, r *http.Request) error {
	id, name, err := filePath(r)
	if err != nil {
		return err
	}
	if err := f.svc.RemoveFile(r.Context(), id, name); err != nil {
		return in("path", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
