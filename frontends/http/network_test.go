package httpfrontend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// zeros is a reader of n zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// heapPeak calls f with a function that looks at the heap, for f to call while much is on its way. heapPeak returns the most heap that was
// in use then, above what was in use before.
func heapPeak(f func(look func())) int64 {
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var peak atomic.Int64
	f(func() {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		peak.Store(max(peak.Load(), int64(now.HeapInuse)-int64(before.HeapInuse)))
	})
	return peak.Load()
}

// looking is a Writer that calls look with each MiB.
type looking struct {
	look func()
	n    int
}

func (l *looking) Write(b []byte) (int, error) {
	if before := l.n; (before+len(b))>>20 > before>>20 {
		l.look()
	}
	l.n += len(b)
	return len(b), nil
}

func TestALargeUploadCostsNoMemory(t *testing.T) {
	// Not parallel: it looks at the heap of the process.
	const size = 100 << 20 // three times what the heap may grow by
	for _, tarFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("tar first is %v", tarFirst), func(t *testing.T) {
			var got atomic.Int64
			var taken looking
			svc := hello().service()
			svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
				r, err := in.Workspace.Open()
				if err != nil {
					return executor.Execution{}, err
				}
				defer r.Close()
				n, err := io.CopyBuffer(&taken, r, make([]byte, 256<<10))
				got.Store(n)
				return hello().state(), err
			}
			dir := t.TempDir()
			server := httptest.NewServer(handlerOf(t, svc, func(o *Options) { o.SpoolDir = dir }))
			defer server.Close()
			pr, pw := io.Pipe()
			w := multipart.NewWriter(pw)
			go func() {
				metadata := func() {
					p, _ := w.CreateFormField("metadata")
					_, _ = io.WriteString(p, "{}")
				}
				if !tarFirst {
					metadata()
				}
				p, _ := w.CreateFormFile("tar", "w.tar")
				_, _ = io.CopyBuffer(struct{ io.Writer }{p}, zeros(size), make([]byte, 256<<10))
				if tarFirst {
					metadata()
				}
				_ = w.Close()
				pw.Close()
			}()
			peak := heapPeak(func(look func()) {
				taken.look = look
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/exec/sync", pr)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", w.FormDataContentType())
				res, err := server.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				if data, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
					t.Errorf("%d %s", res.StatusCode, data)
				}
			})
			t.Logf("heap peak %d KiB", peak>>10)
			if got.Load() != size {
				t.Fatalf("%d bytes arrived", got.Load())
			}
			if peak > 32<<20 {
				t.Fatalf("the heap grew by %d bytes", peak)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Fatalf("left behind: %v %v", left, err)
			}
		})
	}
}

