package httpfrontend

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// TestFilesKeepTheirNames puts, lists, gets and removes files with every kind of name.
func TestFilesKeepTheirNames(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	svc.files = map[string]string{}
	h := handlerOf(t, svc)
	for escaped, name := range map[string]string{
		"plain.txt": "plain.txt", "a%20b.txt": "a b.txt", "d%C3%A9j%C3%A0/vu": "déjà/vu", "a%2Fb": "a/b", "x%3Fy=1%23z": "x?y=1#z", "100%25": "100%",
		"semi;colon,comma+plus": "semi;colon,comma+plus", "%22quoted%22": `"quoted"`, "back%5Cslash": `back\slash`, "...": "...", ".hidden": ".hidden",
		"new%0Aline": "new\nline", "%E2%80%AEgpj.exe": "\u202egpj.exe", strings.Repeat("x", 255): strings.Repeat("x", 255), "a/%2e%2e%2e/b": "a/.../b",
	} {
		path := oneSession + "/files/" + escaped
		content := "content of " + name + "\x00\xff"
		w := do(t, h, "PUT", path, strings.NewReader(content))
		if w.Code != 200 || decode(t, w.Body.Bytes())["path"] != name || svc.files[name] != content {
			t.Errorf("PUT %s: %d %s, files %q", path, w.Code, w.Body, slices.Collect(maps.Keys(svc.files)))
			continue
		}
		w = do(t, h, "GET", path, nil)
		if w.Code != 200 || w.Body.String() != content {
			t.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
		if hd := w.Header(); hd.Get("Content-Length") != strconv.Itoa(len(content)) || hd.Get("Content-Type") != "application/octet-stream" || hd.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.HasPrefix(hd.Get("Content-Disposition"), "attachment") || strings.ContainsAny(hd.Get("Content-Disposition"), "\n\r") || hd.Get(modeHeader) != "0755" ||
			hd.Get("Last-Modified") != "Sat, 21 Nov 2026 12:00:00 GMT" {
			t.Errorf("GET %s: %v", path, hd)
		}
		if w := do(t, h, "HEAD", path, nil); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != strconv.Itoa(len(content)) {
			t.Errorf("HEAD %s: %d %v", path, w.Code, w.Header())
		}
		if w := do(t, h, "DELETE", path, nil); w.Code != 204 || w.Body.Len() != 0 || len(svc.files) != 0 {
			t.Errorf("DELETE %s: %d %s", path, w.Code, w.Body)
		}
		wantProblem(t, do(t, h, "GET", path, nil), 404, executor.NotFound)
	}
}

func TestNoPathLeadsOutOfTheWorkFolder(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	svc.files = nil // a write would panic
	h := handlerOf(t, svc)
	for _, path := range []string{
		"", "..", "../x", "a/../../x", "a/..", "%2e%2e", "%2e%2e/x", "..%2fx", "a%2f..%2f..%2fx", "%2fetc%2fpasswd", "/etc/passwd", "a//b", "a/", "./a", ".", "a/./b",
		"%00", "a%00b", "%ff", "a%2f", "%2f", strings.Repeat("x", 256), strings.Repeat("a/", 2100) + "a", "%252e%252e/..",
	} {
		for _, method := range []string{"GET", "PUT", "DELETE", "HEAD"} {
			w := do(t, h, method, oneSession+"/files/"+path, strings.NewReader("x"))
			if method == "HEAD" {
				if w.Code != 422 {
					t.Errorf("HEAD %q: %d", path, w.Code)
				}
				continue
			}
			wantProblem(t, w, 422, executor.Invalid, "path")
		}
	}
	for _, query := range []string{"path=..", "path=../x", "path=/etc", "path=a%00", "path=a/", "path=%ff"} {
		wantProblem(t, do(t, h, "GET", oneSession+"/files?"+query, nil), 422, executor.Invalid, "path")
	}
	for _, target := range []string{"/files/..%2fx", "/files/a/../../x", "/files/%2fetc", "/files?path=../x"} {
		if w := do(t, h, "GET", oneSession+target, nil); !strings.Contains(w.Body.String(), "path: must stay inside the session folder") {
			t.Errorf("%s: %s", target, w.Body)
		}
	}
	wantProblem(t, do(t, h, "GET", oneSession+"/files?recursive=perhaps&path=..", nil), 422, executor.Invalid, "path", "recursive")
	// What is no query is not left out, as if the work folder were meant.
	for _, query := range []string{"path=%zz", "path=a;b", "recursive=true&path=%"} {
		wantProblem(t, do(t, h, "GET", oneSession+"/files?"+query, nil), 422, executor.Invalid)
	}
	// Nor does the folder lead to what lies in it.
	for _, method := range []string{"PUT", "DELETE", "POST", "PATCH"} {
		w := do(t, h, method, oneSession+"/files", strings.NewReader("x"))
		if wantProblem(t, w, 405, executor.Invalid); w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %v", method, w.Header())
		}
	}
	// Elsewhere such a path is no path at all.
	wantProblem(t, do(t, h, "GET", oneSession+"/../x", nil), 404, executor.NotFound)
}

