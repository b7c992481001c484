//go:build linux

package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/network"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// forked is a Start of Python code that may be forked.
func forked(code string) Start {
	s := python(code)
	s.Fork = "tests"
	return s
}

// how runs start, as told does, and returns how it was started, how it ended, and its output.
func (r *testRunner) how(t *testing.T, start Start, limits ...said) string {
	t.Helper()
	res, rec := r.told(t, start, limits...)
	if res.Status == executor.StatusSucceeded && (res.PeakMemoryBytes < 1<<20 || res.CPU <= 0) {
		t.Errorf("a peak of %d bytes, and %v of CPU time", res.PeakMemoryBytes, res.CPU)
	}
	how := executor.StartKind("not started")
	select {
	case s := <-rec.started:
		how = s.Start
	default:
	}
	return strings.TrimSpace(string(how) + " " + describe(res) + " " + rec.stdout() + rec.stderr())
}

// asFork is how for a program that is a fork. It runs start again if there was no copy in time, as on a busy machine.
func (r *testRunner) asFork(t *testing.T, start Start, limits ...said) (got string) {
	t.Helper()
	awaittest.UntilNil(t, "a fork", func() error {
		if got = r.how(t, start, limits...); !strings.HasPrefix(got, "fork") {
			return errors.New(got)
		}
		return nil
	})
	return got
}

func (r *testRunner) wants(t *testing.T, start Start, want string) {
	t.Helper()
	run := r.how
	if strings.HasPrefix(want, "fork") {
		run = r.asFork
	}
	if got := run(t, start); got != want {
		t.Errorf("%.200q: %s\nwant %s", start.Code, got, want)
	}
}

// warm runs programs like start until its fork server is there.
func (r *testRunner) warm(t *testing.T, start Start) {
	t.Helper()
	start.Code = "print(0)"
	r.asFork(t, start)
}

func TestTheNextProgramsAreForked(t *testing.T) {
	r := boxed(t, nil)
	hello := forked(`print("hi")`)
	r.wants(t, hello, "exec succeeded exit 0 hi")
	r.warm(t, hello)
	for range 3 {
		r.wants(t, hello, "fork succeeded exit 0 hi")
	}
	displays := forked(executor.DisplayingProgram("import builtins, os, sys\nword = 'hi'\n" +
		"print(word, len(sys.argv), __name__, hasattr(builtins, '_python_executor'), os.listdir(os.environ['TMPDIR']))\nword"))
	r.wants(t, displays, "fork succeeded exit 0 hi 1 __main__ False []")
	alone := displays
	alone.Fork = ""
	r.wants(t, alone, "exec succeeded exit 0 hi 1 __main__ False []")
	other := hello
	other.Fork = "others"
	r.wants(t, other, "exec succeeded exit 0 hi")
	r.warm(t, other)
	r.wants(t, other, "fork succeeded exit 0 hi")
	options := other
	options.Env = map[string]string{"PYTHONOPTIMIZE": "1"}
	r.wants(t, options, "exec succeeded exit 0 hi")
	r.wants(t, other, "fork succeeded exit 0 hi")
	r.warm(t, hello)
	r.wants(t, forked("import sys; sys.exit(7)"), "fork failed exit 7")
	r.wants(t, forked("import os; os.abort()"), "fork failed SIGABRT")
	r.wants(t, forked("import gc; print(gc.get_freeze_count())"), "exec succeeded exit 0 0")
	r.wants(t, hello, "fork succeeded exit 0 hi")
}

