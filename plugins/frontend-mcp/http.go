package mcpfrontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/buffered"
	"github.com/python-executor/python-executor/core/executor"
)

// PrincipalHeader is the header that names the caller on the unix socket, as the JSON of an executor.Principal. Other
// listeners ignore it.
const PrincipalHeader = "Pyexec-Principal"

const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 60 * time.Second
	heartbeatEvery = 15 * time.Second
	httpDrain      = 10 * time.Second
	// settleTime and settleBytes bound how much of a refused message is read.
	settleTime  = 5 * time.Second
	settleBytes = 64 << 20
)

// endpoint serves streamable HTTP. It checks each request before mcp-go's handler gets the request.
type endpoint struct {
	config        HTTP
	authenticator *auth.Authenticator
	sessions      *mcpSessions
	buffers       *buffered.Budget
	inner         http.Handler
	// socket reports whether the listener is the unix socket. PrincipalHeader then names the caller, and the HTTP frontend has
	// checked Host, Origin and token.
	socket bool
	log    *slog.Logger
}

// newInner returns mcp-go's handler over s, which uses sessions. Call it once per server: two handlers would share the
// server's sessions.
func newInner(s *server.MCPServer, sessions *mcpSessions, log *slog.Logger) *server.StreamableHTTPServer {
	return server.NewStreamableHTTPServer(s,
		server.WithSessionIdManagerResolver(sessions),
		server.WithSessionIdleTTL(sessions.idle),
		server.WithHeartbeatInterval(heartbeatEvery),
		server.WithDisableLocalhostProtection(true), // endpoint.admit checks Host and Origin
		server.WithStreamableHTTPLogger(log),
	)
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if r.URL.Path != e.config.Path {
		http.NotFound(w, r)
		return
	}
	principal, status, err := e.admit(w, r)
	if err != nil {
		refuse(w, status, err.Error())
		return
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	ctx := executor.WithPrincipal(r.Context(), principal)
	session, modern := r.Header.Get(server.HeaderKeySessionID), mcp.IsModernProtocol(r.Header.Get(server.HeaderKeyProtocolVersion))
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet, http.MethodDelete:
		if !modern { // mcp-go refuses these methods of modern clients
			// mcp-go does not check the session: it would keep a stream open for ever without one, or for another owner's.
			if status, message := e.ownSession(session, principal); status != 0 {
				refuse(w, status, message)
				return
			}
		}
		e.inner.ServeHTTP(w, r.WithContext(ctx))
		return
	default:
		h.Set("Allow", "GET, POST, DELETE, OPTIONS")
		refuse(w, http.StatusMethodNotAllowed, "method must be one of GET, POST, DELETE, OPTIONS")
		return
	}
	share := e.buffers.Open(principal.Owner)
	defer share.Release()
	body, status, err := e.body(w, r, share)
	if err != nil {
		refuse(w, status, err.Error())
		return
	}
	r = r.WithContext(ctx)
	if isBatch(body) {
		e.serveBatch(w, r, body, e.sessions.version(session, principal.Owner))
		return
	}
	stream := newPostStream(w, r)
	defer stream.finish()
	e.serveMessage(stream, r, body, stream.notify)
}

// serveMessage passes one message to mcp-go. It answers itself if the message needs a session that it does not have.
func (e *endpoint) serveMessage(w http.ResponseWriter, r *http.Request, body []byte, n notifier) {
	session, modern := r.Header.Get(server.HeaderKeySessionID), mcp.IsModernProtocol(r.Header.Get(server.HeaderKeyProtocolVersion))
	var message envelope
	_ = json.Unmarshal(body, &message) // mcp-go answers what is wrong with the message
	modern = modern || mcp.IsModernProtocol(message.Params.Meta.Version)
	if session == "" && !modern && message.Method != "" && message.Method != string(mcp.MethodInitialize) {
		refuse(w, http.StatusBadRequest, errSessionMissing)
		return
	}
	if session == "" && message.Method == string(mcp.MethodNotificationCancelled) {
		// Without a session mcp-go would search the requests of all clients. Such a client cancels by closing the connection.
		w.WriteHeader(http.StatusAccepted)
		return
	}
	r = r.WithContext(withNotifier(r.Context(), n))
	if message.Method == string(mcp.MethodInitialize) && !modern {
		id, err := e.sessions.begin(executor.PrincipalFrom(r.Context()).Owner)
		if err != nil {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests, err.Error())
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), newSessionKey{}, id))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.inner.ServeHTTP(w, r)
}

// errSessionMissing refuses a request without a session.
const errSessionMissing = "header Mcp-Session-Id: must be given (send initialize to get a session)"

