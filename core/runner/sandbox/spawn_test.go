//go:build linux

package sandbox

import (
	"errors"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// The limits that no control group holds bind from the first instruction, and what is lent for that is taken back.
func TestLimitsAreLentToWhatIsForked(t *testing.T) {
	limit := func(resource int) (l unix.Rlimit) {
		t.Helper()
		must(t, unix.Getrlimit(resource, &l))
		return l
	}
	files, processes := limit(unix.RLIMIT_FSIZE), limit(unix.RLIMIT_NPROC)
	job := Job{Group: &Group{}, UID: 1, OwnUID: true, Limits: executor.Limits{DiskBytes: 1 << 40, PIDs: 4000}}
	restore := lendLimits(job)
	lentFiles, lentProcesses := limit(unix.RLIMIT_FSIZE), limit(unix.RLIMIT_NPROC)
	restore()
	if lentFiles != (unix.Rlimit{Cur: min(1<<40, files.Max), Max: files.Max}) || lentProcesses != (unix.Rlimit{Cur: min(4000, processes.Max), Max: processes.Max}) {
		t.Errorf("lent %+v and %+v", lentFiles, lentProcesses)
	}
	if limit(unix.RLIMIT_FSIZE) != files || limit(unix.RLIMIT_NPROC) != processes {
		t.Error("what was lent stays")
	}
	for name, job := range map[string]Job{
		"a control group counts": {Group: &Group{pids: "/x"}, UID: 1, OwnUID: true, Limits: job.Limits},
		"the uid is another's":   {Group: &Group{}, UID: 1, Limits: job.Limits},
		"it is root":             {Group: &Group{}, OwnUID: true, Limits: job.Limits},
		"no limit":               {Group: &Group{}, UID: 1, OwnUID: true},
	} {
		if job.countsByUID() {
			t.Errorf("%s: it counts by uid", name)
		}
	}
}

// Address space is no memory, so it is bound only where nothing else bounds the memory.
func TestTheLimitsOfAProgramBecomeHard(t *testing.T) {
	t.Parallel()
	limits := executor.Limits{DiskBytes: 1 << 40, MemoryBytes: 1 << 30}
	for name, c := range map[string]struct {
		group *Group
		as    uint64
	}{"without a control group": {&Group{}, 1<<30 + addressSpaceSlack}, "with one": {&Group{Memory: "/x"}, unix.RLIM_INFINITY}} {
		cmd := exec.CommandContext(t.Context(), "cat")
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		var own, files, memory unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_AS, &own))
		hardenLimits(cmd.Process.Pid, Job{Group: c.group, Limits: limits})
		must(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &files))
		must(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS, nil, &memory))
		must(t, in.Close())
		must(t, cmd.Wait())
		if want := min(c.as, own.Max); files != (unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}) || memory.Max != want || memory.Cur != min(want, own.Cur) {
			t.Errorf("%s: files %+v, memory %+v", name, files, memory)
		}
	}
}

// What a thread forks sees nothing of the session of the server's user.
func TestAThreadGetsAnEmptySession(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()                 // without an unlock: the thread ends with its keyrings
		if err := emptySession(); err != nil { // the key is left in no session that others share
			t.Errorf("a session: %v", err)
			return
		}
		if _, err := unix.AddKey("user", "pyexec-runner-test", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
			t.Logf("no key can be left: %v", err) // a kernel or a container without keys
			return
		}
		held := func() int {
			n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, unix.KEY_SPEC_SESSION_KEYRING, make([]byte, 4096), 0)
			if err != nil {
				t.Error(err)
			}
			return n
		}
		if held() == 0 {
			t.Error("the key is not there: the test shows nothing")
		}
		if err := emptySession(); err != nil {
			t.Error(err)
		}
		if n := held(); n != 0 {
			t.Errorf("the session has %d bytes of keys", n)
		}
	}()
	<-done
}

// A program that kept the session of the server's user could read its keys, whatever the reason.
func TestOnlyARefusalKeepsTheSessionAsItIs(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, unix.EPERM, unix.EACCES, unix.ENOSYS} {
		if got := sessionError(err); got != nil {
			t.Errorf("%v: %v", err, got)
		}
	}
	for _, err := range []error{unix.EDQUOT, unix.ENOMEM, unix.EINVAL} {
		if got := sessionError(err); !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
