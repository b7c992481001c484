package mcpfrontend

import (
	"fmt"
	"sync"

	"github.com/python-executor/python-executor/core/auth"
)

// callSlots bounds the calls that run at once. With several owners, one owner has at most half of the slots, and the last free slot is for
// an owner without a running call.
type callSlots struct {
	perOwner int // 0: there is one owner

	mu      sync.Mutex
	running int
	own     map[string]int
}

func newCallSlots(tokens []auth.Token) *callSlots {
	s := &callSlots{own: map[string]int{}}
	if auth.SeveralOwners(tokens) {
		s.perOwner = maxCalls / 2
	}
	return s
}

// take gives owner a slot until leave is called. Without a slot it returns what the caller is told.
func (s *callSlots) take(owner string) (leave func(), refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.own[owner]
	switch {
	case s.running >= maxCalls:
		return nil, fmt.Sprintf("Error: %d calls are already running: wait until a call has ended, or stop a job", s.running)
	case s.perOwner > 0 && mine > 0 && (mine >= s.perOwner || s.running == maxCalls-1):
		return nil, fmt.Sprintf("Error: %d of your calls are already running: wait until a call has ended, or stop a job", mine)
	}
	s.running++
	s.own[owner]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		if s.own[owner]--; s.own[owner] == 0 {
			delete(s.own, owner)
		}
	}), ""
}
