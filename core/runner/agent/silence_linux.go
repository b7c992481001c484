package agent

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// silence measures how long no frame has come. With Config.Silence > 0 the runner goes on without a host for that long.
type silence struct {
	// missed counts the looks since the last frame. However long the sandbox was frozen, that time counts as one look.
	missed  atomic.Int32
	watched bool
}

// silenceLooks is how many looks in a row must have seen no frame.
const silenceLooks = 4

// heard is called for every frame, by the reader of frames.
func (a *agent) heard() {
	a.silence.missed.Store(0)
	if a.silence.watched || a.Config.Silence <= 0 {
		return
	}
	a.silence.watched = true
	a.Go(a.watchSilence)
}

// watchSilence ends the runner when no frame has come for Config.Silence.
func (a *agent) watchSilence() {
	for a.silence.missed.Add(1) <= silenceLooks {
		time.Sleep(a.Config.Silence / silenceLooks)
	}
	a.Logf("no host for %s", a.Config.Silence)
	a.end()
	os.Exit(ExitSilence)
}

// hostLost ends the runner's work when no frame can come any more. With Config.Silence > 0 the program may end first, and
// watchSilence may end the process meanwhile.
func (a *agent) hostLost() {
	if a.relay != nil {
		if x := a.now(); x != nil {
			<-x.answered
		}
	}
	a.end()
}

// end kills the program and waits, within bounds, until it is cleaned up. Then it ends the session.
func (a *agent) end() {
	a.mu.Lock()
	x := a.current
	a.mu.Unlock()
	if x != nil {
		x.drop()
		select {
		case <-x.cleaned:
			if err := x.takeNext().Remove(); err != nil {
				a.Logf("clean up: %v", err)
			}
			a.forks.close()
		case <-time.After(sandbox.KillPatience + 5*time.Second):
			a.killEverything()
		}
	}
	a.endSession()
	if err := a.Close(); err != nil {
		a.Logf("clean up: %v", err)
	}
}

// unsentPatience is how long the end of the host may take to show after a write to it has failed.
const unsentPatience = time.Second

// unsent is a write to the host that has failed. If the host is gone, the reader of frames sees it. A host that is still there waits for
// that frame for ever, and has to see the end of the runner.
type unsent struct {
	mu    sync.Mutex
	timer *time.Timer
	ended bool // the reader of frames has ended
}

func (u *unsent) after(patience time.Duration, over func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended {
		u.timer = time.AfterFunc(patience, over)
	}
}

func (u *unsent) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended = true; u.timer != nil {
		u.timer.Stop()
	}
}

// helloPatience is how long a runner on standard streams waits for its first Hello.
const helloPatience = time.Minute

// setDeadline ends the runner after d, whatever its host says, in place of the deadline that was set before. With d 0 there is
// none.
func (a *agent) setDeadline(d time.Duration) {
	if a.deadline != nil {
		a.deadline.Stop()
		a.deadline = nil
	}
	if d <= 0 {
		return
	}
	a.deadline = time.AfterFunc(d, func() {
		defer a.Guard()
		a.Logf("the deadline has passed")
		a.end()
		os.Exit(ExitDeadline)
	})
}
