package httpfrontend

import (
	"context"
	"embed"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

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
func (f *frontend) mcpProxy(m MCP) http.Handler {
	proxy := &httputil.ReverseProxy{
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
		socket := m.Socket()
		if socket == "" {
			f.writeProblem(w, r, executor.Errorf(executor.Unavailable, "the MCP frontend is being restarted"))
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), socketKey{}, socket)))
	})
}
