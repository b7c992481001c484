package httpfrontend

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
)

func withTokens(t *testing.T) func(*Options) {
	t.Helper()
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	a, err := auth.New([]auth.Token{{Owner: "ann", SHA256: hash("ann-token")}, {Owner: "root", SHA256: hash("root-token"), Scopes: []executor.Scope{executor.ScopeAdmin}}})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Auth = a }
}

func TestEverythingNeedsATokenButWhatTellsNothing(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service(), withTokens(t), func(o *Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics 1\n") })
	})
	for _, r := range h.routes() {
		path := strings.NewReplacer("{id}", testID, "{path}", "b.txt").Replace(r.path)
		for _, token := range []string{"", "Bearer wrong", "Basic YTpi", "Bearer ann-tokenx"} {
			var header []string
			if token != "" {
				header = []string{"Authorization", token}
			}
			w := do(t, h, r.method, path, strings.NewReader("{}"), header...)
			if r.open {
				if w.Code != 200 {
					t.Errorf("%s needs a token: %d", path, w.Code)
				}
				continue
			}
			wantProblem(t, w, 401, executor.Unauthenticated)
			if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") || strings.Contains(w.Body.String(), "ann-token") {
				t.Errorf("%s: %v %s", path, w.Header(), w.Body)
			}
		}
	}
	for _, path := range []string{"/nowhere", "/docsmore", "/mcp_uimore"} {
		wantProblem(t, do(t, h, http.MethodGet, path, nil), 401, executor.Unauthenticated)
	}
	for _, path := range []string{"/docs/..%2fapi/v1/executions", "/docs%2f", "/api/v1/executions/../../../healthz"} {
		if w := do(t, h, http.MethodGet, path, nil); w.Code != 401 && w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	wantProblem(t, do(t, h, http.MethodGet, "/metrics", nil, "Authorization", "Bearer ann-token"), 403, executor.Denied)
	if w := do(t, h, http.MethodGet, "/metrics", nil, "Authorization", "Bearer root-token"); w.Code != 200 || w.Body.String() != "metrics 1\n" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	// With tokens a name that is not loopback is fine; another origin is not.
	if w := do(t, h, http.MethodGet, one, nil, "Authorization", "bearer ann-token", "Host", "pyexec.example", "Origin", "https://pyexec.example"); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	wantProblem(t, do(t, h, http.MethodGet, one, nil, "Authorization", "Bearer ann-token", "Origin", "https://evil.example"), 403, executor.Denied)
}

func TestThePrincipalReachesTheService(t *testing.T) {
	t.Parallel()
	svc := hello().service()
	var got executor.Principal
	calls := 0
	svc.list = func(ctx context.Context, _ executor.Filter) ([]executor.Execution, error) {
		got = executor.PrincipalFrom(ctx)
		calls++
		return []executor.Execution{hello().state()}, nil
	}
	do(t, handlerOf(t, svc, withTokens(t)), http.MethodGet, "/api/v1/executions", nil, "Authorization", "Bearer root-token")
	if got.Owner != "root" || !got.Has(executor.ScopeAdmin) || calls != 2 {
		t.Fatalf("%+v in the last of %d calls, the one that looks for another page", got, calls)
	}
	do(t, handlerOf(t, svc), http.MethodGet, "/api/v1/executions", nil, "Authorization", "Bearer root-token")
	if got.Owner != executor.LocalOwner || got.Has(executor.ScopeTrusted) || got.Has(executor.ScopeAdmin) {
		t.Fatalf("%+v", got)
	}
}

func TestWebPagesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, bind, host string
		origin           []string
		ok               bool
	}{
		{"loopback by number", "127.0.0.1:8080", "127.0.0.1:8080", nil, true},
		{"loopback by name", "127.0.0.1:8080", "localhost:8080", nil, true},
		{"loopback by a long name", "127.0.0.1:8080", "a.localhost.", nil, true},
		{"loopback in IPv6", "[::1]:8080", "[::1]:8080", nil, true},
		{"no Host at all", "127.0.0.1:8080", "", nil, true},
		{"a name that resolves to us", "127.0.0.1:8080", "evil.example:8080", nil, false},
		{"an address that is not loopback", "", "10.0.0.1", nil, false},
		{"a name that looks like ours", "", "localhost.evil.example", nil, false},
		{"another bind answers to its own name", "pyexec.example:8080", "pyexec.example", nil, true},
		{"another bind answers to an address", "0.0.0.0:8080", "10.1.2.3:8080", nil, true},
		{"another bind answers to a name without a dot", "0.0.0.0:8080", "runner:8080", nil, true},
		{"another bind refuses a foreign name", "0.0.0.0:8080", "evil.example", nil, false},
		{"our own origin", "", "localhost:8080", []string{"http://localhost:8080"}, true},
		{"our own origin behind a proxy", "pyexec.example:8080", "pyexec.example", []string{"https://pyexec.example"}, true},
		{"our own origin with its default port", "pyexec.example:8080", "pyexec.example:443", []string{"https://pyexec.example"}, true},
		{"our own origin with the default port of http", "pyexec.example:8080", "pyexec.example:80", []string{"http://pyexec.example"}, true},
		{"the default port of another scheme", "pyexec.example:8080", "pyexec.example:443", []string{"http://pyexec.example"}, false},
		{"another origin", "", "localhost:8080", []string{"http://evil.example"}, false},
		{"another port is another origin", "", "localhost:8080", []string{"http://localhost:3000"}, false},
		{"an opaque origin", "", "localhost:8080", []string{"null"}, false},
		{"two origins", "", "localhost:8080", []string{"http://localhost:8080", "http://evil.example"}, false},
		{"an origin that is none", "", "localhost:8080", []string{"%%"}, false},
		{"another origin on any bind", "0.0.0.0:8080", "pyexec.example", []string{"http://evil.example"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := handlerOf(t, hello().service(), func(o *Options) { o.Bind = tt.bind })
			header := []string{"Host", tt.host, "Content-Type", "application/json"}
			for _, o := range tt.origin {
				header = append(header, "Origin", o)
			}
			w := do(t, h, http.MethodPost, "/api/v1/exec/sync", strings.NewReader(`{"code":"x"}`), header...)
			if tt.ok && w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if !tt.ok {
				wantProblem(t, w, 403, executor.Denied)
			}
		})
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	for asked, kept := range map[string]bool{"abc-123_x.Y": true, "": false, "a b": false, "a\"b": false, strings.Repeat("a", 65): false, "é": false} {
		w := do(t, h, http.MethodGet, "/healthz", nil, "X-Request-Id", asked)
		if id := w.Header().Get("X-Request-Id"); id == "" || (id == asked) != kept {
			t.Errorf("asked for %q, got %q", asked, id)
		}
	}
}

func TestTheAccessLogTellsNoSecrets(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	h := handlerOf(t, hello().service(), withTokens(t), func(o *Options) { o.Log = slog.New(slog.NewJSONHandler(&buf, nil)) })
	w := do(t, h, http.MethodPost, "/api/v1/exec/sync", strings.NewReader(`{"code":"body-secret","env":{"A":"env-secret"}}`),
		"Authorization", "Bearer ann-token", "Content-Type", "application/json", "Cookie", "cookie-secret", "X-Request-Id", "req-1")
	line := decode(t, buf.Bytes())
	wantProblem(t, do(t, h, http.MethodPost, "/api/v1/exec/sync?token=query-secret", nil, "Authorization", "Bearer ann-token"), 422, executor.Invalid, "token")
	if line["msg"] != "http request" || line["method"] != "POST" || line["path"] != "/api/v1/exec/sync" || line["status"] != 200.0 || line["request_id"] != "req-1" || line["owner"] != "ann" || line["bytes"] != float64(w.Body.Len()) {
		t.Fatalf("%v", line)
	}
	for _, secret := range []string{"secret", "ann-token"} {
		if strings.Contains(buf.String(), secret) {
			t.Fatalf("%s in %s", secret, &buf)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	if w := do(t, h, http.MethodGet, "/healthz", nil); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"ok":true,"name":"python-executor","version":"1.2.3"}` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := do(t, h, http.MethodGet, "/readyz", nil); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"ready":true}` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	wantProblem(t, do(t, h, http.MethodGet, "/metrics", nil), 404, executor.NotFound)
	unnamed := handlerOf(t, hello().service(), func(o *Options) {
		o.Version = ""
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics 1\n") })
	})
	if w := do(t, unnamed, http.MethodGet, "/healthz", nil); !strings.Contains(w.Body.String(), `"version":"dev"`) {
		t.Errorf("a program without a version: %s", w.Body)
	}
	if w := do(t, unnamed, http.MethodGet, "/metrics", nil); w.Code != 200 || w.Body.String() != "metrics 1\n" {
		t.Errorf("metrics of a server without tokens: %d %s", w.Code, w.Body)
	}
	for err, says := range map[error]string{
		errors.New("the inside"):                                    "not ready",
		executor.Errorf(executor.Internal, "the inside"):            "not ready",
		&executor.Error{Code: executor.Unavailable}:                 "not ready",
		executor.Errorf(executor.Unavailable, "backend uv is down"): "backend uv is down",
	} {
		h := handlerOf(t, hello().service(), func(o *Options) { o.Ready = func(context.Context) error { return err } })
		p := wantProblem(t, do(t, h, http.MethodGet, "/readyz", nil), 503, executor.Unavailable)
		if p["detail"] != says {
			t.Fatal(p)
		}
	}
	m := decode(t, do(t, h, http.MethodGet, "/api/v1/backends", nil).Body.Bytes())
	info := m["backends"].([]any)[0].(map[string]any)
	if caps := info["capabilities"].(map[string]any); info["name"] != "uv" || caps["languages"] == nil || caps["python_versions"] == nil {
		t.Fatalf("%v", m)
	}
}

func TestDocsLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	page := do(t, h, http.MethodGet, "/docs", nil)
	if page.Code != 200 || strings.Contains(page.Body.String(), "://") {
		t.Fatalf("%d %s", page.Code, page.Body)
	}
	csp := page.Header().Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "script-src 'self';") || strings.Contains(csp, "http") {
		t.Fatal(csp)
	}
	for _, a := range docsAssets {
		plain := do(t, h, http.MethodGet, a.path, nil)
		packed := do(t, h, http.MethodGet, a.path, nil, "Accept-Encoding", "gzip")
		if plain.Code != 200 || plain.Header().Get("Content-Type") != a.mediaType || plain.Header().Get("Content-Encoding") != "" || plain.Body.Len() == 0 {
			t.Fatalf("%s: %d %v", a.path, plain.Code, plain.Header())
		}
		if a.gzipped {
			zr, err := gzip.NewReader(packed.Body)
			if err != nil {
				t.Fatal(err)
			}
			if data, err := io.ReadAll(zr); err != nil || !bytes.Equal(data, plain.Body.Bytes()) || packed.Header().Get("Content-Encoding") != "gzip" {
				t.Fatalf("%s: %v", a.path, err)
			}
		}
		if w := do(t, h, http.MethodGet, a.path, nil, "If-None-Match", plain.Header().Get("ETag")); w.Code != 304 {
			t.Fatalf("%s: %d", a.path, w.Code)
		}
		if strings.HasSuffix(a.path, ".css") && strings.Contains(plain.Body.String(), "url(http") || a.path == "/docs/init.js" && strings.Contains(plain.Body.String(), "://") {
			t.Errorf("%s loads from elsewhere", a.path)
		}
		if a.path != "/docs/LICENSE" && a.path != "/docs/NOTICE" && !strings.Contains(page.Body.String(), a.path) {
			t.Errorf("%s is not used", a.path)
		}
	}
}