// limited serves h on a network and returns the URL of a file.
func limited(t *testing.T, svc *stub, limit int64) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(handlerOf(t, svc, func(o *Options) { o.MaxFileBytes = limit }))
	t.Cleanup(server.Close)
	if transport, ok := server.Client().Transport.(*http.Transport); ok {
		transport.ExpectContinueTimeout = time.Minute // so that what is refused unread is not sent
	}
	return server.URL + oneSession + "/files/f", server.Client()
}

func put(t *testing.T, client *http.Client, url string, body io.Reader, length int64) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = length
	req.Header.Set("Expect", "100-continue")
	res, err := client.Do(req)
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

func TestAFileThatIsTooLargeIs413(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	url, client := limited(t, svc, 1000)
	for name, tt := range map[string]struct {
		size, said int64
		status     int
	}{
		"as large as it may be":         {1000, 1000, 200},
		"as large, and nobody said so":  {1000, -1, 200},
		"too large, and it says so":     {1001, 1001, 413},
		"too large, and nobody said so": {1001, -1, 413},
		"far too large":                 {1 << 20, 1 << 20, 413},
		"far too large, nobody said so": {1 << 20, -1, 413},
		"empty":                         {0, 0, 200},
	} {
		body := &countingReader{r: zeros(tt.size)}
		res, err := put(t, client, url, body, tt.said)
		if err != nil || res.StatusCode != tt.status {
			t.Errorf("%s: %v %v", name, res, err)
		}
		if tt.said > 1000 && body.n > 0 {
			t.Errorf("%s: %d bytes were sent for nothing", name, body.n)
		}
	}
	if len(svc.files["f"]) > 1000 {
		t.Errorf("%d bytes", len(svc.files["f"]))
	}
}

func TestAnUploadThatBreaksIsTheClients(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	h := handlerOf(t, svc)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, oneSession+"/files/f", io.MultiReader(strings.NewReader("half"), broken{}))
	r.Host, r.ContentLength = "127.0.0.1:8080", 100
	wantProblem(t, record(h, r), 400, executor.Invalid)
	if _, ok := svc.files["f"]; ok {
		t.Error("half a file is there")
	}
	wantProblem(t, do(t, h, "PUT", oneSession+"/files/f", strings.NewReader("x"), "Content-Encoding", "gzip"), 415, executor.Invalid)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// served is a Service whose files are what a test says.
type served struct {
	*stub
	read  func() (executor.File, io.ReadCloser, error)
	write func(io.Reader) (executor.File, error)
}

func (s served) ReadFile(context.Context, string, string) (executor.File, io.ReadCloser, error) {
	return s.read()
}

