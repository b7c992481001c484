package httpfrontend

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// mcpPatience is the default of MCP.Patience.
	mcpPatience = 5 * time.Second
	// mcpRetryAfter is the hint while there is no process of the MCP frontend.
	mcpRetryAfter = 2 * time.Second
)

// MCP describes the MCP frontend to which this frontend forwards requests.
type MCP struct {
	// Path is the path of its endpoint, "/mcp".
	Path string
	// Socket returns the unix socket of its present process. While there is none, it waits for one until ctx ends, and then
	// returns "".
	Socket func(ctx context.Context) string
	// Patience is how long a request waits for Socket. Default 5 s.
	Patience time.Duration
	// PrincipalHeader is the header that carries the caller's Principal to it, as JSON.
	PrincipalHeader string
	// MaxBodyBytes bounds one message. Default 16 MiB.
	MaxBodyBytes int64
}

// mcpFiles has the files of the page /mcp_ui.
//
//go:embed mcpui
var mcpFiles embed.FS

// mcpAssets returns the page /mcp_ui, which proposes path as the endpoint.
func mcpAssets(path string) []asset {
	proposes := func(page []byte) []byte {
		return bytes.Replace(page, []byte(`value="/mcp"`), []byte(`value="`+html.EscapeString(path)+`"`), 1)
	}
	return []asset{
		{"/mcp_ui", "mcpui/index.html", "text/html; charset=utf-8", false, proposes},
		{"/mcp_ui/page.js", "mcpui/page.js", "text/javascript; charset=utf-8", false, nil},
		{"/mcp_ui/page.css", "mcpui/page.css", "text/css; charset=utf-8", false, nil},
	}
}

// mountMCP adds the MCP endpoint and its page to the mux. They share the port, the origin and the tokens of the HTTP API.
func (f *frontend) mountMCP() error {
	if f.opts.MCP == nil {
		return nil
	}
	f.mux.Handle(f.opts.MCP.Path, f.mcpProxy(*f.opts.MCP))
	return f.mount(mcpFiles, mcpAssets(f.opts.MCP.Path))
}

type socketKey struct{}

// mcpProxy forwards a checked request to the plugin's socket, with the caller's Principal in place of the token.
//
// A message is read completely before it is forwarded. If it were streamed, http.Transport would read once more at its end. By
// then the plugin's first event may have arrived, and net/http closes a request's body when the answer begins. The Transport
// would take the closed body for a failed request and drop the connection, with the answer.
func (f *frontend) mcpProxy(m MCP) http.Handler {
	limit := m.MaxBodyBytes
	if limit <= 0 {
		limit = 16 << 20
	}
	patience := cmp.Or(m.Patience, mcpPatience)
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
				principal = nil // the plugin then refuses the request
			}
			r.Out.Header.Set(m.PrincipalHeader, string(principal))
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				socket, _ := ctx.Value(socketKey{}).(string)
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
			DisableKeepAlives: true, // a restart changes the socket, and a new connection costs little
		},
		FlushInterval: -1, // forwards each event immediately
		ModifyResponse: func(r *http.Response) error {
			// ServeHTTP has set these headers already.
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
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(&sentOnce{bytes.NewReader(message), release}), int64(len(message)), nil
		waiting, done := context.WithTimeout(r.Context(), patience)
		socket := m.Socket(waiting)
		done()
		if socket == "" {
			f.writeProblem(w, r, &executor.Error{Code: executor.Unavailable, Message: "the MCP frontend is being started", RetryAfter: mcpRetryAfter})
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), socketKey{}, socket)))
	})
}

// sentOnce is the body of a request to the plugin. It releases its memory when all of it was read. The call may take long, and
// ReverseProxy does not close the body before the call has ended.
type sentOnce struct {
	message *bytes.Reader
	release func()
}

// Read implements io.Reader.
func (s *sentOnce) Read(p []byte) (int, error) {
	n, err := s.message.Read(p)
	if s.message.Len() == 0 {
		s.message.Reset(nil)
		s.release()
	}
	return n, err
}

// wholeMessage reads a request's body into memory. release returns the memory to the budget.
func (f *frontend) wholeMessage(w http.ResponseWriter, r *http.Request, limit int64) (message []byte, release func(), err error) {
	if r.ContentLength > limit {
		// Many clients send everything before they read an answer. Not every ResponseWriter has deadlines.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(settleTime))
		_, _ = io.CopyN(io.Discard, r.Body, settleBytes) // openBody refuses the request in any case
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