// ownSession returns why p cannot use the session id, or status 0 if p can.
func (e *endpoint) ownSession(id string, p executor.Principal) (status int, message string) {
	if id == "" {
		return http.StatusBadRequest, errSessionMissing
	}
	if _, err := (&ownedSessions{all: e.sessions, owner: p.Owner}).Validate(id); err != nil {
		return http.StatusNotFound, "no such session"
	}
	return 0, ""
}

// admit checks Host, Origin and token. It returns the caller, or the HTTP status and the error of a refusal.
func (e *endpoint) admit(w http.ResponseWriter, r *http.Request) (executor.Principal, int, error) {
	if e.socket {
		var p executor.Principal
		if err := json.Unmarshal([]byte(r.Header.Get(PrincipalHeader)), &p); err != nil || p.Owner == "" {
			return p, http.StatusUnauthorized, errors.New("header " + PrincipalHeader + ": must name the caller")
		}
		return p, 0, nil
	}
	if err := e.authenticator.CheckHost(r.Host, e.config.Bind); err != nil {
		return executor.Principal{}, http.StatusForbidden, err
	}
	for _, origin := range r.Header.Values("Origin") {
		if !e.allowed(origin, r.Host) {
			return executor.Principal{}, http.StatusForbidden, errors.New("requests from this origin are refused (mcp.http.allowed_origins)")
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Add("Vary", "Origin")
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name, Last-Event-ID")
		h.Set("Access-Control-Expose-Headers", server.HeaderKeySessionID)
	}
	if r.Method == http.MethodOptions {
		return executor.Principal{}, 0, nil // a preflight carries no token
	}
	p, err := e.authenticator.Authenticate(r.Header.Get("Authorization"))
	if err != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="python-executor"`)
		return p, http.StatusUnauthorized, err
	}
	return p, 0, nil
}

// allowed reports whether a page of origin may call: the server's own origin, or one of AllowedOrigins.
func (e *endpoint) allowed(origin, host string) bool {
	if slices.ContainsFunc(e.config.AllowedOrigins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	_, rest, ok := strings.Cut(origin, "://")
	return ok && host != "" && strings.EqualFold(rest, host)
}

// body reads one message, bounded in size and time.
func (e *endpoint) body(w http.ResponseWriter, r *http.Request, share *buffered.Share) ([]byte, int, error) {
	rc := http.NewResponseController(w)
	if r.ContentLength > e.config.MaxBodyBytes {
		// Many clients read the answer only after they have sent the whole body.
		_ = rc.SetReadDeadline(time.Now().Add(settleTime))
		_, _ = io.CopyN(io.Discard, r.Body, settleBytes)
		return nil, http.StatusRequestEntityTooLarge, errTooLarge(e.config.MaxBodyBytes)
	}
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // best effort: some writers have no deadlines
	sent := &begunReader{Reader: http.MaxBytesReader(w, r.Body, e.config.MaxBodyBytes)}
	body, err := share.ReadAll(sent, r.ContentLength)
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, errTooLarge(e.config.MaxBodyBytes)
	case buffered.ErrFull(err):
		if r.Header.Get("Expect") == "" || sent.begun { // as above: a sender that waits for "100 Continue" gets it with the first Read
			_ = rc.SetReadDeadline(time.Now().Add(settleTime))
			_, _ = io.CopyN(io.Discard, r.Body, settleBytes)
		}
		w.Header().Set("Retry-After", "1")
		return nil, http.StatusServiceUnavailable, err
	case err != nil:
		return nil, http.StatusBadRequest, errors.New("the body is incomplete")
	}
	return body, 0, nil
}

// begunReader notes whether anything was read.
type begunReader struct {
	io.Reader
	begun bool
}

// Read implements io.Reader.
func (b *begunReader) Read(p []byte) (int, error) {
	b.begun = true
	return b.Reader.Read(p)
}

func errTooLarge(limit int64) error {
	return executor.Errorf(executor.Exhausted, "a message must have at most %d bytes (mcp.http.max_body_bytes)", limit)
}

// refuse answers with a JSON-RPC error, which clients show to their user.
func refuse(w http.ResponseWriter, status int, message string) {
	refuseWith(w, status, invalidRequest(nil, message))
}

func refuseWith(w http.ResponseWriter, status int, answer json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(answer, '\n')) // fails only if the client has disconnected
}

// serveListener serves handler on l until ctx ends. It then waits for running calls, at most httpDrain.
func serveListener(ctx context.Context, l net.Listener, handler http.Handler, log *slog.Logger) error {
	calls, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return calls },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpDrain)
	defer cancel()
	// A stream that a client only listens on never ends by itself.
	stop := time.AfterFunc(httpDrain/2, func() { cut(errStopping) })
	defer stop.Stop()
	err := s.Shutdown(drain)
	if err != nil {
		err = s.Close()
	}
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

var errStopping = executor.Errorf(executor.Unavailable, "the server is stopping")