// TestNothingIsPreparedAfterTheLastProgram looks at the numbers in the names of control groups. Groups that were prepared do not suit
// a program with other limits, and get other names.
func TestNothingIsPreparedAfterTheLastProgram(t *testing.T) {
	needtest.NeedRoot(t)
	r := boxed(t, func(cfg *Config) {
		needtest.Need(t, len(cfg.Cgroups) > 0, needtest.Cgroup, "there are no control groups")
	})
	for n := range 3 {
		start := forked("import sys; sys.stdin.read()")
		start.Last, start.Limits.MemoryBytes = true, int64(n+1)<<28
		read, write := io.Pipe()
		rec, groups := newRecord(), make(chan string, 1)
		go func() {
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", (<-rec.started).PID)) // a program does not see the names
			groups <- fmt.Sprint(string(raw), err)
			_ = write.Close() // never fails
		}()
		res, err := r.Run(awaittest.Context(t), start, RunInput{Stdin: read}, rec)
		names := slices.Compact(slices.Sorted(slices.Values(regexp.MustCompile("run-[0-9]+").FindAllString(awaittest.Recv(t, "the groups", groups), -1))))
		if want := []string{fmt.Sprintf("run-%d", n+1)}; err != nil || res.Status != executor.StatusSucceeded || !slices.Equal(names, want) {
			t.Errorf("%s, %v: the groups are %q, want %q", describe(res), err, names, want)
		}
	}
}

func TestTheTimeOfAForkCountsOnce(t *testing.T) {
	r := boxed(t, nil)
	burn := forked(`
import os, time
if os.fork() == 0:
    while time.process_time() < 0.2: pass
    os._exit(0)
while time.process_time() < 0.2: pass
os.wait()
print(sum(os.times()[:4]))
`)
	r.warm(t, burn)
	awaittest.Until(t, "a fork", func() bool {
		res, rec := r.run(t, burn, RunInput{})
		got := (<-rec.started).Start
		checkCPU(t, string(got), res, rec)
		return got == executor.StartFork
	})
}

// checkCPU compares the CPU time of a program with that which it has printed near its end, in seconds.
func checkCPU(t *testing.T, what string, res executor.Result, rec *record) {
	t.Helper()
	seconds, err := strconv.ParseFloat(strings.TrimSpace(rec.stdout()), 64)
	said := time.Duration(seconds * float64(time.Second))
	if err != nil || said == 0 || res.CPU < said*9/10-20*time.Millisecond || res.CPU > said*3/2+50*time.Millisecond {
		t.Errorf("%s: the program has used %s, the Result says %s, %v", what, said, res.CPU, err)
	}
}

func TestAForkHasTheLimitsOfItsExecution(t *testing.T) {
	r := boxed(t, nil)
	r.warm(t, forked(""))
	loop := forked("import signal\nsignal.signal(15, lambda *a: None)\nprint('up', flush=True)\nwhile True: pass")
	got := r.asFork(t, loop, said{"up", agent.LimitTimeout}, said{"up", agent.LimitGrace})
	if got != "fork timed_out SIGKILL run/exhausted up" {
		t.Errorf("%s", got)
	}
	r.wants(t, forked("print(2)"), "fork succeeded exit 0 2")
	large := forked("x = bytearray(1 << 30)\nx[::4096] = bytes(1 << 18)")
	large.Limits.MemoryBytes = 64 << 20
	if got = r.asFork(t, large); !strings.HasPrefix(got, "fork out_of_memory") && !strings.Contains(got, "MemoryError") {
		t.Errorf("%s", got)
	}
	full := forked(`
try:
    with open("large", "wb") as f:
        while True: f.write(bytes(1 << 20))
except OSError as e: print(e.errno)
`)
	full.Limits.DiskBytes = 8 << 20
	if got = r.asFork(t, full); !strings.HasPrefix(got, "fork succeeded exit 0 2") {
		t.Errorf("%s", got)
	}
	if !isRoot() {
		return // only a control group bounds the processes
	}
	many := forked(`
import os
n = 0
try:
    while n < 1000:
        if os.fork() == 0:
            import signal; signal.pause()
        n += 1
except OSError: print(n < 100)
`)
	many.Limits.PIDs = 20
	r.wants(t, many, "fork succeeded exit 0 True")
}