func TestEveryAnswerHasTheHeadersThatABrowserObeys(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	for _, path := range []string{"/healthz", one, "/nowhere", "/docs"} {
		header := do(t, h, http.MethodGet, path, nil).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if csp := header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy is %q", path, csp)
		}
	}
}

func TestALongMethodIsNotRepeated(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	h := handlerOf(t, hello().service(), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&buf, nil)) })
	for size, repeated := range map[int]bool{16: true, 17: false} {
		buf.Reset()
		name := strings.Repeat("X", size)
		w := do(t, h, name, one, nil)
		wantProblem(t, w, 405, executor.Invalid)
		if strings.Contains(w.Body.String(), name) != repeated || strings.Contains(buf.String(), name) != repeated {
			t.Errorf("a method of %d letters: %s, logged as %s", size, w.Body, &buf)
		}
	}
}

func TestWhatGoesWrongInsideIsLogged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		log func(yield func(executor.Body) bool) error
		cut bool
		// says is what the log has besides the access log.
		says string
	}{
		"an error":                          {func(func(executor.Body) bool) error { return errors.New("the inside") }, false, "the inside"},
		"a panic":                           {func(func(executor.Body) bool) error { panic("the inside") }, false, "the inside"},
		"an error behind an event":          {func(y func(executor.Body) bool) error { y(executor.Queued{}); return errors.New("the inside") }, true, "the inside"},
		"a panic behind an event":           {func(y func(executor.Body) bool) error { y(executor.Queued{}); panic("the inside") }, true, "the inside"},
		"a failure that the client is told": {func(func(executor.Body) bool) error { return executor.Errorf(executor.Purged, "gone") }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var buf bytes.Buffer
			svc := hello().service()
			svc.events = func(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
				return func(yield func(executor.Event, error) bool) {
					if err := tt.log(func(b executor.Body) bool { return yield(executor.Event{Seq: 1, Body: b}, nil) }); err != nil {
						yield(executor.Event{}, err)
					}
				}
			}
			h := handlerOf(t, svc, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&buf, nil)) })
			r := newGet(t, t.Context(), one+"/events")
			r.Header.Set("X-Request-Id", "req-1")
			if wasCut := ends(h, httptest.NewRecorder(), r); wasCut != tt.cut {
				t.Errorf("the connection was cut: %t, want %t", wasCut, tt.cut)
			}
			var failure, access string
			for line := range strings.Lines(buf.String()) {
				if strings.Contains(line, "level=ERROR") {
					failure += line
				} else {
					access += line
				}
			}
			if tt.says == "" && failure != "" || !strings.Contains(failure, tt.says) || tt.says != "" && !strings.Contains(failure, "request_id=req-1") {
				t.Errorf("the log has %q, want %q", failure, tt.says)
			}
			if strings.Count(access, "\n") != 1 || strings.Contains(access, "cut=true") != tt.cut {
				t.Errorf("the access log is %q, want one line, cut: %t", access, tt.cut)
			}
		})
	}
}
