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

// PrincipalHeader names the caller on the unix socket: the JSON of an executor.Principal. On any other listener it is
// ignored.
const PrincipalHeader = "Pyexec-Principal"

const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 60 * time.Second
	heartbeatEvery = 15 * time.Second
	httpDrain      = 10 * time.Second
	// What is taken in of a message that is refused for its size.
	settleTime  = 5 * time.Second
	settleBytes = 64 << 20
)

// endpoint is streamable HTTP: what stands in front of mcp-go's handler.
type endpoint struct {
	config        HTTP
	authenticator *auth.Authenticator
	sessions      *mcpSessions
	buffers       *buffered.Budget
	inner         http.Handler
	// socket: callers are named by PrincipalHeader, and the HTTP frontend has checked Host, Origin and token.
	socket bool
	log    *slog.Logger
}

// newInner returns mcp-go's handler over s with our sessions. Two of them on one server would share its sessions.
func newInner(s *server.MCPServer, sessions *mcpSessions, log *slog.Logger) *server.StreamableHTTPServer {
	return server.NewStreamableHTTPServer(s,
		server.WithSessionIdManagerResolver(sessions),
		server.WithSessionIdleTTL(sessions.idle),
		server.WithHeartbeatInterval(heartbeatEvery),
		server.WithDisableLocalhostProtection(true), // guard does it, with tokens in mind
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
		if !modern { // else mcp-go refuses it
			// mcp-go would hold a stream of nobody's, or of anybody's session, open for ever.
			if status, message := e.ownSession(session, principal); status != 0 {
				refuse(w, status, message)
				return
			}
		}
		e.inner.ServeHTTP(w, r.WithContext(ctx))
		return
	default:
		h.Set("Allow", "GET, POST, DELETE, OPTIONS")
		refuse(w, http.StatusMethodNotAllowed, "this method is not possible here")
		return
	}
	share := e.buffers.Open()
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

// serveMessage hands one message to mcp-go, unless it must not come that far.
func (e *endpoint) serveMessage(w http.ResponseWriter, r *http.Request, body []byte, n notifier) {
	session, modern := r.Header.Get(server.HeaderKeySessionID), mcp.IsModernProtocol(r.Header.Get(server.HeaderKeyProtocolVersion))
	var message envelope
	_ = json.Unmarshal(body, &message) // mcp-go says what is wrong with it
	modern = modern || mcp.IsModernProtocol(message.Params.Meta.Version)
	if session == "" && !modern && message.Method != "" && message.Method != string(mcp.MethodInitialize) {
		refuse(w, http.StatusBadRequest, "there is no session: initialize first, and send its Mcp-Session-Id")
		return
	}
	if session == "" && message.Method == string(mcp.MethodNotificationCancelled) {
		// Without a session mcp-go would look the id up among everybody's. Closing the connection cancels, too.
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

// ownSession says why a session cannot be used; 0: it can.
func (e *endpoint) ownSession(id string, p executor.Principal) (status int, message string) {
	if id == "" {
		return http.StatusBadRequest, "there is no session: initialize first, and send its Mcp-Session-Id"
	}
	if _, err := (&ownedSessions{all: e.sessions, owner: p.Owner}).Validate(id); err != nil {
		return http.StatusNotFound, "no such session"
	}
	return 0, ""
}

// admit says who calls, or why nobody may.
func (e *endpoint) admit(w http.ResponseWriter, r *http.Request) (executor.Principal, int, error) {
	if e.socket {
		var p executor.Principal
		if err := json.Unmarshal([]byte(r.Header.Get(PrincipalHeader)), &p); err != nil || p.Owner == "" {
			return p, http.StatusUnauthorized, errors.New("the caller is not named")
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

// allowed reports whether a page of that origin may call: our own, or one of the configuration's.
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
		// Many clients read no answer before they have sent everything.
		_ = rc.SetReadDeadline(time.Now().Add(settleTime))
		_, _ = io.CopyN(io.Discard, r.Body, settleBytes)
		return nil, http.StatusRequestEntityTooLarge, errTooLarge(e.config.MaxBodyBytes)
	}
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // a listener without deadlines has its own bounds
	body, err := share.ReadAll(http.MaxBytesReader(w, r.Body, e.config.MaxBodyBytes), r.ContentLength)
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, errTooLarge(e.config.MaxBodyBytes)
	case buffered.ErrFull(err):
		if r.Header.Get("Expect") == "" { // as above
			_ = rc.SetReadDeadline(time.Now().Add(settleTime))
			_, _ = io.CopyN(io.Discard, r.Body, settleBytes)
		}
		w.Header().Set("Retry-After", "1")
		return nil, http.StatusServiceUnavailable, err
	case err != nil:
		return nil, http.StatusBadRequest, errors.New("the body did not come whole")
	}
	return body, 0, nil
}

func errTooLarge(limit int64) error {
	return executor.Errorf(executor.Exhausted, "a message has at most %d bytes (mcp.http.max_body_bytes)", limit)
}

// refuse answers with a JSON-RPC error, which clients show.
func refuse(w http.ResponseWriter, status int, message string) {
	refuseWith(w, status, invalidRequest(nil, message))
}

func refuseWith(w http.ResponseWriter, status int, answer json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(answer, '\n')) // a client that is gone has no use for it
}

// serveListener serves handler on l until ctx ends, then gives running calls a moment.
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
	// Streams that a client only listens on never end by themselves.
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