func TestNothingOfAForkIsLeftForTheNext(t *testing.T) {
	r := boxed(t, nil)
	r.warm(t, forked(""))
	r.wants(t, forked(`
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
print(libc.shmget(7, 4096, 0o1600) >= 0, libc.mq_open(b"/queue", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0)
open("/work/left", "w"); open("/tmp/left", "w"); open("/dev/shm/left", "w")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1); os.close(2)
        time.sleep(1e6)
    os._exit(0)
os.wait()
`), "fork succeeded exit 0 True True")
	const look = `
import os
print(sorted(os.listdir("/work")), os.listdir("/tmp"), os.listdir("/dev/shm"), len(open("/proc/sysvipc/shm").readlines()))
import ctypes
print(ctypes.CDLL(None).mq_open(b"/queue", os.O_RDWR) >= 0)
print(sum(n.isdigit() for n in os.listdir("/proc")))
`
	// The processes are the fork server and the program.
	r.wants(t, forked(look), "fork succeeded exit 0 ['main.py'] [] [] 1\nFalse\n2")
	r.wants(t, forked("import ctypes; print(ctypes.CDLL(None).shmget(7, 4096, 0o1600) >= 0)"), "fork succeeded exit 0 True")
	r.wants(t, forked(look), "fork succeeded exit 0 ['main.py'] [] [] 1\nFalse\n2")
}

func TestAProgramDoesNotDisturbItsForkServer(t *testing.T) {
	r := boxed(t, nil)
	r.warm(t, forked(""))
	for _, signal := range []string{"KILL", "STOP"} {
		start := forked("import os, signal\nos.kill(os.getppid(), signal.SIG" + signal + ")\nprint('done')")
		r.wants(t, start, "fork succeeded exit 0 done")
		r.wants(t, forked("print(2)"), "fork succeeded exit 0 2")
	}
	r.wants(t, forked(`
import os
for name in "mem", "environ", "fd":
    try: os.listdir("/proc/%d/fd" % os.getppid()) if name == "fd" else open("/proc/%d/%s" % (os.getppid(), name)); print(name)
    except PermissionError: pass
import ctypes, resource
libc, one = ctypes.CDLL(None), (ctypes.c_char * 128)(1)
for name, call in {
    "prlimit": lambda: libc.prlimit(1, resource.RLIMIT_NOFILE, bytes(16), None),
    "sched_setaffinity": lambda: libc.sched_setaffinity(1, 128, one),
    "setpriority": lambda: libc.setpriority(os.PRIO_PROCESS, 1, 19),
    "setpriority of the user": lambda: libc.setpriority(os.PRIO_USER, 0, 19),
    "ptrace": lambda: libc.ptrace(0x4206, 1, None, None),
}.items():
    if call() != -1: print(name)
try: os.kill(-1, 9)  # all but the first process and this one
except ProcessLookupError: pass
print("done")
`), "fork succeeded exit 0 done")
	r.wants(t, forked(`
import ctypes, os
for n in set(range(1, 65)) - {9, 19}: os.kill(1, n)
for _ in range(100): ctypes.CDLL(None).sigqueue(1, 40, None)
print("done")
`), "fork succeeded exit 0 done")
	r.wants(t, forked(`print({int(line.split()[1], 16) for line in open("/proc/1/status") if "Pnd" in line})`), "fork succeeded exit 0 {0}")
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 - nice: the tests may run with another niceness
	must(t, err)
	r.wants(t, forked("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 100, __import__('os').nice(0))"),
		fmt.Sprintf("fork succeeded exit 0 True %d", 20-priority))
}

func TestAKilledRunnerLeavesNoFork(t *testing.T) {
	r := boxed(t, nil)
	r.warm(t, forked(""))
	killedRunner(t, r, func(code string) Start {
		return forked("import os\nassert os.getppid() == 1\n" + code) // it is a fork
	})
}

