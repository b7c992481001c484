package runner

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// startPatience bounds the silence of a runner that has the whole Workspace of an Execution and has not said yet that the program runs.
// While it unpacks, it speaks twice a second. What takes long before, such as installing, is no work of a runner.
const startPatience = 5 * time.Minute

var (
	errUnsent  = errors.New("a frame to the runner could not be sent")
	errNoStart = fmt.Errorf("the runner has not started the program, and has said nothing for %s", startPatience)
)

// startWatch watches over the time from the Workspace's end to the program's start.
type startWatch struct {
	mu    sync.Mutex
	timer *time.Timer // nil before watch
	// whole reports that the runner has the whole Workspace, begun that it has said that the program runs or has ended, and ended that
	// nobody waits for it any more.
	whole, begun, ended bool
}

// watch is called when the runner has the whole Workspace. After startPatience without a word it calls over.
func (s *startWatch) watch(over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
	if !s.begun && !s.ended {
		s.timer = time.AfterFunc(startPatience, over)
	}
}

// heard is called when the runner has said something. begun reports whether it was that the program runs, or has ended.
func (s *startWatch) heard(begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun = s.begun || begun; s.timer == nil || s.ended {
		return
	}
	if s.timer.Stop() && !s.begun {
		s.timer.Reset(startPatience)
	}
}

// end ends the watch.
func (s *startWatch) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended = true; s.timer != nil {
		s.timer.Stop()
	}
}

// mayHaveBegun reports whether the program may have begun although err has ended the connection before the runner said so. A runner that
// lacks a part of the Workspace has not begun it.
func (s *startWatch) mayHaveBegun(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Is(err, errGone) || s.whole && (errors.Is(err, errUnsent) || errors.Is(err, errNoStart))
}
