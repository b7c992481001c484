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

// apiRoot is where the operations of the API are.
const apiRoot = "/api/v1"

type requestIDKey struct{}

// requestID returns the id of the request that ctx belongs to.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// chooseRequestID returns the client's id if it is safe in a log and in a header, else a new one.
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

// ServeHTTP implements http.Handler. Every request passes through it: id, headers, recovery, log, origin, token, route.
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

// access logs one line per request, without query, headers and body.
func (f *frontend) access(ctx context.Context, r *http.Request, id, owner string, rec *recorder, began time.Time, cut bool) {
	f.log.InfoContext(ctx, "http request", "method", method(r.Method), "path", r.URL.Path, "status", rec.status, "bytes", rec.bytes,
		"duration", time.Since(began), "request_id", id, "owner", owner, "remote", r.RemoteAddr, "cut", cut)
}

// open reports whether a path needs no token. All other paths need one, even unknown paths.
func open(p string) bool {
	switch p {
	case "/", "/healthz", "/readyz", "/openapi.json", "/docs", "/mcp_ui":
		return true
	}
	return strings.HasPrefix(p, "/docs/") || strings.HasPrefix(p, "/mcp_ui/")
}

// guard refuses requests that a web page of another origin could send, including pages whose name resolves to this server.
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
	return executor.Errorf(executor.Denied, "Origin: must be that of this server")
}

// withoutDefaultPort makes "example.com:443" and "example.com" comparable. Behind a proxy that terminates TLS the server cannot
// know the client's scheme, so the scheme of the Origin is used for both.
func withoutDefaultPort(host, scheme string) string {
	switch scheme {
	case "http":
		return strings.TrimSuffix(host, ":80")
	case "https":
		return strings.TrimSuffix(host, ":443")
	}
	return host
}

// route passes the request to its operation. route itself answers with a problem where the mux would answer with 404, 405 or a
// redirect to a cleaned path.
func (f *frontend) route(w http.ResponseWriter, r *http.Request) {
	p := r.URL.EscapedPath()
	if clean := path.Clean("/" + p); clean != p && clean+"/" != p {
		if isSessionFile(p) {
			_, name, _ := strings.Cut(p, "/files/")
			f.writeProblem(w, r, errFilePath(name))
			return
		}
		f.writeProblem(w, r, f.noSuchPath(r))
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
		f.writeProblem(w, r, refuse(http.StatusMethodNotAllowed, executor.Invalid, "method: must be one of %s (got %s)", list, method(r.Method)))
		return
	}
	f.writeProblem(w, r, f.noSuchPath(r))
}

// serves reports whether an operation has the path p. A pattern to which the mux would redirect, with one more slash, is another
// path.
func (f *frontend) serves(r *http.Request, p string) bool {
	_, pattern := f.mux.Handler(r)
	return pattern != "" && strings.Count(p, "/") >= strings.Count(pattern, "/")
}

// isSessionFile reports whether an unclean path names a file of a Session. Its error then names the problem of the file's path.
func isSessionFile(p string) bool {
	rest, ok := strings.CutPrefix(p, "/api/v1/sessions/")
	_, rest, inside := strings.Cut(rest, "/")
	return ok && inside && strings.HasPrefix(rest, "files/")
}

// method returns m for a message or a log, or a placeholder if m is too long.
func method(m string) string {
	if len(m) > 16 {
		return "this method"
	}
	return m
}