func TestAForkHasTheNetworkOfItsExecution(t *testing.T) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	must(t, err)
	for _, private := range []bool{true, false} {
		t.Run(fmt.Sprintf("private %v", private), func(t *testing.T) {
			needtest.Need(t, !private || !isRoot() || network.Probe() == nil, needtest.Root, "network namespaces with a way out")
			r := boxed(t, func(cfg *Config) { cfg.PrivateNetwork = private })
			start := forked(`import os, socket; print(os.readlink("/proc/self/ns/net")); socket.create_server(("127.0.0.1", 0))`)
			seen := map[string]string{}
			for _, want := range []string{"exec network true", "fork network true", "exec network false", "fork network false"} {
				start.Network = strings.HasSuffix(want, "true")
				run := r.how
				if strings.HasPrefix(want, "fork") {
					run = r.asFork
					r.warm(t, start)
				}
				how, end, _ := strings.Cut(run(t, start), " succeeded exit 0 ")
				if got := fmt.Sprintf("%s network %v", how, start.Network); got != want {
					t.Errorf("%s, want %s: %s", got, want, end)
				}
				seen[want] = end
			}
			with := seen["exec network true"]
			if seen["fork network true"] != with || seen["fork network false"] == with || (with == own) == private {
				t.Errorf("the namespaces are %v, that of the host is %s", seen, own)
			}
		})
	}
}

// The kernel takes the memory of a program apart at its end. The answer does not wait for that, and the next program does.
func TestAnAnswerDoesNotWaitForTheMemoryOfItsProgram(t *testing.T) {
	cfg := boxConfig(t)
	needtest.Need(t, len(cfg.Cgroups) > 0, needtest.Cgroup, "without control groups nobody counts the threads of a program")
	r := startBoxed(t, cfg)
	large := forked(`open("left", "w").close(); x = b"x" * (128 << 20)`)
	r.warm(t, large)
	awaittest.Until(t, "an answer that comes while the program exits", func() bool {
		res, rec := r.run(t, large, RunInput{})
		s := <-rec.started
		// The kernel closes its files after that.
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID))
		early := s.Start == executor.StartFork && err == nil && len(open) > 0 && sandbox.IsExiting(s.PID)
		if got := describe(res); got != "succeeded exit 0" || res.PeakMemoryBytes < 128<<20 || res.PeakMemoryBytes > 192<<20 || res.CPU <= 0 {
			t.Fatalf("%s with a peak of %d bytes and %v of CPU time", got, res.PeakMemoryBytes, res.CPU)
		}
		return early
	})
	r.wants(t, forked(`import os; print(os.listdir())`), "fork succeeded exit 0 ['main.py']")
}

// Each program without a fork ends the fork server of the one before.
func TestAForkServerLeavesNoDescriptors(t *testing.T) {
	needtest.NeedRoot(t) // nobody else may list the descriptors of a runner
	r := boxed(t, nil)
	open := func() (links []string) {
		in, input := io.Pipe()
		rec := newRecord()
		go func() {
			<-rec.started
			folder := fmt.Sprintf("/proc/%d/fd/", r.cmd.Process.Pid)
			files, _ := os.ReadDir(folder)
			for _, f := range files {
				link, _ := os.Readlink(folder + f.Name())
				links = append(links, link)
			}
			_ = input.Close()
		}()
		res, err := r.Run(t.Context(), python("import sys; sys.stdin.read()"), RunInput{Stdin: in}, rec)
		if err != nil || describe(res) != "succeeded exit 0" || len(links) == 0 {
			t.Errorf("%s, %d descriptors, %v", describe(res), len(links), err)
		}
		return links
	}
	r.warm(t, forked(""))
	once := open()
	for range 3 {
		r.warm(t, forked(""))
		open()
	}
	// The looks at the memory of a program have descriptors for a time.
	awaittest.UntilNil(t, "as few descriptors as after one server", func() error {
		if thrice := open(); len(thrice) > len(once) {
			return fmt.Errorf("after one server\n%q\nafter more\n%q", once, thrice)
		}
		return nil
	})
}
