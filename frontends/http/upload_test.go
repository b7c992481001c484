package httpfrontend

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestBrokenRequests(t *testing.T) {
	t.Parallel()
	archive := string(tarOf("main.py", "x"))
	meta, tarPart := part{"metadata", "{}", nil}, part{"tar", archive, nil}
	good, contentType := form(meta, tarPart)
	multi := func(parts ...part) func() (string, string) {
		return func() (string, string) { b, c := form(parts...); return string(b), c }
	}
	raw := func(contentType, body string) func() (string, string) {
		return func() (string, string) { return body, contentType }
	}
	compressed := func(name, magic string, header ...string) part {
		p := part{name, magic + strings.Repeat("x", 600), map[string][]string{}}
		for i := 0; i < len(header); i += 2 {
			p.header.Set(header[i], header[i+1])
		}
		return p
	}
	for _, tt := range []struct {
		name   string
		body   func() (string, string)
		status int
		code   executor.Code
		fields []string
	}{
		{"a body that is cut", raw(contentType, string(good[:len(good)-30])), 400, executor.Invalid, nil},
		{"a body that is cut in the tar", raw(contentType, string(good[:len(good)-600])), 400, executor.Invalid, nil},
		{"no multipart at all", raw(contentType, "hello"), 400, executor.Invalid, nil},
		{"an empty multipart", raw(contentType, ""), 400, executor.Invalid, nil},
		{"no metadata", multi(tarPart), 400, executor.Invalid, []string{"metadata"}},
		{"no tar and no code", multi(meta), 400, executor.Invalid, []string{"tar"}},
		{"a part without a name", multi(part{"", "x", nil}), 422, executor.Invalid, []string{"(no name)"}},
		{"metadata that comes twice", multi(meta, meta, tarPart), 422, executor.Invalid, []string{"metadata"}},
		{"a tar that comes twice", multi(meta, tarPart, tarPart), 422, executor.Invalid, []string{"tar"}},
		{"stdin in two places", multi(part{"metadata", `{"stdin":""}`, nil}, tarPart, part{"stdin", "x", nil}), 422, executor.Invalid, []string{"stdin"}},
		{"stdin in two places, the part first", multi(part{"stdin", "x", nil}, part{"metadata", `{"stdin":""}`, nil}, tarPart), 422, executor.Invalid, []string{"stdin"}},
		{"unknown metadata", multi(part{"metadata", `{"x":1,"config":{"y":2}}`, nil}, tarPart), 422, executor.Invalid, []string{"x", "config.y"}},
		{"metadata that is too large", multi(part{"metadata", `{"code":"` + strings.Repeat("x", metadataMax) + `"}`, nil}), 413, executor.Exhausted, nil},
		{"a body that is too large", multi(meta, part{"tar", archive + strings.Repeat("\x00", 12<<20), nil}), 413, executor.Exhausted, nil},
		{"gzip", multi(meta, compressed("tar", "\x1f\x8b\x08")), 415, executor.Invalid, []string{"tar"}},
		{"bzip2", multi(meta, compressed("tar", "BZh9")), 415, executor.Invalid, []string{"tar"}},
		{"xz", multi(meta, compressed("tar", "\xfd7zXZ\x00")), 415, executor.Invalid, []string{"tar"}},
		{"zstd before the metadata", multi(compressed("tar", "\x28\xb5\x2f\xfd"), meta), 415, executor.Invalid, []string{"tar"}},
		{"zip", multi(meta, compressed("tar", "PK\x03\x04")), 415, executor.Invalid, []string{"tar"}},
		{"lzma, which has no magic", multi(meta, compressed("tar", "\x5d\x00\x00\x80\x00"+strings.Repeat("\xff", 8))), 415, executor.Invalid, []string{"tar"}},
		{"lzma of a known size", multi(meta, compressed("tar", "\x5d\x00\x00\x80\x00\x00\x28\x00\x00\x00\x00\x00\x00")), 415, executor.Invalid, []string{"tar"}},
		{"lzop", multi(meta, compressed("tar", "\x89LZO\x00\r\n\x1a\n")), 415, executor.Invalid, []string{"tar"}},
		{"a few bytes of gzip", multi(meta, part{"tar", "\x1f\x8b", nil}), 415, executor.Invalid, []string{"tar"}},
		{"a part that says it is gzip", multi(meta, compressed("tar", "x", "Content-Type", "application/gzip")), 415, executor.Invalid, []string{"tar"}},
		{"a part that is encoded", multi(meta, compressed("tar", "x", "Content-Encoding", "gzip")), 415, executor.Invalid, []string{"tar"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svc := hello().service()
			svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
				return executor.Execution{}, consume(in)
			}
			for _, target := range []string{"/api/v1/exec/sync", "/api/v1/exec/async"} {
				body, contentType := tt.body()
				h := handlerOf(t, svc, func(o *Options) { o.MaxBodyBytes = 10 << 20 })
				// A body without a declared length: the bound holds while it is read.
				w := do(t, h, http.MethodPost, target, io.MultiReader(strings.NewReader(body)), "Content-Type", contentType)
				wantProblem(t, w, tt.status, tt.code, tt.fields...)
			}
		})
	}
}

