package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/zygote"
)

// ended is a fork server of which nothing is left.
func ended(key forkKey, used bool, err error) *forkServer {
	s := &forkServer{key: key, cancel: func(error) {}, over: make(chan struct{}), used: used, err: err}
	close(s.over)
	return s
}

func TestAForkServerIsNotStartedInVainAgainAndAgain(t *testing.T) {
	t.Parallel()
	a, b, c := forkKey{fork: "a"}, forkKey{fork: "b"}, forkKey{fork: "c"}
	var f forks
	if f.close() || !f.permits(a) {
		t.Error("the first program has no server")
	}
	f.server = ended(a, false, nil)
	if !f.close() || f.server != nil {
		t.Error("the server is still there")
	}
	for i, want := range []bool{false, true} {
		if f.permits(b) != want {
			t.Errorf("after a server without forks, program %d of another key: must be %v", i, want)
		}
	}
	f.server = ended(b, true, nil)
	f.close()
	if !f.permits(c) {
		t.Error("after a server with forks another key has none")
	}
	late := ended(c, false, context.DeadlineExceeded)
	late.started = late.over // it has started, and made no copy in time
	for name, s := range map[string]struct {
		*forkServer
		long bool
	}{
		"it was never used": {ended(c, false, errors.New("it hangs")), true}, "it was used": {ended(c, true, errors.New("it hangs")), false},
		"its start was late": {ended(c, false, context.DeadlineExceeded), true}, "its first copy was late": {late, false},
	} {
		f.server = s.forkServer
		f.close()
		if long := time.Until(f.refused[c]) > forkPause; long != s.long {
			t.Errorf("%s: a server that has failed is started again after %s", name, time.Until(f.refused[c]))
		}
		for range 2 {
			if f.permits(c) {
				t.Error("a server that has failed is started again at once")
			}
		}
	}
}

func TestFewRefusedKeysAreKept(t *testing.T) {
	t.Parallel()
	var f forks
	for i := range 3 * maxRefusedKeys {
		f.server = ended(forkKey{fork: fmt.Sprint(i)}, false, errors.New("it hangs"))
		f.close()
	}
	if n := len(f.refused); n == 0 || n > maxRefusedKeys {
		t.Errorf("%d keys are kept", n)
	}
}

