package httpfrontend

import (
	"context"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// metadataMax bounds the metadata part.
	metadataMax = 8 << 20
	// jsonMax bounds an application/json body: it is held in memory whole, with the files in it. More goes as a tar.
	jsonMax = 32 << 20
	// tarAhead is how much of a tar part is read before Submit. A tar that ends within it is known whole then.
	tarAhead = 64 << 10
	// stdinMemory is how much of a stdin part stays in memory.
	stdinMemory = 64 << 10
	// settleBytes and settleTime bound what is still taken in of an upload whose Execution has ended.
	settleBytes = 16 << 20
	settleTime  = 2 * time.Second
)

// upload is what a request to execute brings. Workspace and Stdin may be read by another goroutine than the handler's,
// so what is behind them is locked.
type upload struct {
	frontend *frontend
	body     *body
	spec     executor.Spec
	input    executor.Input
	// where its metadata is: "metadata" or "body".
	where string
	// brought is the field that brought files, "tar" or "files": a fault in them is the request's fault then.
	brought string

	mu    sync.Mutex
	scan  *scanner
	parts *multipart.Reader
	// stdinText: metadata had a stdin; a part of that name is then one too many.
	stdinText bool
	tar       *tarPart
	stdin     *spool
	tarSpool  *spool
	seen      map[string]bool
	// err is the first thing that was wrong with the request after Submit had begun to read.
	err error
}

// receive reads a request as far as Submit needs it.
func (f *frontend) receive(w http.ResponseWriter, r *http.Request) (*upload, error) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isJSON := err == nil && mediaType == "application/json"
	if charset := params["charset"]; isJSON && charset != "" && !strings.EqualFold(charset, "utf-8") {
		isJSON = false
	}
	if !isJSON && mediaType != "multipart/form-data" {
		return nil, refuse(http.StatusUnsupportedMediaType, executor.Invalid,
			"the Content-Type must be multipart/form-data or application/json (UTF-8), not %.80q", r.Header.Get("Content-Type"))
	}
	limit := f.opts.MaxBodyBytes
	if isJSON {
		limit = min(limit, jsonMax)
	}
	b, err := f.openBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	// Full means refused before the body is read: with "Expect: 100-continue" not one byte of it is sent.
	if f.admitter != nil {
		if err := f.admitter.Admit(r.Context()); err != nil {
			return nil, err
		}
	}
	u := &upload{frontend: f, body: b, where: "metadata", seen: map[string]bool{}}
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
	s, err := u.frontend.metadata.decode(raw, true)
	if err != nil {
		return in(u.where, err)
	}
	u.take(s)
	if s.files == nil {
		if s.spec.Code == "" && len(s.spec.Command) == 0 && s.spec.Script == "" {
			return in(u.where, executor.FieldErrorf(executor.Invalid, "code", "code, command or files is needed"))
		}
		return nil
	}
	u.brought = "files"
	u.input.Workspace, err = s.workspace(&u.spec)
	return in(u.where, err)
}

// take keeps what the metadata said.
func (u *upload) take(s *submission) {
	u.spec = s.spec
	if s.stdin != nil {
		u.stdinText = true
		u.input.Stdin = textSource([]byte(*s.stdin))
	}
}