func TestATarMayBeginLikeACompressedFile(t *testing.T) {
	t.Parallel()
	svc, got := taking(hello())
	archive := string(tarOf("BZhello.py", "x"))
	post(t, svc, got, archive)
	// Of old, a header had no magic.
	post(t, svc, got, "]"+strings.Repeat("\x00", 99)+archive[100:257]+strings.Repeat("\x00", 8)+archive[265:])
}

func TestATarMaySayThatItIsNotEncoded(t *testing.T) {
	t.Parallel()
	svc, got := taking(hello())
	post(t, svc, got, string(tarOf("main.py", "x")), "Content-Encoding", "Identity", "Content-Type", "application/x-tar")
}

// post sends archive, with headers of its part, and expects it to come whole.
func post(t *testing.T, svc *stub, got *taken, archive string, header ...string) {
	t.Helper()
	tarPart := part{"tar", archive, map[string][]string{}}
	for i := 0; i < len(header); i += 2 {
		tarPart.header.Set(header[i], header[i+1])
	}
	if w := postForm(t, handlerOf(t, svc), "/api/v1/exec/sync", part{"metadata", "{}", nil}, tarPart); w.Code != 200 || got.workspace != archive {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func TestADeclaredLengthIsRefusedUnread(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service(), func(o *Options) { o.MaxBodyBytes = 100 })
	body := &countingReader{r: bytes.NewReader(make([]byte, 101))}
	r := newPost(t, "/api/v1/exec/sync", body, "multipart/form-data; boundary=b")
	r.ContentLength = 101
	wantProblem(t, record(h, r), 413, executor.Exhausted)
	r = newPost(t, "/api/v1/exec/sync", body, "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	wantProblem(t, record(h, r), 415, executor.Invalid)
	if body.n != 0 {
		t.Fatalf("%d bytes were read", body.n)
	}
	for _, none := range []string{"", "identity", "Identity"} {
		if w := do(t, h, http.MethodPost, "/api/v1/exec/sync", strings.NewReader(`{"code":"x"}`), "Content-Type", "application/json", "Content-Encoding", none); w.Code != 200 {
			t.Errorf("Content-Encoding %q: %d %s", none, w.Code, w.Body)
		}
	}
}

func TestFullIsRefusedUnread(t *testing.T) {
	t.Parallel()
	full := func(context.Context) error { return executor.Errorf(executor.Exhausted, "the queue is full") }
	body := &countingReader{r: bytes.NewReader(make([]byte, 101))}
	r := newPost(t, "/api/v1/exec/sync", body, "multipart/form-data; boundary=b")
	wantProblem(t, record(handlerOf(t, admitting{hello().service(), full}), r), 429, executor.Exhausted)
	if body.n != 0 {
		t.Fatalf("%d bytes were read", body.n)
	}
}

func TestARefusedSubmitLeavesTheTarUnread(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	svc.submit = func(context.Context, executor.Spec, executor.Input) (executor.Execution, error) {
		return executor.Execution{}, &executor.Error{Code: executor.Exhausted, Message: "full"}
	}
	data, contentType := form(part{"metadata", "{}", nil}, part{"tar", strings.Repeat("x", 8<<20), nil})
	body := &countingReader{r: bytes.NewReader(data)}
	wantProblem(t, record(handlerOf(t, svc), newPost(t, "/api/v1/exec/sync", body, contentType)), 429, executor.Exhausted)
	if body.n > 1<<20 {
		t.Fatalf("%d bytes were read", body.n)
	}
}

// deadlineWriter remembers the read deadline.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	set      int
}

func (d *deadlineWriter) SetReadDeadline(t time.Time) error {
	d.deadline = t
	d.set++
	return nil
}

func TestTheDeadlineForSilenceEndsWithTheBody(t *testing.T) {
	t.Parallel()
	// net/http reads on behind a body's end; a deadline that is left there would kill what runs longer.
	large := part{"tar", strings.Repeat("x", 1<<20), nil}
	for name, parts := range map[string][]part{
		"small":        {{"metadata", `{"code":"x"}`, nil}},
		"streamed":     {{"metadata", "{}", nil}, large},
		"spooled":      {large, {"metadata", "{}", nil}},
		"stdin behind": {{"metadata", "{}", nil}, large, {"stdin", "x", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
			svc := hello().service()
			svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
				err := consume(executor.Input{Workspace: in.Workspace})
				if w.set < 2 || !w.deadline.IsZero() {
					t.Errorf("set %d times, now %v", w.set, w.deadline)
				}
				return hello().state(), err
			}
			body, contentType := form(parts...)
			handlerOf(t, svc).ServeHTTP(w, newPost(t, "/api/v1/exec/sync", bytes.NewReader(body), contentType))
			if w.Code != 200 || !w.deadline.IsZero() {
				t.Fatalf("%d %s, deadline %v", w.Code, w.Body, w.deadline)
			}
		})
	}
}