func TestAForkServerServesOneDomain(t *testing.T) {
	t.Parallel()
	key := forkKey{fork: "alice", interpreter: "/env/bin/python", entrypoint: "main.py", path: "/env/bin"}
	for _, c := range []struct {
		name  string
		start protocol.Start
		want  bool
	}{
		{"its programs", protocol.Start{Fork: "alice", Path: "/env/bin", Interpreter: []string{"/env/bin/python"}}, true},
		{"its owner's commands", protocol.Start{Fork: "alice", Path: "/env/bin", Command: []string{"ls"}}, true},
		{"another owner", protocol.Start{Fork: "bob", Path: "/env/bin", Interpreter: []string{"/env/bin/python"}}, false},
		{"nobody", protocol.Start{Path: "/env/bin", Interpreter: []string{"/env/bin/python"}}, false},
		{"another environment", protocol.Start{Fork: "alice", Path: "/other/bin", Interpreter: []string{"/env/bin/python"}}, false},
		{"another interpreter", protocol.Start{Fork: "alice", Path: "/env/bin", Interpreter: []string{"/usr/bin/python3"}}, false},
	} {
		if got := key.serves(c.start); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAForkRunsOnlyWhatTheServerHasStarted(t *testing.T) {
	t.Parallel()
	p := &sandbox.Program{Path: "/env/bin/python", Argv: []string{"python", "main.py"}}
	base := protocol.Start{Fork: "alice", Path: "/env/bin", Interpreter: []string{"python"}}
	a := newAgent(nil)
	if _, ok := newExecution(a, base).forkable(p); ok {
		t.Error("a program outside of a box may be a fork")
	}
	a.Box = &sandbox.Box{}
	key, ok := newExecution(a, base).forkable(p)
	if want := (forkKey{fork: "alice", interpreter: p.Path, entrypoint: "main.py", path: "/env/bin"}); !ok || key != want {
		t.Fatalf("got %+v, %t, want %+v", key, ok, want)
	}
	for name, c := range map[string]struct {
		change func(*protocol.Start)
		ok     bool
	}{
		"nobody":                     {func(s *protocol.Start) { s.Fork = "" }, false},
		"a folder of the host":       {func(s *protocol.Start) { s.Directory = "/home" }, false},
		"a command":                  {func(s *protocol.Start) { s.Command = []string{"ls"} }, false},
		"an interpreter with option": {func(s *protocol.Start) { s.Interpreter = []string{"python", "-O"} }, false},
		"another owner":              {func(s *protocol.Start) { s.Fork = "bob" }, true},
		"another PATH":               {func(s *protocol.Start) { s.Path = "/bin" }, true},
		"other modules":              {func(s *protocol.Start) { s.Preimport = []string{"json"} }, true},
		"learned modules":            {func(s *protocol.Start) { s.PreimportLearned = true }, true},
		"a network":                  {func(s *protocol.Start) { s.Network = true }, true},
	} {
		start := base
		c.change(&start)
		if got, ok := newExecution(a, start).forkable(p); ok != c.ok || got == key {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
}

func TestAServerThatKeepsMuchMemoryEnds(t *testing.T) {
	t.Parallel()
	s := &forkServer{agent: newAgent(nil), cancel: func(error) {}}
	s.keep(maxForkHeld / 2)
	s.keep(maxForkHeld / 2)
	if s.err != nil {
		t.Errorf("it ends at %d bytes: %v", s.held, s.err)
	}
	if s.keep(1); s.err == nil {
		t.Errorf("it goes on with %d bytes", s.held)
	}
}

// A copy that is taken makes room for the next one, once, and the server counts as used.
func TestATakenCopyIsReplacedOnce(t *testing.T) {
	t.Parallel()
	s := &forkServer{copies: make(chan *forkCopy, 1), wanted: make(chan struct{}, 2), over: make(chan struct{})}
	s.refill()
	s.copies <- &forkCopy{}
	if s.take() == nil || !s.used {
		t.Errorf("the copy was not taken, or the server was not used: %t", s.used)
	}
	s.refill()
	s.refill()
	if n := len(s.wanted); n != 1 {
		t.Errorf("%d copies are wanted after one was taken", n)
	}
	close(s.over)
	if s.take() != nil || s.taken {
		t.Error("a server that has ended gives a copy")
	}
}

// endedProcess returns a descriptor of a process that has ended.
func endedProcess(t *testing.T) (pidfd int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return pidfd
}

// The number of a copy that has ended may be that of another process, which gets no limits of a program.
func TestACopyThatHasEndedDoesNotBegin(t *testing.T) {
	t.Parallel()
	pidfd := endedProcess(t)
	defer unix.Close(pidfd) //nolint:errcheck // nothing was written
	x := &execution{}       // without an agent, so that anything else fails
	err := x.begin(&forkServer{}, &forkCopy{Slot: &zygote.Slot{}, pidfd: pidfd}, zygote.Request{}, sandbox.Job{})
	if err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a copy that has ended begins: %v", err)
	}
}

// waitingSlot returns a Slot of an interpreter that says that it waits.
func waitingSlot(t *testing.T) *zygote.Slot {
	t.Helper()
	slot, err := zygote.Start(t.Context(), zygote.Config{Launch: func(c zygote.Command) (zygote.Process, error) {
		fd, err := unix.FcntlInt(c.Files[3].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		control := os.NewFile(uintptr(fd), "control") //nolint:gosec // a descriptor
		t.Cleanup(func() { _ = control.Close() })
		_, ready := control.WriteString("ready\x00")
		_, waiting := control.WriteString("waiting")
		return nil, errors.Join(ready, waiting)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// A copy that waits is closed when no program is to have it any more. A copy that a program has taken is the program's.
func TestACopyThatIsNotTakenIsClosed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old time.Duration // until the server is old
		// meanwhile runs beside give.
		meanwhile   func(s *forkServer, end func())
		want        time.Duration
		taken, next bool
	}{
		"no program comes":   {old: time.Hour, meanwhile: func(*forkServer, func()) {}, want: maxForkIdle},
		"the server is old":  {old: time.Second, meanwhile: func(*forkServer, func()) {}, want: time.Second},
		"the server is over": {old: time.Hour, meanwhile: func(_ *forkServer, end func()) { end() }},
		"a program takes it": {old: time.Second, meanwhile: func(s *forkServer, _ func()) {
			<-s.copies
			time.Sleep(2 * maxForkIdle)
			s.wanted <- struct{}{}
		}, want: 2 * maxForkIdle, taken: true, next: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slot := waitingSlot(t)
			synctest.Test(t, func(t *testing.T) {
				ends := make([]int, 2) // one end of a pipe is in the place of the descriptor of a process
				if err := unix.Pipe2(ends, unix.O_CLOEXEC); err != nil {
					t.Fatal(err)
				}
				defer unix.Close(ends[0]) //nolint:errcheck // nothing was written
				s := &forkServer{group: &sandbox.Group{}, copies: make(chan *forkCopy), wanted: make(chan struct{})}
				ctx, end := context.WithCancelCause(t.Context())
				began := time.Now()
				go c.meanwhile(s, func() { end(errEnded) })
				next, err := s.give(ctx, &forkCopy{Slot: slot, pidfd: ends[1]}, time.After(c.old))
				if waited := time.Since(began); err != nil || next != c.next || waited != c.want {
					t.Errorf("after %s: %t, %v; want %t after %s", waited, next, err, c.next, c.want)
				}
				if c.taken {
					if err := unix.Close(ends[1]); err != nil {
						t.Errorf("the copy of the program: %v", err)
					}
					return
				}
				fds := []unix.PollFd{{Fd: int32(ends[0])}} //nolint:gosec // a descriptor
				// A process that another test starts has the descriptor, too, until it executes its program.
				n, err := archive.IgnoringEINTR(func() (int, error) { return unix.Poll(fds, -1) })
				if n != 1 || err != nil {
					t.Errorf("the copy is not closed: %v", err)
				}
			})
		})
	}
}

// After a copy that failed, no server is started for its programs for a while.
func TestAServerWhoseCopyFailsIsNotStartedAtOnce(t *testing.T) {
	t.Parallel()
	a := newAgent(nil)
	a.Box = &sandbox.Box{}
	p := &sandbox.Program{Argv: []string{"", ""}} // as that of the empty Zygote
	x := newExecution(a, protocol.Start{Fork: "alice", Interpreter: []string{""}})
	key, _ := x.forkable(p)
	s := ended(key, false, nil)
	s.agent, s.copies, s.zygote = a, make(chan *forkCopy, 1), &zygote.Zygote{}
	s.started, s.over = s.over, make(chan struct{})
	end := sync.OnceFunc(func() { close(s.over) })
	s.cancel = func(error) { end() }
	s.copies <- &forkCopy{Slot: waitingSlot(t), pidfd: endedProcess(t)}
	a.forks.server = s
	if _, r, _ := x.fork(p, sandbox.Job{Files: []int{0, 1, 2}}); r != nil {
		t.Error("a copy that has ended is the program")
	}
	a.forks.close()
	for range 2 {
		if a.forks.permits(key) {
			t.Error("the server is started again at once")
		}
	}
}
