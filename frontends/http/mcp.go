package httpfrontend

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// MCP says where the MCP frontend is that stands behind this one.
type MCP struct {
	// Path at which it is mounted, "/mcp".
	Path string
	// Socket returns the unix socket of its present process; empty while there is none.
	Socket func() string
	// PrincipalHeader is the header in which it takes the caller from us, as JSON.
	PrincipalHeader string
	// MaxBodyBytes bounds one message. Default 16 MiB.
	MaxBodyBytes int64
}

// mcpFiles are the page of /mcp_ui.
//
//go:embed mcpui
var mcpFiles embed.FS

var mcpAssets = []asset{
	{"/mcp_ui", "mcpui/index.html", "text/html; charset=utf-8", false},
	{"/mcp_ui/page.js", "mcpui/page.js", "text/javascript; charset=utf-8", false},
	{"/mcp_ui/page.css", "mcpui/page.css", "text/css; charset=utf-8", false},
}

// mountMCP puts the MCP frontend and its page on the mux: one port, one origin, one list of tokens.
func (f *frontend) mountMCP() error {
	if f.opts.MCP == nil {
		return nil
	}
	f.mux.Handle(f.opts.MCP.Path, f.mcpProxy(*f.opts.MCP))
	return f.mount(mcpFiles, mcpAssets)
}

type socketKey struct{}

// mcpProxy passes a request that was checked on to the plugin's socket, with the caller's name in place of the token.
//
// A message is read whole before it is passed on. If it were passed on while it comes, http.Transport would look behind its
// end once more when it has sent it; the plugin's first event may be back by then, net/http closes a request's body when the
// answer begins, and the Transport takes the closed body for a failed request and drops the connection with the answer on it.
func (f *frontend) mcpProxy(m MCP) http.Handler {
	limit := m.MaxBodyBytes
	if limit <= 0 {
		limit = 16 << 20
	}
	proxy := &httputil.ReverseProxy{
		ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelWarn),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "mcp"})
			r.Out.Host = r.In.Host
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("Origin")
			r.Out.Header.Del("Cookie")
			principal, err := json.Marshal(executor.PrincipalFrom(r.In.Context()))
			if err != nil {
				principal = nil // then the plugin refuses
			}
			r.Out.Header.Set(m.PrincipalHeader, string(principal))
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				socket, _ := ctx.Value(socketKey{}).(string)
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
			DisableKeepAlives: true, // the socket is another after a restart, and costs nothing to open
		},
		FlushInterval: -1, // events go out as they come
		ModifyResponse: func(r *http.Response) error {
			// Ours are set already.
			r.Header.Del("Cache-Control")
			r.Header.Del("X-Content-Type-Options")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f.log.WarnContext(r.Context(), "mcp", "request_id", requestID(r.Context()), "error", err)
			f.writeProblem(w, r, executor.Errorf(executor.Unavailable, "the MCP frontend does not answer"))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message, release, err := f.wholeMessage(w, r, limit)
		if err != nil {
			f.writeProblem(w, r, err)
			return
		}
		r = r.WithContext(r.Context())
		r.Body, r.ContentLength, r.TransferEncoding = &sentOnce{bytes.NewReader(message), release}, int64(len(message)), nil
		socket := m.Socket()
		if socket == "" {
			f.writeProblem(w, r, executor.Errorf(executor.Unavailable, "the MCP frontend is being restarted"))
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), socketKey{}, socket)))
	})
}

// sentOnce is a message on its way to the plugin. Its memory is free when it was sent: the call may take long.
type sentOnce struct {
	*bytes.Reader
	release func()
}

// Close implements io.Closer.
func (s *sentOnce) Close() error {
	s.release()
	return nil
}

// wholeMessage reads a request's body. release gives its memory back.
func (f *frontend) wholeMessage(w http.ResponseWriter, r *http.Request, limit int64) (message []byte, release func(), err error) {
	if r.ContentLength > limit {
		// Many clients read no answer before they have sent everything. Not every ResponseWriter has deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(settleTime))
		_, _ = io.CopyN(io.Discard, r.Body, settleBytes) // it is refused anyway
	}
	b, err := f.openBody(w, r, limit)
	if err != nil {
		return nil, nil, err
	}
	if message, err = b.whole(b, b.announced); err != nil {
		return nil, nil, bodyError("the message", err)
	}
	return message, b.share.Release, nil
}
