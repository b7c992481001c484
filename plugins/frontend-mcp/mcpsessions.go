package mcpfrontend

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
)

// mcpSessions are the sessions of the protocol (Mcp-Session-Id). A session belongs to the owner that opened it, and ends after
// the time idle without a request. At a bound, a new session replaces the least recently used session of the same owner. A
// session with a running call is never replaced. The session managers of mcp-go have no owners.
type mcpSessions struct {
	idle time.Duration
	// max bounds the sessions of all owners, perOwner those of one.
	max, perOwner int
	// ended is called for every session that has ended, without holding mu.
	ended func(id string)

	mu   sync.Mutex
	open map[string]*mcpSession
}

type mcpSession struct {
	owner   string
	version string // the negotiated revision of the protocol
	used    time.Time
	busy    int // the number of running calls
}

// newMCPSessions returns an empty mcpSessions with the bounds of c.
func newMCPSessions(c HTTP, ended func(id string)) *mcpSessions {
	idle := time.Duration(c.SessionIdleSeconds * float64(time.Second))
	return &mcpSessions{idle: idle, max: c.MaxSessions, perOwner: c.perOwner(), ended: ended, open: map[string]*mcpSession{}}
}

var _ server.SessionIdManagerResolver = (*mcpSessions)(nil)

// ResolveSessionIdManager implements server.SessionIdManagerResolver. The manager is limited to the owner of r.
func (s *mcpSessions) ResolveSessionIdManager(r *http.Request) server.SessionIdManager {
	if r == nil {
		return &ownedSessions{all: s, library: true}
	}
	id, _ := r.Context().Value(newSessionKey{}).(string)
	return &ownedSessions{all: s, owner: executor.PrincipalFrom(r.Context()).Owner, fresh: id}
}

// newSessionKey is the context key of the session that was opened for a request. The session is opened before mcp-go asks
// for its id, because Generate cannot return an error.
type newSessionKey struct{}

// errFull returns the error for an owner that cannot open another session.
func errFull(n int, whose, key string) error {
	return executor.Errorf(executor.Exhausted, "%d MCP sessions %s: end one and try again (%s)", n, whose, key)
}

// begin opens a session for owner and ends the session that it replaces, if any. Codes: exhausted.
func (s *mcpSessions) begin(owner string) (id string, err error) {
	victim, err := func() (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		victim, err := s.room(owner)
		if err != nil {
			return "", err
		}
		delete(s.open, victim)
		id = "mcp-session-" + uuid.NewString()
		s.open[id] = &mcpSession{owner: owner, used: time.Now()}
		return victim, nil
	}()
	if victim != "" {
		s.ended(victim)
	}
	return id, err
}

// room returns the session that must end before owner can open another, or "" if none must. The caller holds mu.
func (s *mcpSessions) room(owner string) (victim string, err error) {
	own := 0
	var oldest time.Time
	for id, open := range s.open {
		if open.owner != owner {
			continue
		}
		own++
		if open.busy == 0 && (victim == "" || open.used.Before(oldest)) {
			victim, oldest = id, open.used
		}
	}
	switch {
	case own < s.perOwner && len(s.open) < s.max:
		return "", nil
	case victim != "":
		return victim, nil
	case own >= s.perOwner:
		return "", errFull(own, "of this owner are busy", "mcp.http.max_sessions_per_owner")
	}
	return "", errFull(len(s.open), "are open", "mcp.http.max_sessions")
}

// ownedSessions gives mcp-go access to the sessions of one owner.
type ownedSessions struct {
	all   *mcpSessions
	owner string
	// library reports whether mcp-go acts by itself, not for a request.
	library bool
	// fresh is the id of the session that was opened for the request; empty: none.
	fresh string
}

// find returns the owner's session with that id, or nil. The caller holds the lock.
func (o *ownedSessions) find(id string) *mcpSession {
	if open := o.all.open[id]; open != nil && open.owner == o.owner {
		return open
	}
	return nil
}

// Generate implements server.SessionIdManager. It returns the id of the session that was opened for the request.
func (o *ownedSessions) Generate() string { return o.fresh }

// errNoSession makes mcp-go answer 404, which tells a client to initialize again.
var errNoSession = executor.Errorf(executor.NotFound, "no such session")

// Validate implements server.SessionIdManager.
func (o *ownedSessions) Validate(id string) (isTerminated bool, err error) {
	s := o.all
	s.mu.Lock()
	defer s.mu.Unlock()
	open := o.find(id)
	if open == nil {
		return false, errNoSession
	}
	open.used = time.Now()
	return false, nil
}

// Terminate implements server.SessionIdManager. It ends a session at the request of its client only. mcp-go also calls it
// when its own idle time is over, without regard to running calls. The session then stays open until sweep ends it, and
// tools.close releases what is left when the server stops.
func (o *ownedSessions) Terminate(id string) (isNotAllowed bool, err error) {
	if o.library {
		return false, nil
	}
	s := o.all
	s.mu.Lock()
	if o.find(id) == nil {
		s.mu.Unlock()
		return false, errNoSession
	}
	delete(s.open, id)
	s.mu.Unlock()
	s.ended(id)
	return false, nil
}

// negotiated sets the revision of a session.
func (s *mcpSessions) negotiated(id, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.open[id]; open != nil {
		open.version = version
	}
}

// version returns the revision of the owner's session, or "" if there is no such session.
func (s *mcpSessions) version(id, owner string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.open[id]; open != nil && open.owner == owner {
		return open.version
	}
	return ""
}

// hold keeps a session from being swept or replaced until release is called.
func (s *mcpSessions) hold(id string) (release func()) {
	add := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if open := s.open[id]; open != nil {
			open.busy += n
			open.used = time.Now()
		}
	}
	add(1)
	return func() { add(-1) }
}

// sweep ends idle sessions until ctx ends.
func (s *mcpSessions) sweep(ctx context.Context) {
	ticker := time.NewTicker(max(s.idle/10, time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, id := range s.expired(now) {
				s.ended(id)
			}
		}
	}
}

// expired removes the idle sessions and returns their ids.
func (s *mcpSessions) expired(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for id, open := range s.open {
		if open.busy == 0 && now.Sub(open.used) > s.idle {
			delete(s.open, id)
			list = append(list, id)
		}
	}
	return list
}