func (s served) WriteFile(_ context.Context, _ string, _ executor.File, r io.Reader) (executor.File, error) {
	return s.write(r)
}

func TestAFileThatChangesWhileItIsReadIsNoWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size int64
		text string
		err  error
		ok   bool
	}{
		"as said":        {4, "text", nil, true},
		"it grew":        {4, "textual", nil, true},
		"it shrank":      {4, "tex", nil, false},
		"it broke":       {4, "te", errors.New("disk"), false},
		"it broke first": {4, "", errors.New("disk"), false},
	} {
		svc := served{stub: hello().service(), read: func() (executor.File, io.ReadCloser, error) {
			var r io.Reader = strings.NewReader(tt.text)
			if tt.err != nil {
				r = io.MultiReader(r, broken{})
			}
			return executor.File{SizeBytes: tt.size}, io.NopCloser(r), nil
		}}
		server := httptest.NewServer(handlerOf(t, svc))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+oneSession+"/files/f", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := server.Client().Do(req)
		var data []byte
		if err == nil {
			data, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if tt.ok != (err == nil) || tt.ok && string(data) != "text" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		server.Close()
	}
}

// TestFilesAreStreamed sends and fetches far more than may be in memory.
func TestFilesAreStreamed(t *testing.T) { // not parallel: it looks at the heap
	const size, limit = 256 << 20, 24 << 20
	var passed looking
	svc := served{stub: hello().service(),
		write: func(r io.Reader) (executor.File, error) {
			n, err := io.Copy(&passed, r)
			return executor.File{Path: "f", SizeBytes: n}, err
		},
		read: func() (executor.File, io.ReadCloser, error) {
			return executor.File{SizeBytes: size}, io.NopCloser(zeros(size)), nil
		}}
	h := handlerOf(t, svc)
	w := httptest.NewRecorder()
	up := heapPeak(func(look func()) {
		passed.look = look
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, oneSession+"/files/f", zeros(size))
		r.Host, r.ContentLength = "127.0.0.1:8080", -1
		h.ServeHTTP(w, r)
	})
	if w.Code != 200 || decode(t, w.Body.Bytes())["size_bytes"] != float64(size) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	fetched := &countingWriter{ResponseWriter: httptest.NewRecorder()}
	down := heapPeak(func(look func()) {
		fetched.look = look
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, oneSession+"/files/f", nil)
		r.Host = "127.0.0.1:8080"
		h.ServeHTTP(fetched, r)
	})
	if fetched.n != size || up > limit || down > limit {
		t.Errorf("%d bytes, heap %d up and %d down", fetched.n, up, down)
	}
}

// countingWriter counts what is written and keeps nothing.
type countingWriter struct {
	http.ResponseWriter
	looking
}

func (c *countingWriter) Write(b []byte) (int, error) { return c.looking.Write(b) }

func TestARefusedUploadIsTakenInForAMoment(t *testing.T) {
	t.Parallel()
	svc := served{stub: hello().service(), write: func(r io.Reader) (executor.File, error) {
		_, err := io.ReadFull(r, make([]byte, 10))
		return executor.File{}, errors.Join(err, &executor.Error{Code: executor.Exhausted, Message: "the session's disk is full"})
	}}
	body := &countingReader{r: zeros(1 << 20)}
	w := do(t, handlerOf(t, svc), "PUT", oneSession+"/files/f", body)
	wantProblem(t, w, 413, executor.Exhausted)
	if body.n != 1<<20 {
		t.Errorf("%d bytes were read", body.n)
	}
}

