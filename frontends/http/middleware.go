package httpfrontend

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

type requestIDKey struct{}

// requestID returns the id of the request that ctx belongs to.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// chooseRequestID takes the client's id if it is harmless in a log and a header, and makes one otherwise.
func chooseRequestID(asked string) string {
	ok := len(asked) >= 1 && len(asked) <= 64
	for i := 0; ok && i < len(asked); i++ {
		c := asked[i]
		ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_' || c == '.'
	}
	if ok {
		return asked
	}
	return strings.ToLower(rand.Text())
}

// ServeHTTP implements http.Handler: what every request passes, from the outside in.
func (f *frontend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	id := chooseRequestID(r.Header.Get("X-Request-Id"))
	ctx := context.WithValue(r.Context(), requestIDKey{}, id)
	h := w.Header()
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cache-Control", "no-store")
	rec := &recorder{ResponseWriter: w, idle: f.writeIdle}
	rec.disarm()
	defer rec.release()
	owner := ""
	defer func() {
		p := recover()
		aborted := p == any(http.ErrAbortHandler)
		if p != nil && !aborted {
			f.log.ErrorContext(ctx, "request panicked", "request_id", id, "panic", p, "stack", string(debug.Stack()))
			if rec.status == 0 {
				f.writeProblem(rec, r.WithContext(ctx), executor.Errorf(executor.Internal, "panic"))
				p = nil
			}
		}
		f.access(ctx, r, id, owner, rec, began, p != nil)
		if p != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	if err := f.guard(r); err != nil {
		f.writeProblem(rec, r.WithContext(ctx), err)
		return
	}
	if !open(r.URL.EscapedPath()) {
		p, err := f.authenticator.Authenticate(r.Header.Get("Authorization"))
		if err != nil {
			f.writeProblem(rec, r.WithContext(ctx), err)
			return
		}
		owner = p.Owner
		ctx = executor.WithPrincipal(ctx, p)
	}
	f.route(rec, r.WithContext(ctx))
}

// access writes one line per request: no query, no header, no body.
func (f *frontend) access(ctx context.Context, r *http.Request, id, owner string, rec *recorder, began time.Time, cut bool) {
	f.log.InfoContext(ctx, "http request", "method", method(r.Method), "path", r.URL.Path, "status", rec.status, "bytes", rec.bytes,
		"duration", time.Since(began), "request_id", id, "owner", owner, "remote", r.RemoteAddr, "cut", cut)
}

// open reports whether a path needs no token. Everything else does, known or not.
func open(p string) bool {
	switch p {
	case "/healthz", "/readyz", "/openapi.json", "/docs", "/mcp_ui":
		return true
	}
	return strings.HasPrefix(p, "/docs/") || strings.HasPrefix(p, "/mcp_ui/")
}

// guard refuses what a web page of another origin could send, with or without a name that resolves to us.
func (f *frontend) guard(r *http.Request) error {
	if err := f.authenticator.CheckHost(r.Host, f.opts.Bind); err != nil {
		return err
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	if u, err := url.Parse(origins[0]); len(origins) == 1 && err == nil && u.Host != "" &&
		strings.EqualFold(withoutDefaultPort(u.Host, u.Scheme), withoutDefaultPort(r.Host, u.Scheme)) {
		return nil
	}
	return executor.Errorf(executor.Denied, "requests from another origin are refused")
}

// withoutDefaultPort makes "example.com:443" and "example.com" comparable. Behind a proxy that ends TLS our own scheme
// tells nothing, so the Origin's counts for both.
func withoutDefaultPort(host, scheme string) string {
	switch scheme {
	case "http":
		return strings.TrimSuffix(host, ":80")
	case "https":
		return strings.TrimSuffix(host, ":443")
	}
	return host
}

// route hands the request to its operation. What the mux would answer itself (404, 405, redirects to a cleaned path) is
// answered here, as a problem.
func (f *frontend) route(w http.ResponseWriter, r *http.Request) {
	p := r.URL.EscapedPath()
	if clean := path.Clean("/" + p); clean != p && clean+"/" != p {
		if ofASessionsFile(p) {
			f.writeProblem(w, r, errFilePath())
			return
		}
		f.writeProblem(w, r, executor.Errorf(executor.NotFound, "no such path"))
		return
	}
	if f.serves(r, p) {
		f.mux.ServeHTTP(w, r)
		return
	}
	var allowed []string
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut} {
		other := r.WithContext(r.Context()) // a copy
		if other.Method = m; f.serves(other, p) {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) > 0 {
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		f.writeProblem(w, r, refuse(http.StatusMethodNotAllowed, executor.Invalid, "%s is not possible here, but %s is", method(r.Method), list))
		return
	}
	f.writeProblem(w, r, executor.Errorf(executor.NotFound, "no such path"))
}

// serves reports whether an operation is at this path p. What the mux would lead to, a slash further, is another path.
func (f *frontend) serves(r *http.Request, p string) bool {
	_, pattern := f.mux.Handler(r)
	return pattern != "" && strings.Count(p, "/") >= strings.Count(pattern, "/")
}

// ofASessionsFile reports whether a path that would be cleaned was meant for a file of a Session: what is wrong with it is
// its author's to know.
func ofASessionsFile(p string) bool {
	rest, ok := strings.CutPrefix(p, "/api/v1/sessions/")
	_, rest, inside := strings.Cut(rest, "/")
	return ok && inside && strings.HasPrefix(rest, "files/")
}

// method is a request's method as far as it is worth repeating.
func method(m string) string {
	if len(m) > 16 {
		return "this method"
	}
	return m
}
