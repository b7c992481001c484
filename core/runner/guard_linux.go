package runner

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// goGuarded runs f in a goroutine of its own.
func (a *agent) goGuarded(f func()) {
	go func() {
		defer a.guard()
		f()
	}()
}

// guard, deferred, keeps a bug of ours from leaving a program behind: the parent-death signal alone would leave its
// descendants.
func (a *agent) guard() {
	if r := recover(); r != nil {
		a.die(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
	}
}

// die kills what can be killed and ends the process.
func (a *agent) die(err error) {
	a.logf("%v", err)
	a.killEverything()
	os.Exit(exitBroken)
}

func (a *agent) killEverything() {
	a.mu.Lock()
	x := a.current
	a.mu.Unlock()
	for range 5 {
		if x != nil && x.group != nil {
			killAll(x.group)
		} else {
			killAll(&group{everything: a.inside != nil})
		}
		time.Sleep(time.Millisecond)
	}
}
