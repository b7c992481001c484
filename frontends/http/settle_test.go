package httpfrontend

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// connection is a client's connection: the answer, and a body that stalls behind its text until the read deadline.
type connection struct {
	*httptest.ResponseRecorder
	text io.Reader

	mu       sync.Mutex
	deadline *time.Timer
	late     chan struct{}
	// reading is true while a Read waits for the client.
	reading atomic.Bool
}

func newConnection(text io.Reader) *connection {
	return &connection{ResponseRecorder: httptest.NewRecorder(), text: text, late: make(chan struct{})}
}

// SetReadDeadline ends a Read that waits, and later ones until the next deadline is set.
func (c *connection) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
		c.deadline = nil
	}
	select {
	case <-c.late:
		c.late = make(chan struct{})
	default:
	}
	late := c.late
	switch left := time.Until(at); {
	case at.IsZero():
	case left <= 0:
		close(late)
	default:
		c.deadline = time.AfterFunc(left, func() { close(late) })
	}
	return nil
}

// Read waits for the client behind the text.
func (c *connection) Read(p []byte) (int, error) {
	c.mu.Lock()
	late := c.late
	c.mu.Unlock()
	n, err := c.text.Read(p)
	if err != nil {
		c.reading.Store(true)
		defer c.reading.Store(false)
		<-late
	}
	select {
	case <-late:
		return 0, os.ErrDeadlineExceeded
	default:
		return n, nil
	}
}

func (c *connection) Close() error { return nil }

// tarUpload is the beginning of a multipart body: the metadata, and size bytes of a tar.
func tarUpload(size int64) io.Reader {
	const head = "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{}\r\n--b\r\nContent-Disposition: form-data; name=\"tar\"\r\n\r\n"
	return io.MultiReader(strings.NewReader(head), zeros(size))
}

// refused is a request whose body is refused when some of it was read.
type refused struct {
	name, method, path, contentType string
	body                            func(size int64) io.Reader
	// announced is the Content-Length; 0: none.
	announced int64
	handler   func(t *testing.T) http.Handler
	status    int
}

// refusedUploads are the ways to refuse a body half-way.
func refusedUploads() []refused {
	halfway := func(answer func() (executor.Execution, error)) func(t *testing.T) http.Handler {
		return func(t *testing.T) http.Handler {
			t.Helper()
			svc := hello().service()
			svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
				r, err := in.Workspace.Open()
				if err != nil {
					return executor.Execution{}, err
				}
				if _, err := io.ReadFull(r, make([]byte, 512)); err != nil {
					return executor.Execution{}, err
				}
				return answer()
			}
			bad := newRun().add(executor.Queued{}, failed(executor.PhasePrepare, executor.Invalid, "tar"))
			svc.get, svc.events = bad.service().get, bad.service().events
			return handlerOf(t, svc)
		}
	}
	submit := halfway(func() (executor.Execution, error) {
		return executor.Execution{}, executor.Errorf(executor.Exhausted, "full")
	})
	ended := halfway(func() (executor.Execution, error) {
		return newRun().add(executor.Queued{}, failed(executor.PhasePrepare, executor.Invalid, "tar")).state(), nil
	})
	file := func(t *testing.T) http.Handler {
		t.Helper()
		return handlerOf(t, served{stub: hello().service(), write: func(r io.Reader) (executor.File, error) {
			if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
				return executor.File{}, err
			}
			return executor.File{}, executor.Errorf(executor.Exhausted, "the disk is full")
		}})
	}
	memory := func(t *testing.T) http.Handler {
		t.Helper()
		h := handlerOf(t, hello().service(), func(o *Options) { o.MaxBufferedBytes = 1 << 20 })
		useUp(t, h)
		return h
	}
	message := func(t *testing.T) http.Handler {
		t.Helper()
		return handlerOf(t, hello().service(), func(o *Options) {
			o.MCP = &MCP{Path: "/mcp", MaxBodyBytes: 1000, Socket: func(context.Context) string { return "" }}
		})
	}
	const multi = "multipart/form-data; boundary=b"
	return []refused{
		{"a Submit of sync that fails", http.MethodPost, "/api/v1/exec/sync", multi, tarUpload, 0, submit, 429},
		{"a Submit of async that fails", http.MethodPost, "/api/v1/exec/async", multi, tarUpload, 0, submit, 429},
		{"an Execution that has ended", http.MethodPost, "/api/v1/exec/sync", multi, tarUpload, 0, ended, 422},
		{"a file", http.MethodPut, oneSession + "/files/f", "", zeros, 0, file, 413},
		{"a body for which no memory is left", http.MethodPost, "/api/v1/exec/sync", "application/json", zeros, 0, memory, 503},
		{"a message that is too large", http.MethodPost, "/mcp", "application/json", zeros, 1 << 30, message, 413},
	}
}

func (r refused) request(t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), r.method, r.path, body)
	req.Host, req.ContentLength = "localhost", -1
	if r.announced > 0 {
		req.ContentLength = r.announced
	}
	req.Header.Set("Content-Type", r.contentType)
	return req
}

// Many clients read no answer before they have sent everything.
func TestARefusedBodyIsTakenInUpToABound(t *testing.T) {
	t.Parallel()
	for _, r := range refusedUploads() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			h := r.handler(t)
			for _, size := range []int64{4 << 20, settleBytes + 4<<20} {
				body := &countingReader{r: r.body(size)}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r.request(t, body))
				if w.Code != r.status {
					t.Errorf("status %d, want %d: %s", w.Code, r.status, w.Body)
				}
				// Besides the bound, some of it was read before it was refused.
				if minimum, limit := min(size, settleBytes), int64(settleBytes+1<<20); body.n < minimum || body.n > limit {
					t.Errorf("%d bytes of %d were read, want %d to %d", body.n, size, minimum, limit)
				}
			}
		})
	}
}

func TestARefusedBodyThatStallsIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, r := range refusedUploads() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := r.handler(t)
				c := newConnection(r.body(1 << 20))
				began := time.Now()
				h.ServeHTTP(c, r.request(t, c))
				if took := time.Since(began); c.Code != r.status || took != settleTime {
					t.Errorf("status %d after %s, want %d after %s: %s", c.Code, took, r.status, settleTime, c.Body)
				}
			})
		})
	}
}

func TestTheWatchOfABodyEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRun().add(executor.Queued{}, executor.Started{})
		svc := r.service()
		svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
			return r.state(), nil
		}
		c := newConnection(tarUpload(1 << 20))
		req := newPost(t, "/api/v1/exec/sync", c, "multipart/form-data; boundary=b")
		h := handlerOf(t, svc)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			h.ServeHTTP(c, req)
		}()
		synctest.Wait()
		if !c.reading.Load() {
			t.Error("nobody watches a client that still sends")
		}
		began := time.Now()
		r.add(done(0))
		select {
		case <-answered:
		case <-time.After(time.Second):
			t.Error("the answer waits for the rest of the body")
		}
		if c.Code != 200 || time.Since(began) > 0 {
			t.Errorf("status %d after %s: %s", c.Code, time.Since(began), c.Body)
		}
		if c.reading.Load() {
			t.Error("the body is read after its request has ended")
		}
		_ = c.SetReadDeadline(time.Now())
		<-answered
	})
}
