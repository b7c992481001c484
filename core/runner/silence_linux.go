package runner

import (
	"os"
	"sync/atomic"
	"time"
)

// silence decides when a host counts as gone. On a socketpair EOF says so, and with Config.Silence 0 that is the end.
// With Silence > 0 the program goes on without a host for that long: after an EOF, or, on streams that have none (a
// container's attached stdio), after the last frame; hosts send Ping then.
type silence struct {
	agent *agent
	// missed counts the looks since the last frame. Time that the whole sandbox did not have, because it was paused, is one.
	missed  atomic.Int32
	started bool
}

// silenceLooks is how many looks in a row must have seen no frame.
const silenceLooks = 4

func newSilence(a *agent) *silence { return &silence{agent: a} }

// heard is called for every frame.
func (s *silence) heard() {
	s.missed.Store(0)
	if s.started || s.agent.cfg.Silence <= 0 {
		return
	}
	s.started = true
	s.agent.goGuarded(s.watch)
}

// watch ends the process when nobody has been heard for so long.
func (s *silence) watch() {
	for s.missed.Add(1) <= silenceLooks {
		time.Sleep(s.agent.cfg.Silence / silenceLooks)
	}
	s.agent.logf("no host for %s", s.agent.cfg.Silence)
	s.end()
	os.Exit(exitSilence)
}

// hostLost is called once no frame can come any more. It returns when nothing is left.
func (s *silence) hostLost() {
	if s.agent.up != nil {
		// watch ends the process. A program that ends before leaves nothing to wait for but a host, and none can come on
		// this stream.
		if x := s.agent.now(); x != nil {
			<-x.answered
		}
	}
	s.end()
}

// end kills the program and waits, bounded, until it is cleaned up.
func (s *silence) end() {
	a := s.agent
	a.mu.Lock()
	x := a.current
	a.mu.Unlock()
	if x != nil {
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
	a.endSession()
}

// helloPatience is how long a runner whose stream has no end waits for its first host.
const helloPatience = time.Minute

// awaitHello ends the process when nobody comes.
func (a *agent) awaitHello() { a.setDeadline(&a.lifeDeadline, helloPatience) }

// setDeadline lets timer end the process after d, whatever its host says; d = 0: never.
func (a *agent) setDeadline(timer **time.Timer, d time.Duration) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
	if d <= 0 {
		return
	}
	*timer = time.AfterFunc(d, func() {
		defer a.guard()
		a.logf("the deadline has passed")
		(&silence{agent: a}).end()
		os.Exit(exitDeadline)
	})
}
