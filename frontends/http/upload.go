package httpfrontend

import (
	"bytes"
	"context"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

const (
	// metadataMax bounds the metadata part.
	metadataMax = 8 << 20
	// jsonMax bounds an application/json body, which is held in memory with its files. Larger files need a tar.
	jsonMax = 32 << 20
	// tarAhead is how much of a tar part is read before Submit. A smaller tar is held in memory.
	tarAhead = 64 << 10
	// stdinMemory is how much of a stdin part stays in memory.
	stdinMemory = 64 << 10
	// settleBytes and settleTime bound what is still read of an upload whose Execution has ended.
	settleBytes = 16 << 20
	settleTime  = 2 * time.Second
)

// upload is a request to execute. Another goroutine than the handler's may read Workspace and Stdin, so mu guards the fields behind
// them.
type upload struct {
	frontend *frontend
	body     *body
	spec     executor.Spec
	input    executor.Input
	// where is the part of the request that has the metadata: "metadata" or "body".
	where string
	// brought is the field that has the files, "tar" or "files". An error in the files is an error of that field.
	brought string
	// batch is what the metadata of a batch say beside the Spec; nil: the request is none. The tar of a batch is read by all its cases.
	batch *pyexec.Batch

	mu    sync.Mutex
	scan  *scanner
	parts *multipart.Reader
	// stdinText reports whether the metadata has a stdin. Then a part of that name is an error.
	stdinText bool
	tar       *tarPart
	stdin     *spool
	tarSpool  *spool
	seen      map[string]bool
	// err is the first error of the request after Submit began to read it.
	err error
}

// receive reads a request as far as Submit needs it.
func (f *frontend) receive(w http.ResponseWriter, r *http.Request) (*upload, error) {
	return f.receiveInto(&upload{}, w, r)
}

// receiveInto is receive for the upload u, which may be that of a batch.
func (f *frontend) receiveInto(u *upload, w http.ResponseWriter, r *http.Request) (*upload, error) {
	mediaType, params, isJSON := mediaTypeOf(r)
	if !isJSON && mediaType != "multipart/form-data" {
		return nil, wrongType(r, "application/json (UTF-8) or multipart/form-data")
	}
	limit := f.opts.MaxBodyBytes
	if isJSON {
		limit = min(limit, jsonMax)
	}
	b, err := f.openBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	// A full queue refuses the request before its body is read. A client with "Expect: 100-continue" then sends no byte of it.
	if f.admitter != nil {
		if err := f.admitter.Admit(r.Context()); err != nil {
			return nil, err
		}
	}
	u.frontend, u.body, u.where, u.seen = f, b, "metadata", map[string]bool{}
	if isJSON {
		u.where = "body"
		err = u.receiveJSON()
	} else {
		ahead := int64(scanBytes)
		if r.ContentLength >= 0 {
			ahead = min(ahead, r.ContentLength)
		}
		u.scan = newScanner(b, params["boundary"], int(ahead))
		u.parts = multipart.NewReader(u.scan, params["boundary"])
		err = u.receiveParts(params["boundary"])
	}
	if err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// receiveJSON reads a JSON body.
func (u *upload) receiveJSON() error {
	raw, err := u.body.whole(u.body, u.body.announced)
	if err != nil {
		return bodyError("the JSON body", err)
	}
	var asked execRequest
	var given map[string]bool
	if u.batch == nil {
		given, err = u.frontend.shapes.exec.decode(raw, &asked, true)
	} else {
		var all batchRequest
		given, err = u.frontend.shapes.batch.decode(raw, &all, true)
		*u.batch, asked = all.Batch, execRequest{all.Spec, all.Files}
	}
	if err != nil {
		return in(u.where, err)
	}
	u.take(asked.Spec, given["stdin"])
	if asked.Files == nil {
		if asked.Code == "" && len(asked.Command) == 0 && asked.Script == "" {
			return in(u.where, executor.FieldErrorf(executor.Invalid, "code", "must be given, or command or files"))
		}
		return nil
	}
	u.brought = "files"
	u.input.Workspace, err = asked.Files.workspace(&u.spec)
	return in(u.where, err)
}

// take keeps the metadata. hasStdin reports whether they have a stdin, which may be empty.
func (u *upload) take(s pyexec.Spec, hasStdin bool) {
	u.spec = apijson.ToSpec(s)
	if hasStdin {
		u.stdinText = true
		u.input.Stdin = textSource([]byte(s.Stdin))
	}
}

// receiveParts reads a multipart body: up to the tar if the metadata is before it, otherwise to its end.
func (u *upload) receiveParts(boundary string) error {
	if boundary == "" {
		return refuse(http.StatusBadRequest, executor.Invalid, "the Content-Type of a multipart body must have a boundary")
	}
	for {
		part, name, err := u.next()
		if err != nil {
			return err
		}
		if part == nil {
			return u.complete()
		}
		switch name {
		case "metadata":
			err = u.readMetadata(part)
		case "stdin":
			err = u.readStdin(part)
		case "tar":
			var streaming bool
			if streaming, err = u.readTar(part); streaming && err == nil {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// next returns the next part, nil at the end of the body. Unknown and duplicate names are errors.
func (u *upload) next() (*bulkPart, string, error) {
	part, err := u.scan.next(u.parts)
	if ended(err) && len(u.seen) > 0 {
		// Bytes after the last boundary have no meaning, but they must be read.
		if err := u.body.drain(math.MaxInt64); err != nil {
			return nil, "", bodyError("the multipart body", err)
		}
		return nil, "", nil
	}
	if err != nil {
		return nil, "", bodyError("the multipart body", err)
	}
	name := part.FormName()
	switch name {
	case "metadata", "tar", "stdin":
	default:
		return nil, "", in("multipart", executor.FieldErrorf(executor.Invalid, clip(name), "unknown part: %s", u.partHint(name)))
	}
	if u.seen[name] {
		return nil, "", in("multipart", executor.FieldErrorf(executor.Invalid, name, "duplicate part"))
	}
	u.seen[name] = true
	if name == "stdin" && u.stdinText {
		return nil, "", in("multipart", executor.FieldErrorf(executor.Invalid, "stdin", "must be in the metadata or in a part, not in both"))
	}
	return part, name, nil
}

// partHint says what an unknown part was probably meant to be.
func (u *upload) partHint(name string) string {
	if u.frontend.shapes.batchMetadata[name] != nil {
		return name + " is a field of the part metadata"
	}
	return "must be metadata, tar or stdin; the tar has the files"
}

func (u *upload) readMetadata(part *bulkPart) error {
	limit := int64(metadataMax)
	if u.batch != nil {
		limit = jsonMax
	}
	raw, err := u.body.whole(io.LimitReader(part, limit+1), -1)
	if err != nil {
		return bodyError("the metadata part", err)
	}
	if int64(len(raw)) > limit {
		return refuse(http.StatusRequestEntityTooLarge, executor.Exhausted, "the metadata part must have at most %d bytes", limit)
	}
	var asked pyexec.Spec
	var given map[string]bool
	if u.batch == nil {
		given, err = u.frontend.shapes.metadata.decode(raw, &asked, false)
	} else {
		given, err = u.frontend.shapes.batchMetadata.decode(raw, u.batch, false)
		asked = u.batch.Spec
	}
	if err != nil {
		return in(u.where, err)
	}
	if given["stdin"] && u.seen["stdin"] {
		return in("multipart", executor.FieldErrorf(executor.Invalid, "stdin", "must be in the metadata or in a part, not in both"))
	}
	u.take(asked, given["stdin"])
	return nil
}

func (u *upload) readStdin(part *bulkPart) error {
	s := newSpool(u.frontend.opts.SpoolDir, stdinMemory)
	u.stdin = s
	if err := copyPart(s, part, "the stdin part"); err != nil {
		return err
	}
	u.input.Stdin = s.source()
	return nil
}

// readTar reads the tar part. It is a stream if the metadata is known and the tar is not small.
func (u *upload) readTar(part *bulkPart) (streaming bool, err error) {
	if err := checkPartHeader(part.Header); err != nil {
		return false, err
	}
	u.brought = "tar"
	var ahead bytes.Buffer
	// ReadFrom needs MinRead bytes at the end. store is no longer than the body.
	ahead.Grow(min(tarAhead, len(u.scan.store)) + bytes.MinRead)
	if _, err := ahead.ReadFrom(io.LimitReader(part, tarAhead)); err != nil { // a wrapped io.EOF is an error of the part, too
		return false, bodyError("the tar part", err)
	}
	head, whole := ahead.Bytes(), ahead.Len() < tarAhead
	if err := checkMagic(head); err != nil {
		return false, err
	}
	if u.seen["metadata"] && !whole && u.batch == nil {
		u.tar = &tarPart{upload: u, head: head, part: part}
		u.input.Workspace = &executor.Source{Open: u.openTar, SizeBytes: -1}
		if u.input.Stdin == nil {
			u.input.Stdin = &executor.Source{Open: u.openStdin, SizeBytes: -1}
		}
		return true, nil
	}
	s := newSpool(u.frontend.opts.SpoolDir, tarAhead)
	u.tarSpool = s
	if _, err := s.Write(head); err != nil {
		return false, err
	}
	if !whole {
		if err := copyPart(s, part, "the tar part"); err != nil {
			return false, err
		}
	}
	u.input.Workspace = s.source()
	return false, nil
}

// copyPart reads a part to its end into s. It distinguishes errors of the client from errors of s.
func copyPart(s *spool, part io.Reader, what string) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := part.Read(buf)
		if n > 0 {
			if _, err := s.Write(buf[:n]); err != nil {
				return err
			}
		}
		if ended(err) {
			return nil
		}
		if err != nil {
			return bodyError(what, err)
		}
	}
}

// complete checks a body that was read to its end.
func (u *upload) complete() error {
	var err *executor.Error
	switch {
	case !u.seen["metadata"]:
		err = executor.FieldErrorf(executor.Invalid, "metadata", "missing part: must be JSON, {\"entrypoint\": \"main.py\"}")
	case !u.seen["tar"] && u.spec.Code == "" && len(u.spec.Command) == 0 && u.spec.Script == "":
		err = executor.FieldErrorf(executor.Invalid, "tar", "missing part: must be given without code and command")
	default:
		return nil
	}
	return in("multipart", &requestError{status: http.StatusBadRequest, err: err})
}

// failure returns the error of the request that was found while it was read.
func (u *upload) failure() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// watch reads the rest of the body while an Execution runs. net/http notices a disconnected client only after the end of the body.
// watch calls gone when the body breaks. stop ends the watch and waits for its end.
func (u *upload) watch(gone context.CancelCauseFunc) (stop func()) {
	if u.body.done.Load() {
		return func() {}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := u.body.drain(math.MaxInt64); err != nil {
			gone(bodyError("the rest of the body", err))
		}
	})
	return func() {
		u.body.stop()
		wg.Wait()
	}
}

// settle settles the body of an Execution that has ended. If nothing of the tar was read yet it reads nothing, so a client that
// waits for "100 Continue" sends nothing.
func (u *upload) settle() {
	if u.tar != nil && u.tar.touched.Load() && !u.body.done.Load() {
		u.body.settle()
	}
}

// close releases the spooled parts.
func (u *upload) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stdin.close()
	u.tarSpool.close()
}

// submitted releases the memory of what Submit has read.
func (u *upload) submitted() {
	u.spec, u.input = executor.Spec{}, executor.Input{}
	u.body.share.Release()
}

// clip shortens a name of a request, so that an error can repeat it.
func clip(name string) string {
	if name == "" {
		return "(no name)"
	}
	if len(name) > 100 {
		name = name[:100] + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