// receiveParts reads a multipart body up to the tar when the metadata came before it, else to its end.
func (u *upload) receiveParts(boundary string) error {
	if boundary == "" {
		return refuse(http.StatusBadRequest, executor.Invalid, "the multipart body has no boundary in its Content-Type")
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

// next returns the next part, nil at the end of the body. Unknown names and names that come twice are errors.
func (u *upload) next() (*bulkPart, string, error) {
	part, err := u.scan.next(u.parts)
	if ended(err) && len(u.seen) > 0 {
		// What follows the last boundary has no meaning, but the body must be at its end.
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
		return nil, "", in("multipart", executor.FieldErrorf(executor.Invalid, clip(name), "is not a part that is known (metadata, tar, stdin are)"))
	}
	if u.seen[name] {
		return nil, "", in("multipart", executor.FieldErrorf(executor.Invalid, name, "the part is there twice"))
	}
	u.seen[name] = true
	if name == "stdin" && u.stdinText {
		return nil, "", in("multipart", executor.FieldErrorf(executor.Invalid, "stdin", "is in the metadata and a part; one of them is possible"))
	}
	return part, name, nil
}

func (u *upload) readMetadata(part *bulkPart) error {
	raw, err := u.body.whole(io.LimitReader(part, metadataMax+1), -1)
	if err != nil {
		return bodyError("the metadata part", err)
	}
	if len(raw) > metadataMax {
		return refuse(http.StatusRequestEntityTooLarge, executor.Exhausted, "the metadata part is larger than %d bytes", metadataMax)
	}
	s, err := u.frontend.metadata.decode(raw, false)
	if err != nil {
		return in(u.where, err)
	}
	if s.stdin != nil && u.seen["stdin"] {
		return in("multipart", executor.FieldErrorf(executor.Invalid, "stdin", "is in the metadata and a part; one of them is possible"))
	}
	u.take(s)
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

// readTar takes the tar part: as a stream when the metadata is known and it is not small, else whole.
func (u *upload) readTar(part *bulkPart) (streaming bool, err error) {
	if err := checkPartHeader(part.Header); err != nil {
		return false, err
	}
	u.brought = "tar"
	head, whole, err := readHead(part, tarAhead)
	if err != nil {
		return false, bodyError("the tar part", err)
	}
	if err := checkMagic(head); err != nil {
		return false, err
	}
	if u.seen["metadata"] && !whole {
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

// readHead reads up to size bytes. whole: r ended within them.
func readHead(r io.Reader, size int) (head []byte, whole bool, err error) {
	head = make([]byte, 0, min(size, 4<<10))
	for len(head) < size {
		if len(head) == cap(head) {
			head = slices.Grow(head, min(len(head), size-len(head)))
		}
		n, err := r.Read(head[len(head):min(cap(head), size)])
		head = head[:len(head)+n]
		if ended(err) {
			return head, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return head, false, nil
}

// copyPart reads a part to its end into s, and tells the client's failures from ours.
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
		err = executor.FieldErrorf(executor.Invalid, "metadata", "the part is missing")
	case !u.seen["tar"] && u.spec.Code == "" && len(u.spec.Command) == 0 && u.spec.Script == "":
		err = executor.FieldErrorf(executor.Invalid, "tar", "the part is missing, and the metadata has neither code nor command")
	default:
		return nil
	}
	return in("multipart", &requestError{status: http.StatusBadRequest, err: err})
}

// failure returns what turned out to be wrong with the request while it was being consumed.
func (u *upload) failure() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// watch reads what is left of the body while an Execution runs, so that net/http notices when the client goes away: it
// watches a connection only behind the body's end. gone is called when the body breaks; stop ends the watch and waits.
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

// settle takes in a bounded rest of a body whose Execution has ended already: many clients read no answer before they have
// sent everything. Nothing is read where nothing was, so that a client that waits for "100 Continue" is refused unread.
func (u *upload) settle() {
	if u.tar == nil || !u.tar.touched.Load() || u.body.done.Load() {
		return
	}
	timer := time.AfterFunc(settleTime, u.body.stop)
	defer timer.Stop()
	_ = u.body.drain(settleBytes) // the answer is sent anyway
}

// close gives the spooled parts back.
func (u *upload) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stdin.close()
	u.tarSpool.close()
}

// submitted gives back the memory of what Submit has taken.
func (u *upload) submitted() {
	u.spec, u.input = executor.Spec{}, executor.Input{}
	u.body.share.Release()
}

// clip makes a name from a request short enough to repeat.
func clip(name string) string {
	if name == "" {
		return "(no name)"
	}
	if len(name) > 100 {
		name = name[:100] + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
