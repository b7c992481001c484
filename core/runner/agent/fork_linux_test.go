package agent

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	for _, used := range []bool{false, true} {
		f.server = ended(c, used, errors.New("it hangs"))
		f.close()
		if long := time.Until(f.refused[c]) > forkPause; long == used {
			t.Errorf("a server that has failed is started again after %s, it was used: %t", time.Until(f.refused[c]), used)
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

// The number of a copy that has ended may be that of another process, which gets no limits of a program.
func TestACopyThatHasEndedDoesNotBegin(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd) //nolint:errcheck // nothing was written
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	x := &execution{} // without an agent, so that anything else fails
	err = x.begin(&forkServer{}, &forkCopy{Slot: &zygote.Slot{}, pidfd: pidfd}, zygote.Request{}, sandbox.Job{})
	if err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a copy that has ended begins: %v", err)
	}
}
