package runner

import (
	"os"
	"time"
)

// silence decides when a host counts as gone. On a socketpair EOF says so, and with Config.Silence 0 that is the end.
// With Silence > 0 the program goes on without a host for that long: after an EOF, or, on streams that have none (a
// container's attached stdio), after the last frame; hosts send Ping then.
type silence struct {
	agent *agent
	timer *time.Timer
}

func newSilence(a *agent) *silence { return &silence{agent: a} }

// heard is called for every frame.
func (s *silence) heard() {
	if s.agent.cfg.Silence <= 0 {
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(s.agent.cfg.Silence, func() {
			s.end()
			os.Exit(exitSilence)
		})
		return
	}
	s.timer.Reset(s.agent.cfg.Silence)
}

// hostLost is called once no frame can come any more. It returns when nothing is left.
func (s *silence) hostLost() {
	if s.agent.cfg.Silence > 0 && s.timer != nil {
		// The timer ends the process. A program that ends before leaves nothing to wait for but a host, and none can come
		// on this stream.
		if x := s.agent.now(); x != nil {
			<-x.cleaned
		}
		s.timer.Stop()
	}
	s.end()
}

// end kills the program and waits, bounded, until it is cleaned up.
func (s *silence) end() {
	a := s.agent
	a.mu.Lock()
	x := a.current
	a.mu.Unlock()
	if x == nil {
		return
	}
	x.drop()
	select {
	case <-x.cleaned:
		if err := x.takeNext().remove(); err != nil {
			a.logf("clean up: %v", err)
		}
	case <-time.After(killPatience + 5*time.Second):
		a.killEverything()
	}
}