func TestTheBoundOfTheMetadataPart(t *testing.T) {
	t.Parallel()
	for size, status := range map[int]int{metadataMax: 200, metadataMax + 1: 413} {
		if w := postForm(t, handlerOf(t, hello().service()), "/api/v1/exec/sync", part{"metadata", padded(size), nil}); w.Code != status {
			t.Errorf("%d bytes: status %d, want %d", size, w.Code, status)
		}
	}
	for size, status := range map[int]int{metadataMax + 1: 422, jsonMax + 1: 413} { // 422: there are no cases
		if w := postForm(t, handlerOf(t, hello().service()), "/api/v1/exec/batch", part{"metadata", padded(size), nil}); w.Code != status {
			t.Errorf("%d bytes for a batch: status %d, want %d", size, w.Code, status)
		}
	}
}

func TestWhatFollowsTheLastBoundaryIsBounded(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{"whole": tarOf("main.py", "x"), "streamed": tarOf("main.py", strings.Repeat("x", 2*tarAhead))} {
		body, contentType := form(part{"metadata", "{}", nil}, part{"tar", string(archive), nil})
		h := handlerOf(t, hello().service(), func(o *Options) { o.MaxBodyBytes = int64(len(body)) + 1<<20 })
		for more, status := range map[int64]int{1 << 20: 200, 1<<20 + 1: 413} {
			w := do(t, h, http.MethodPost, "/api/v1/exec/sync", io.MultiReader(bytes.NewReader(body), zeros(more)), "Content-Type", contentType)
			if w.Code != status {
				t.Errorf("a tar that is %s, %d bytes behind the bound: status %d, want %d: %s", name, more-1<<20, w.Code, status, w.Body)
			}
		}
	}
}

func TestOnlyASmallTarIsKnownWhole(t *testing.T) {
	t.Parallel()
	for size, whole := range map[int]bool{10: true, 2 * tarAhead: false} {
		svc := hello().service()
		svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
			if w := in.Workspace; w.Replayable != whole || (w.Digest != "") != whole || (w.SizeBytes >= 0) != whole || (in.Stdin == nil) != whole {
				t.Errorf("a tar with %d bytes in it: %+v, stdin %v", size, w, in.Stdin)
			}
			return hello().state(), consume(in)
		}
		if w := postForm(t, handlerOf(t, svc), "/api/v1/exec/sync", part{"metadata", "{}", nil}, part{"tar", string(tarOf("data", strings.Repeat("d", size))), nil}); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

func TestStdinOfTheMetadataIsKeptWhereATarIsStreamed(t *testing.T) {
	t.Parallel()
	svc, got := taking(hello())
	archive := string(tarOf("data", strings.Repeat("d", 2*tarAhead)))
	if w := postForm(t, handlerOf(t, svc), "/api/v1/exec/sync", part{"metadata", `{"stdin":"typed"}`, nil}, part{"tar", archive, nil}); w.Code != 200 || got.stdin != "typed" || got.workspace != archive {
		t.Errorf("%d %s, stdin %q", w.Code, w.Body, got.stdin)
	}
}

func TestABodyThatTurnsOutTooLargeWhileItsProgramRuns(t *testing.T) {
	t.Parallel()
	svc, _, killed := endless(false)
	archive := string(tarOf("data", strings.Repeat("d", 1<<20)))
	body, contentType := form(part{"metadata", "{}", nil}, part{"tar", archive, nil})
	h := handlerOf(t, svc, func(o *Options) { o.MaxBodyBytes = 1 << 20 })
	w := do(t, h, http.MethodPost, "/api/v1/exec/sync", io.MultiReader(bytes.NewReader(body)), "Content-Type", contentType)
	if p := wantProblem(t, w, 413, executor.Exhausted); p["execution_id"] != testID {
		t.Errorf("%v", p)
	}
	awaittest.Closed(t, "the Execution is killed", killed)
}

func TestARunningProgramHoldsNothingOfItsSubmit(t *testing.T) {
	t.Parallel()
	r := newRun().add(executor.Queued{}, executor.Started{})
	svc := r.service()
	var held weak.Pointer[executor.Source]
	svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
		held = weak.Make(in.Workspace)
		return r.state(), nil
	}
	inner := svc.events
	svc.events = func(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
		for range 5 {
			runtime.GC()
		}
		if held.Value() != nil {
			t.Error("the files are still in memory")
		}
		r.add(done(0))
		return inner(ctx, id, after)
	}
	if w := postJSON(t, handlerOf(t, svc), "/api/v1/exec/sync", `{"files":{"main.py":"x"}}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAScriptIsAProgramOfAJSONBody(t *testing.T) {
	t.Parallel()
	svc, got := taking(hello())
	if w := postJSON(t, handlerOf(t, svc), "/api/v1/exec/sync", `{"script":"/srv/run.sh"}`); w.Code != 200 || got.spec.Script != "/srv/run.sh" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
