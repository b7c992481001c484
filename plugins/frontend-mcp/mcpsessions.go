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

// mcpSessions are the sessions of the protocol (Mcp-Session-Id): each belongs to the owner that opened it, ends when it is
// not used, and there are not too many. They are the memory that mcp-go's own managers lack.
type mcpSessions struct {
	idle time.Duration
	max  int
	// ended is called, without a lock, for every session that has ended.
	ended func(id string)

	mu   sync.Mutex
	open map[string]*mcpSession
}

type mcpSession struct {
	owner   string
	version string // the revision that was negotiated
	used    time.Time
	busy    int // calls that run
}

func newMCPSessions(idle time.Duration, maximum int, ended func(id string)) *mcpSessions {
	return &mcpSessions{idle: idle, max: maximum, ended: ended, open: map[string]*mcpSession{}}
}

var _ server.SessionIdManagerResolver = (*mcpSessions)(nil)

// ResolveSessionIdManager implements server.SessionIdManagerResolver: the manager knows whose request it is.
func (s *mcpSessions) ResolveSessionIdManager(r *http.Request) server.SessionIdManager {
	if r == nil { // mcp-go itself, which ends all sessions at its end
		return &ownedSessions{all: s, anybody: true}
	}
	return &ownedSessions{all: s, owner: executor.PrincipalFrom(r.Context()).Owner}
}

// ownedSessions are the sessions of one owner, or of anybody.
type ownedSessions struct {
	all     *mcpSessions
	owner   string
	anybody bool
}

// find returns a session that the owner may use; nil: there is none. The caller holds the lock.
func (o *ownedSessions) find(id string) *mcpSession {
	if open := o.all.open[id]; open != nil && (o.anybody || open.owner == o.owner) {
		return open
	}
	return nil
}

// Generate implements server.SessionIdManager. Where there are too many, the one that was used least recently ends.
func (o *ownedSessions) Generate() string {
	id := "mcp-session-" + uuid.NewString()
	s := o.all
	s.mu.Lock()
	var victim string
	if len(s.open) >= s.max {
		oldest := time.Now()
		for id, open := range s.open {
			if open.busy == 0 && open.used.Before(oldest) {
				victim, oldest = id, open.used
			}
		}
		delete(s.open, victim)
	}
	s.open[id] = &mcpSession{owner: o.owner, used: time.Now()}
	s.mu.Unlock()
	if victim != "" {
		s.ended(victim)
	}
	return id
}

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

// Terminate implements server.SessionIdManager.
func (o *ownedSessions) Terminate(id string) (isNotAllowed bool, err error) {
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

// negotiated remembers the revision of a session.
func (s *mcpSessions) negotiated(id, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.open[id]; open != nil {
		open.version = version
	}
}

// version is the revision of the owner's session; empty: there is no such session.
func (s *mcpSessions) version(id, owner string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.open[id]; open != nil && open.owner == owner {
		return open.version
	}
	return ""
}

// hold keeps a session from ending while a call of it runs.
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

// sweep ends what was not used for too long, until ctx ends.
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

// endAll ends every session.
func (s *mcpSessions) endAll() {
	s.mu.Lock()
	open := s.open
	s.open = map[string]*mcpSession{}
	s.mu.Unlock()
	for id := range open {
		s.ended(id)
	}
}
