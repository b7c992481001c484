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

// uploadIdle is how long a client may send nothing while its upload is read.
const uploadIdle = 60 * time.Second

// minRate is the number of bytes that a client must send for each second of waiting beyond uploadIdle. Without this bound, a
// client that sends a few bytes at a time could hold a slot as long as it likes.
const minRate = 1 << 10

// minRateWhole is minRate for a body that is held completely in memory, which other requests cannot use meanwhile.
const minRateWhole = 64 << 10

// body is a request's body with a bound on its size. While a Read is under way, it also has a deadline for silence and a
// minimum rate.
type body struct {
	rc   *http.ResponseController
	idle time.Duration
	// done reports whether the end was read.
	done atomic.Bool

	// share counts the memory of a body that is held completely. announced is the body's length, -1 if unknown. waits reports
	// whether the sender waits for "100 Continue".
	share     *buffered.Share
	announced int64
	waits     bool

	reading sync.Mutex // one Read at a time
	r       io.Reader
	minRate int64
	waited  time.Duration
	got     int64

	mu      sync.Mutex // guards the deadline
	armed   time.Time
	stopped bool
}

// openBody checks the headers about a body and returns the body unread. limit bounds its size in bytes.
func (f *frontend) openBody(w http.ResponseWriter, r *http.Request, limit int64) (*body, error) {
	if r.ContentLength > limit {
		return nil, refuse(http.StatusRequestEntityTooLarge, executor.Exhausted, "the request body must have at most %d bytes (got %d)", limit, r.ContentLength)
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, refuse(http.StatusUnsupportedMediaType, executor.Invalid, "the request body must not be compressed (got Content-Encoding %.40q)", enc)
	}
	share := f.buffers.Open(executor.PrincipalFrom(r.Context()).Owner)
	if rec, ok := w.(*recorder); ok {
		rec.share = share
		// MaxBytesReader asks net/http's own ResponseWriter to close the connection after 413, so it needs that one.
		w = rec.ResponseWriter
	}
	return &body{
		r: http.MaxBytesReader(w, r.Body, limit), rc: http.NewResponseController(w), idle: f.uploadIdle, minRate: minRate,
		share: share, announced: r.ContentLength, waits: r.Header.Get("Expect") != "",
	}, nil
}

// whole reads all of r, which is the body or a part of it, into memory. Codes: unavailable, if other bodies take the memory.
func (b *body) whole(r io.Reader, announced int64) ([]byte, error) {
	b.reading.Lock()
	b.minRate = minRateWhole
	b.reading.Unlock()
	raw, err := b.share.ReadAll(r, announced)
	if buffered.ErrFull(err) && !b.waits {
		b.settle()
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
	if b.waited > b.idle+time.Duration(b.got/b.minRate)*time.Second {
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

// arm renews the deadline when a quarter of it has passed, so that fast uploads need few system calls. With a ResponseWriter
// that has no deadlines, only the size bounds an upload.
func (b *body) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); !b.stopped && now.Sub(b.armed) > b.idle/4 {
		b.armed = now
		_ = b.rc.SetReadDeadline(now.Add(b.idle))
	}
}

// disarm removes the deadline. After the end of the body, net/http reads from the connection to notice a disconnect, for as
// long as the answer takes.
func (b *body) disarm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.armed = time.Time{}
		_ = b.rc.SetReadDeadline(time.Time{})
	}
}

// stop ends a waiting Read and every later Read.
func (b *body) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	_ = b.rc.SetReadDeadline(time.Unix(1, 0))
}

// settle reads and drops a bounded rest of the body, because many clients send everything before they read an answer.
func (b *body) settle() {
	timer := time.AfterFunc(settleTime, b.stop)
	defer timer.Stop()
	_ = b.drain(settleBytes) // the answer does not depend on an error
}

// drain reads and drops at most limit bytes. It returns nil if the body ends before that, or has more than limit bytes.
func (b *body) drain(limit int64) error {
	_, err := io.Copy(io.Discard, io.LimitReader(b, limit))
	return err
}

// ended reports whether err is the regular end of a reader. A wrapped io.EOF is not: mime/multipart returns one for a body that
// was cut.
func ended(err error) bool {
	return err == io.EOF //nolint:errorlint // see above
}
