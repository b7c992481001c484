package agent

import "time"

// restTime is how long a runner that has answered leaves the processors to the processes that pass the answer on.
const restTime = 2 * time.Millisecond

// rest waits for restTime, unless somebody wants x to be cleaned.
func (x *execution) rest() {
	timer := time.NewTimer(restTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.hurried:
	case <-x.dropped:
	}
}

// awaitCleaned returns when nothing of x is left.
func (x *execution) awaitCleaned() {
	x.hurry()
	<-x.cleaned
}