func TestTheBoundOfAFileIsAlsoThatOfABody(t *testing.T) {
	t.Parallel()
	for _, bounds := range [][2]int64{{100, 1000}, {1000, 100}} {
		h := handlerOf(t, hello().service(), func(o *Options) { o.MaxFileBytes, o.MaxBodyBytes = bounds[0], bounds[1] })
		for size, status := range map[int]int{100: 200, 101: 413} {
			if w := do(t, h, "PUT", oneSession+"/files/f", unannounced(strings.Repeat("x", size))); w.Code != status {
				t.Errorf("bounds %d: %d bytes: status %d, want %d: %s", bounds, size, w.Code, status, w.Body)
			}
		}
	}
	small := handlerOf(t, hello().service(), func(o *Options) { o.MaxBodyBytes = 100 })
	for size, status := range map[int]int{100: 201, 101: 413} {
		if w := do(t, small, "POST", "/api/v1/sessions", unannounced("{}"+strings.Repeat(" ", size-2)), "Content-Type", "application/json"); w.Code != status {
			t.Errorf("a session's body of %d bytes: status %d, want %d: %s", size, w.Code, status, w.Body)
		}
	}
}

func TestAFileIsClosedBehindItsAnswer(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD"} {
		content := closing{strings.NewReader("text"), make(chan struct{})}
		svc := served{stub: hello().service(), read: func() (executor.File, io.ReadCloser, error) {
			return executor.File{SizeBytes: 4, Mode: 0o4755}, content, nil
		}}
		w := do(t, handlerOf(t, svc), method, oneSession+"/files/f", nil)
		if got := w.Header().Get(modeHeader); w.Code != 200 || got != "4755" {
			t.Errorf("%s: %d, the mode is %s", method, w.Code, got)
		}
		select {
		case <-content.closed:
		default:
			t.Errorf("%s: the file stays open", method)
		}
	}
}

func TestAFileWhoseReaderHasGoneIsNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	svc := served{stub: hello().service(), read: func() (executor.File, io.ReadCloser, error) {
		cancel(nil)
		return executor.File{SizeBytes: 4}, io.NopCloser(strings.NewReader("te")), nil
	}}
	if ends(handlerOf(t, svc), httptest.NewRecorder(), newGet(t, ctx, oneSession+"/files/f")) {
		t.Error("it is logged as a failure of the server")
	}
}

// sized is a Service that is told the size of a file.
type sized struct {
	served
	size *int64
}

func (s sized) WriteFile(_ context.Context, _ string, file executor.File, r io.Reader) (executor.File, error) {
	*s.size = file.SizeBytes
	return s.write(r)
}

func TestAnUploadIsWrittenAsItWasAnnounced(t *testing.T) {
	t.Parallel()
	write := func(r io.Reader) (executor.File, error) {
		_, err := io.Copy(io.Discard, r)
		return executor.File{Path: "f"}, err
	}
	size := int64(0)
	h := handlerOf(t, sized{served{stub: hello().service(), write: write}, &size})
	for body, want := range map[io.Reader]int64{strings.NewReader("text"): 4, unannounced("text"): -1} {
		if w := do(t, h, "PUT", oneSession+"/files/f", body); w.Code != 200 || size != want {
			t.Errorf("%d, the service is told %d bytes, want %d", w.Code, size, want)
		}
	}
	// A Service that takes a broken upload for a whole one has it refused here.
	h = handlerOf(t, served{stub: hello().service(), write: func(r io.Reader) (executor.File, error) {
		_, _ = io.Copy(io.Discard, r)
		return executor.File{Path: "f"}, nil
	}})
	wantProblem(t, do(t, h, "PUT", oneSession+"/files/f", io.MultiReader(strings.NewReader("half"), broken{})), 400, executor.Invalid)
	// What is refused unread stays unread.
	h = handlerOf(t, served{stub: hello().service(), write: func(io.Reader) (executor.File, error) {
		return executor.File{}, executor.Errorf(executor.Conflict, "the session is closed")
	}})
	body := &countingReader{r: zeros(1000)}
	if wantProblem(t, do(t, h, "PUT", oneSession+"/files/f", body), 409, executor.Conflict); body.n > 0 {
		t.Errorf("%d bytes were read for nothing", body.n)
	}
}
