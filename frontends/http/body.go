package httpfrontend

import (
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
)

// uploadIdle is how long a client may send nothing while its upload is being read.
const uploadIdle = 60 * time.Second

// slowest is how many bytes a client must send in a second that is spent waiting for it, once it has used up its time for
// silence: an upload that is streamed holds a slot, and a trickle would hold it as well as silence would.
const slowest = 1 << 10

// slowestWhole is the same for a body that is held in memory whole: what others may not use meanwhile is worth more.
const slowestWhole = 64 << 10

// body is a request's body: bounded, with a deadline for silence and a bound on slowness while somebody reads, and none while nobody does.
type body struct {
	rc   *http.ResponseController
	idle time.Duration
	// done: the end was met; nothing more comes.
	done atomic.Bool

	// share is what it takes of the memory for bodies that are held whole; announced is its length, -1 if not known.
	// waits: the sender sends nothing before "100 Continue".
	share     *buffered.Share
	announced int64
	waits     bool

	reading sync.Mutex // one Read at a time
	r       io.Reader
	slowest int64
	waited  time.Duration
	got     int64

	mu      sync.Mutex // guards the deadline
	armed   time.Time
	stopped bool
}

// openBody checks what can be known of a body before it is read. limit bounds it.
func (f *frontend) openBody(w http.ResponseWriter, r *http.Request, limit int64) (*body, error) {
	if r.ContentLength > limit {
		return nil, refuse(http.StatusRequestEntityTooLarge, executor.Exhausted, "the request body has %d bytes, at most %d are taken", r.ContentLength, limit)
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, refuse(http.StatusUnsupportedMediaType, executor.Invalid, "the body must not be compressed (Content-Encoding is %.40q)", enc)
	}
	share := f.buffers.Open()
	if rec, ok := w.(*recorder); ok {
		rec.share = share
		// MaxBytesReader tells net/http's own writer to close the connection after 413; it must see that one.
		w = rec.ResponseWriter
	}
	return &body{
		r: http.MaxBytesReader(w, r.Body, limit), rc: http.NewResponseController(w), idle: f.uploadIdle, slowest: slowest,
		share: share, announced: r.ContentLength, waits: r.Header.Get("Expect") != "",
	}, nil
}

// whole reads all of r, which is the body or a part of it, into memory. Codes: unavailable, when others hold too much.
func (b *body) whole(r io.Reader, announced int64) ([]byte, error) {
	b.reading.Lock()
	b.slowest = slowestWhole
	b.reading.Unlock()
	raw, err := b.share.ReadAll(r, announced)
	if buffered.ErrFull(err) && !b.waits {
		// Many clients read no answer before they have sent everything.
		timer := time.AfterFunc(settleTime, b.stop)
		defer timer.Stop()
		_ = b.drain(settleBytes) // it is refused anyway
	}
	return raw, err
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.done.Load() {
		return 0, io.EOF
	}
	if b.waited > b.idle+time.Duration(b.got/b.slowest)*time.Second {
		b.disarm()
		return 0, os.ErrDeadlineExceeded
	}
	b.arm()
	began := time.Now()
	n, err := b.r.Read(p)
	b.waited += time.Since(began)
	b.got += int64(n)
	if err != nil {
		if ended(err) {
			b.done.Store(true)
		}
		b.disarm()
	}
	return n, err
}

// arm sets the deadline anew when a quarter of it has passed, so that a fast upload costs no system calls for it. Not
// every ResponseWriter has deadlines; the upload is then bounded by its size only.
func (b *body) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); !b.stopped && now.Sub(b.armed) > b.idle/4 {
		b.armed = now
		_ = b.rc.SetReadDeadline(now.Add(b.idle))
	}
}

// disarm takes the deadline away: behind the body's end net/http watches the connection for the client's leaving, for as
// long as the answer takes.
func (b *body) disarm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.armed = time.Time{}
		_ = b.rc.SetReadDeadline(time.Time{})
	}
}

// stop ends a Read that waits, and every later one.
func (b *body) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	_ = b.rc.SetReadDeadline(time.Unix(1, 0))
}

// drain reads and drops at most limit bytes. nil: the body has ended.
func (b *body) drain(limit int64) error {
	_, err := io.Copy(io.Discard, io.LimitReader(b, limit))
	return err
}

// ended reports whether err is a reader's own end. A wrapped io.EOF is the end of something around it: a body that was
// cut (mime/multipart wraps it so).
func ended(err error) bool {
	return err == io.EOF //nolint:errorlint // see above
}
