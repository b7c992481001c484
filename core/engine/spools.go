package engine

import (
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// spoolRetry is the Retry-After where the bound on inputs is reached.
const spoolRetry = 10 * time.Second

// spools counts the bytes of the inputs that lie in Blobs until their Executions have ended.
type spools struct {
	mu    sync.Mutex
	total int64
	own   map[string]int64
	of    map[string]spoolUse
}

// spoolUse is the input of one Execution.
type spoolUse struct {
	owner string
	bytes int64
}

// take counts n bytes more of the input of id, unless a bound of c is reached. Codes: exhausted, with a RetryAfter.
func (s *spools) take(c config.Engine, id, owner string, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.MaxSpoolBytesPerOwner > 0 && s.own[owner]+n > c.MaxSpoolBytesPerOwner:
		return errFull("the inputs of your executions that wait or run (engine.max_spool_bytes_per_owner)", spoolRetry)
	case c.MaxSpoolBytes > 0 && s.total+n > c.MaxSpoolBytes:
		return errFull("the inputs of all executions that wait or run (engine.max_spool_bytes)", spoolRetry)
	}
	s.putLocked(id, owner, n)
	return nil
}

// adopt counts the input of an Execution of an earlier life of the server.
func (s *spools) adopt(id, owner string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(id, owner, n)
}

func (s *spools) putLocked(id, owner string, n int64) {
	if s.of == nil {
		s.of, s.own = map[string]spoolUse{}, map[string]int64{}
	}
	s.of[id] = spoolUse{owner, s.of[id].bytes + n}
	s.own[owner] += n
	s.total += n
}

// give takes the input of id out of the count. Idempotent.
func (s *spools) give(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.of[id]
	if !ok {
		return
	}
	delete(s.of, id)
	s.total -= was.bytes
	if s.own[was.owner] -= was.bytes; s.own[was.owner] == 0 {
		delete(s.own, was.owner)
	}
}

// adoptSpools counts the inputs of unfinished Executions of an earlier life of the server.
func (e *Engine) adoptSpools(unfinished []executor.Record) {
	for _, rec := range unfinished {
		for _, key := range []string{rec.WorkspaceBlob, rec.StdinBlob} {
			if src, err := e.fromBlob(e.base, key); err == nil && src != nil {
				e.spools.adopt(rec.ID, rec.Owner, max(0, src.SizeBytes))
			}
		}
	}
}