func TestALargeResultCostsNoMemory(t *testing.T) {
	const chunk, chunks = 256 << 10, 96 // held whole, it would take 72 MiB or more
	data := []byte(strings.Repeat("x\xff", chunk/2))
	log := newRun().add(executor.Started{})
	for i := range chunks {
		log.add(executor.Output{Stream: executor.Stdout, Offset: int64(i) * chunk, Data: data}) // one array, many times
	}
	log.add(done(0))
	server := httptest.NewServer(handlerOf(t, log.service()))
	defer server.Close()
	peak := heapPeak(func(look func()) {
		res := get(t, server, one)
		defer res.Body.Close()
		n, err := io.Copy(&looking{look: look}, res.Body)
		if err != nil || n < chunk*chunks*3 {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
	t.Logf("heap peak %d KiB", peak>>10)
	if peak > 16<<20 {
		t.Fatalf("the heap grew by %d bytes", peak)
	}
}

// endless is a Service whose program runs until it is cancelled; killed gets the ids.
func endless(readInput bool) (svc *stub, submitted chan struct{}, killed chan string) {
	r := newRun().add(executor.Queued{}, executor.Started{})
	svc = r.service()
	submitted, killed = make(chan struct{}, 1), make(chan string, 1)
	svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
		defer func() { submitted <- struct{}{} }()
		if readInput {
			if err := consume(executor.Input{Workspace: in.Workspace}); err != nil { // never the stdin
				return r.state(), err
			}
		}
		return r.state(), nil
	}
	svc.cancel = func(ctx context.Context, id string) (executor.Execution, error) {
		if err := ctx.Err(); err != nil {
			return executor.Execution{}, err
		}
		r.add(executor.Finished{Result: executor.Result{Status: executor.StatusKilled}})
		killed <- id
		return r.state(), nil
	}
	return svc, submitted, killed
}

func TestAClientThatDisconnectsKillsItsExecution(t *testing.T) {
	t.Parallel()
	large := string(tarOf("data.bin", strings.Repeat("d", 300_000)))
	multi := func(parts ...part) (string, string) {
		b, c := form(parts...)
		return string(b), c
	}
	meta, stdin := part{"metadata", "{}", nil}, part{"stdin", strings.Repeat("s", 3<<20), nil}
	for _, tt := range []struct {
		name      string
		body      func() (string, string)
		readInput bool
		// leave is how much of the body the client never sends.
		leave int
	}{
		{"JSON", func() (string, string) { return `{"code":"x"}`, "application/json" }, true, 0},
		{"a small tar", func() (string, string) { return multi(meta, part{"tar", string(tarOf("main.py", "x")), nil}) }, true, 0},
		{"a streamed tar", func() (string, string) { return multi(meta, part{"tar", large, nil}) }, true, 0},
		{"stdin that nobody reads", func() (string, string) { return multi(meta, part{"tar", large, nil}, stdin) }, true, 0},
		{"a tar that nobody reads", func() (string, string) { return multi(meta, part{"tar", large, nil}, stdin) }, false, 0},
		{"a tar that is still being sent", func() (string, string) { return multi(meta, part{"tar", large, nil}, stdin) }, false, 1000},
		{"a client that leaves while it sends", func() (string, string) { return multi(meta, part{"tar", large, nil}) }, true, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svc, submitted, killed := endless(tt.readInput)
			server := httptest.NewServer(handlerOf(t, svc))
			defer server.Close()
			body, contentType := tt.body()
			var d net.Dialer
			conn, err := d.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /api/v1/exec/sync HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", contentType, len(body))
			_, _ = io.WriteString(conn, body[:len(body)-tt.leave])
			if tt.leave == 0 || !tt.readInput {
				awaittest.Closed(t, "the Execution is submitted", submitted)
			}
			conn.Close()
			if id := awaittest.Recv(t, "the Execution is killed", killed); id != testID {
				t.Fatal(id)
			}
		})
	}
}

func TestAnAnswerCanComeBeforeTheUploadHasEnded(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{}, failed(executor.PhasePrepare, executor.Invalid, "tar"))
	svc := r.service()
	svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
		rc, err := in.Workspace.Open()
		if err != nil {
			return executor.Execution{}, err
		}
		_, _ = io.ReadFull(rc, make([]byte, 512))
		return r.state(), nil
	}
	server := httptest.NewServer(handlerOf(t, svc))
	defer server.Close()
	body, contentType := form(part{"metadata", "{}", nil}, part{"tar", strings.Repeat("bad", 2<<20), nil})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/exec/sync", io.MultiReader(strings.NewReader(string(body))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if data, err := io.ReadAll(res.Body); res.StatusCode != http.StatusUnprocessableEntity || err != nil || !strings.Contains(string(data), testID) {
		t.Fatalf("%d %s %v", res.StatusCode, data, err)
	}
}

func TestAClientThatStallsIsGivenUp(t *testing.T) {
	t.Parallel()
	f := handlerOf(t, hello().service())
	f.uploadIdle = 20 * time.Millisecond
	server := httptest.NewServer(f)
	defer server.Close()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/exec/sync HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(res.Body)
	if p := decode(t, data); res.StatusCode != http.StatusRequestTimeout || p["code"] != "unavailable" {
		t.Fatalf("%d %s", res.StatusCode, data)
	}
}

func TestAnUploadThatWaitsForContinueIsRefusedUnsent(t *testing.T) {
	t.Parallel()
	full := func(context.Context) error { return executor.Errorf(executor.Exhausted, "full") }
	server := httptest.NewServer(handlerOf(t, admitting{hello().service(), full}))
	defer server.Close()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/exec/async HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
}

// closing tells when it is closed.
type closing struct {
	io.Reader
	closed chan struct{}
}

func (c closing) Close() error {
	close(c.closed)
	return nil
}

func TestAClientThatReadsNoMoreIsGivenUp(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	archive := closing{zero{}, make(chan struct{})}
	svc.artifacts = func(context.Context, string) (io.ReadCloser, error) { return archive, nil }
	f := handlerOf(t, svc)
	f.writeIdle = 50 * time.Millisecond
	server := httptest.NewServer(f)
	defer server.Close()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET "+one+"/artifacts HTTP/1.1\r\nHost: localhost\r\n\r\n")
	awaittest.Closed(t, "the end of its answer", archive.closed)
}

// deadlined notes the deadlines that it gets.
type deadlined struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlined) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func TestADeadlineOfARequestIsNotThatOfTheNextOne(t *testing.T) {
	t.Parallel()
	w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
	r.Host = "localhost"
	handlerOf(t, hello().service()).ServeHTTP(w, r)
	if len(w.set) != 2 || !w.set[0].IsZero() || w.set[1].Before(time.Now()) {
		t.Error(w.set)
	}
}
