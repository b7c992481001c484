//go:build linux

package runner

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

func TestTheOutputCapCountsAndTheProgramGoesOn(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := python(`
import sys
for _ in range(2000): sys.stdout.buffer.write(b"x" * 1000)
sys.stderr.write("still here")
`)
	start.Limits.OutputBytes = 4321
	res, rec := r.run(t, start, RunInput{})
	if len(rec.stdout()) != 4321 || res.StdoutBytes != 2_000_000 || !res.StdoutTruncated {
		t.Errorf("kept %d of %d, truncated %v", len(rec.stdout()), res.StdoutBytes, res.StdoutTruncated)
	}
	if rec.stderr() != "still here" || res.StderrBytes != 10 || res.StderrTruncated {
		t.Errorf("stderr %q, %d, %v", rec.stderr(), res.StderrBytes, res.StderrTruncated)
	}
	if res.Status != executor.StatusSucceeded {
		t.Error(describe(res))
	}
}

func TestExactlyTheCapIsNotTruncated(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := shell("printf 12345")
	start.Limits.OutputBytes = 5
	res, rec := r.run(t, start, RunInput{})
	if rec.stdout() != "12345" || res.StdoutTruncated {
		t.Errorf("%q %v", rec.stdout(), res.StdoutTruncated)
	}
}

func TestAFloodWithASlowSinkLosesNothing(t *testing.T) {
	r := startRunner(t, testConfig(t))
	start := python(`
import sys
for i in range(20):
    sys.stdout.buffer.write(bytes([65 + i]) * (1 << 20))
    sys.stderr.buffer.write(bytes([97 + i]) * (1 << 16))
`)
	start.Limits.OutputBytes = executor.Unlimited
	res, rec := r.run(t, start, RunInput{})
	if res.StdoutBytes != 20<<20 || res.StderrBytes != 20<<16 || describe(res) != "succeeded exit 0" {
		t.Fatalf("%d %d %s", res.StdoutBytes, res.StderrBytes, describe(res))
	}
	for i := range 20 {
		if got := rec.stdout()[i<<20]; got != byte(65+i) {
			t.Fatalf("out of order at MiB %d: %c", i, got)
		}
	}
}

func TestABurstAtTheEndIsWhole(t *testing.T) {
	r := startRunner(t, testConfig(t))
	for range 5 {
		res, rec := r.run(t, python(`import os, sys; sys.stdout.write("y" * 200_000); sys.stdout.flush(); os._exit(0)`), RunInput{})
		if len(rec.stdout()) != 200_000 || res.StdoutBytes != 200_000 {
			t.Fatalf("%d bytes, counted %d", len(rec.stdout()), res.StdoutBytes)
		}
	}
}

const eat = `
import os, sys
def eat():
    keep = []
    while True: keep.append(bytearray(os.urandom(1 << 20)))
`

func TestTheMemoryLimit(t *testing.T) {
	cfg := testConfig(t)
	needtest.Need(t, sandbox.Cgroups(cfg.Cgroups).Enforces("memory"), needtest.Cgroup, "a memory control group")
	r := startRunner(t, cfg)
	for _, c := range []struct{ name, code, want string }{
		{"ends the program that exceeds it", eat + "eat()", "out_of_memory SIGKILL run/exhausted"},
		{"a child that it kills is not the program", eat + `
if (pid := os.fork()) == 0: eat()
_, status = os.waitpid(pid, 0)
sys.exit(0 if os.WTERMSIG(status) == 9 else 1)`, "succeeded exit 0"},
		{"leaves a modest program alone", "x = bytearray(8 << 20)", "succeeded exit 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := python(c.code)
			start.Limits.MemoryBytes, start.Limits.DiskBytes = 40<<20, 8<<20
			res, rec := r.run(t, start, RunInput{})
			if got := describe(res); got != c.want {
				t.Errorf("got %q, want %q\n%s", got, c.want, rec.stderr())
			}
			if res.PeakMemoryBytes < 4<<20 || res.PeakMemoryBytes > 49<<20 {
				t.Errorf("peak %d", res.PeakMemoryBytes)
			}
		})
	}
}

func TestControlGroupsThatAreUsedAgainMeasureAnew(t *testing.T) {
	cfg := testConfig(t)
	needtest.Need(t, sandbox.Cgroups(cfg.Cgroups).Enforces("memory"), needtest.Cgroup, "a memory control group")
	r := startRunner(t, cfg)
	limits := func(s Start) Start {
		s.Limits.MemoryBytes, s.Limits.DiskBytes, s.Limits.PIDs = 200<<20, 8<<20, 20
		return s
	}
	const busy = "import time\nx = bytearray(64 << 20)\nt = time.process_time()\nwhile time.process_time() - t < 0.5: pass"
	const forks = `
import os, time
n = 0
try:
    while True:
        if os.fork() == 0: time.sleep(1e6)
        n += 1
except OSError: print(n)
`
	for _, c := range []struct{ name, code, want, stdout string }{
		{"much", busy, "succeeded exit 0", ""},
		{"little", "print(1)", "succeeded exit 0", "1\n"},
		{"all processes", forks, "succeeded exit 0", "19\n"},
		{"all processes again", forks, "succeeded exit 0", "19\n"},
		{"too much", "x = bytearray(1 << 30)", "out_of_memory SIGKILL run/exhausted", ""},
		{"little again", "print(1)", "succeeded exit 0", "1\n"},
	} {
		res, rec := r.run(t, limits(python(c.code)), RunInput{})
		if got := describe(res); got != c.want || c.stdout != "" && rec.stdout() != c.stdout {
			t.Errorf("%s: %s, %q", c.name, got, rec.stdout())
		}
		if c.stdout == "1\n" && (res.PeakMemoryBytes > 40<<20 || res.CPU > 500*time.Millisecond) {
			t.Errorf("%s: peak %d, CPU %s", c.name, res.PeakMemoryBytes, res.CPU)
		}
	}
	var seen []string
	for range 3 {
		_, rec := r.run(t, limits(python("print([s for s in open('/proc/self/cgroup') if ':memory:' in s])")), RunInput{})
		seen = append(seen, rec.stdout())
	}
	if cfg.Cgroups["memory"] != "" && (seen[1] != seen[2] || !strings.Contains(seen[1], "memory")) { // the first ones may be new
		t.Errorf("version 1 groups are not used again: %q", seen)
	}
}

// sampled runs code, in which SECONDS is how long it runs, until its memory was sampled at least so often.
func sampled(t *testing.T, r *testRunner, code string, interval time.Duration, least int) executor.Result {
	t.Helper()
	return awaittest.Ladder(t, 300*time.Millisecond, func(long time.Duration) (executor.Result, bool) {
		start := python(strings.ReplaceAll(code, "SECONDS", fmt.Sprint(long.Seconds())) + "\nprint(time.process_time())")
		start.SampleInterval = interval
		res, rec := r.run(t, start, RunInput{})
		checkCPU(t, "a program that is sampled", res, rec)
		return res, len(res.MemorySamples) >= least
	})
}

func TestMemoryWithoutControlGroups(t *testing.T) {
	cfg := testConfig(t)
	cfg.Cgroups = nil
	r := startRunner(t, cfg)
	res := sampled(t, r, "import time\nx = bytearray(64 << 20)\ntime.sleep(SECONDS)", 10*time.Millisecond, 3)
	if res.PeakMemoryBytes < 64<<20 || res.PeakMemoryBytes > 128<<20 {
		t.Errorf("peak %d", res.PeakMemoryBytes)
	}
	start := python("bytearray(1 << 30)")
	start.Limits.MemoryBytes = 32 << 20
	if res, rec := r.run(t, start, RunInput{}); describe(res) != "failed exit 1" || !strings.Contains(rec.stderr(), "MemoryError") {
		t.Errorf("%s\n%s", describe(res), rec.stderr())
	}
}

// The runner is stopped while the program grows and ends, as on a busy machine.
func TestThePeakAtTheEndOfAProgramCounts(t *testing.T) {
	cfg := testConfig(t)
	cfg.Cgroups = nil
	r := startRunner(t, cfg)
	rec := newRecord()
	rec.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindOutput {
			pid := (<-rec.started).PID
			must(t, r.cmd.Process.Signal(unix.SIGSTOP))
			awaittest.Until(t, "the runner is stopped", func() bool { return stateOf(r.cmd.Process.Pid) == "T" })
			must(t, unix.Kill(pid, unix.SIGUSR1))
			awaittest.Until(t, "the program has ended", func() bool { return stateOf(pid) == "Z" })
			must(t, r.cmd.Process.Signal(unix.SIGCONT))
		}
		return nil
	}
	start := python(`
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("up", flush=True)
signal.sigwait([signal.SIGUSR1])
x = bytearray(64 << 20)
`)
	res, err := r.Run(awaittest.Context(t), start, RunInput{}, rec)
	if err != nil || describe(res) != "succeeded exit 0" || res.PeakMemoryBytes < 64<<20 || res.PeakMemoryBytes > 128<<20 {
		t.Errorf("%s, %v, a peak of %d bytes", describe(res), err, res.PeakMemoryBytes)
	}
}

// stateOf returns the letter of the state of a process, and "" of none.
func stateOf(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // one that is gone has none
	_, after, _ := strings.Cut(string(raw), ") ")
	state, _, _ := strings.Cut(after, " ")
	return state
}

func TestMemorySamplesAndCPUTime(t *testing.T) {
	r := startRunner(t, testConfig(t))
	burns := "import time\nx = bytearray(32 << 20)\nt = time.process_time()\nwhile time.process_time() - t < SECONDS: pass"
	res := sampled(t, r, burns, 20*time.Millisecond, 5)
	var highest int64
	for _, s := range res.MemorySamples {
		highest = max(highest, s.Bytes)
	}
	if highest < 32<<20 {
		t.Errorf("%+v", res.MemorySamples)
	}
}

func TestTheCPUTimeOfAllProcessesIsBounded(t *testing.T) {
	const burns = "import os, signal, time\ndef burn(s):\n    while time.process_time() < s: pass\n"
	cfg := testConfig(t)
	bare := cfg
	bare.Cgroups = nil
	plain := bare
	plain.Tmpfs, plain.Box = false, false
	for name, cfg := range map[string]Config{"control group": cfg, "a box": bare, "nothing": plain} {
		t.Run(name, func(t *testing.T) {
			r := startRunner(t, cfg)
			for what, code := range map[string]string{
				"children": "for _ in range(40):\n    if os.fork() == 0:\n        burn(0.05)\n        os._exit(0)\n    os.wait()\n",
				"orphans":  "for _ in range(40):\n    r, w = os.pipe()\n    if os.fork() == 0:\n        os.fork() or burn(0.05)\n        os._exit(0)\n    os.close(w)\n    os.wait(), os.read(r, 1), os.close(r)\n",
				"unwaited": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(3):\n    r, w = os.pipe()\n    if os.fork() == 0:\n        burn(1)\n        os._exit(0)\n    os.close(w)\n    os.read(r, 1), os.close(r)\n",
			} {
				start := python(burns + code)
				start.Fork, start.Limits.CPUTime, start.Limits.Timeout = "owner", 300*time.Millisecond, awaittest.Forever
				res, rec := r.run(t, start, RunInput{})
				f := res.HitLimit()
				if res.Status != executor.StatusTimedOut || f == nil || f.Field != executor.FieldCPUTime || res.CPU < start.Limits.CPUTime {
					t.Errorf("%s: %s, %+v, %s of CPU time, %s", what, describe(res), f, res.CPU, rec.stderr())
				}
			}
		})
	}
}

func TestAForkBombIsContained(t *testing.T) {
	code := `
import os, time
n = 0
try:
    while True:
        if os.fork() == 0: time.sleep(1e6)
        n += 1
except OSError: print(n)
`
	cfg := testConfig(t)
	bare := cfg
	bare.Cgroups = nil
	needtest.Need(t, cfg.Cgroups != nil || isRoot(), needtest.Root, "without control groups the limit is that of a uid of its own")
	places := map[string]Config{"control group": cfg}
	if isRoot() {
		places["limit of the uid"] = bare
	}
	for name, cfg := range places {
		t.Run(name, func(t *testing.T) {
			r := startRunner(t, cfg)
			start := python(code)
			start.Limits.PIDs = 20
			_, rec := r.run(t, start, RunInput{})
			var n int
			if _, err := fmt.Sscan(rec.stdout(), &n); err != nil || n < 15 || n > 19 {
				t.Errorf("%d children (%q %v)", n, rec.stdout(), err)
			}
			bomb := shell("bomb() { bomb | bomb & }; echo up; bomb; exec sleep 1000000")
			bomb.Limits.PIDs = 20
			if res, _ := r.told(t, bomb, said{"up", agent.LimitTimeout}); res.Status != executor.StatusTimedOut && res.Status != executor.StatusFailed {
				t.Error(describe(res))
			}
		})
	}
}

func TestTheDiskLimit(t *testing.T) {
	cfg := testConfig(t)
	plain := cfg
	plain.Tmpfs, plain.Box = false, false
	code := `
import os
for i in range(%d):
    with open(f"f{i}", "wb") as f: f.write(b"x" * (3 << 20))
`
	for _, c := range []struct {
		name  string
		cfg   Config
		files int
		want  string
		ends  string
	}{
		{"holds for one file everywhere", plain, 1, "File too large", "failed exit 1"},
		{"holds for all files together on a tmpfs", cfg, 4, "No space left", "failed exit 1 run/exhausted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			needtest.Need(t, c.files == 1 || cfg.Tmpfs, needtest.Root, "the right to mount")
			r := startRunner(t, c.cfg)
			start := python(fmt.Sprintf(code, c.files))
			start.Limits.DiskBytes = int64(c.files)<<21 + 1<<20 - 4096
			if c.files == 1 {
				start.Limits.DiskBytes = 2 << 20
			} else {
				start.Limits.DiskBytes = 8 << 20
			}
			res, rec := r.run(t, start, RunInput{})
			if describe(res) != c.ends || !strings.Contains(rec.stderr(), c.want) {
				t.Errorf("%s\n%s", describe(res), rec.stderr())
			}
		})
	}
}

const reach = `
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
c = socket.create_connection(s.getsockname(), 60); print("loopback works")
print([n for _, n in socket.if_nameindex()])
`

func TestTheNetworkIsOnlyLoopback(t *testing.T) {
	cfg := testConfig(t)
	needtest.Need(t, cfg.NetworkNamespace, needtest.Root, "network namespaces")
	r := startRunner(t, cfg)
	_, rec := r.run(t, python(reach), RunInput{})
	if rec.stdout() != "loopback works\n['lo']\n" {
		t.Errorf("%s\n%s", rec.stdout(), rec.stderr())
	}
	ns := "import os; print(os.readlink('/proc/self/ns/net'))"
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	start := python(ns)
	if _, rec := r.run(t, start, RunInput{}); strings.TrimSpace(rec.stdout()) == own {
		t.Error("a program without a network is in the host's namespace")
	}
	start.Network = true
	if _, rec := r.run(t, start, RunInput{}); strings.TrimSpace(rec.stdout()) != own {
		t.Error("a program with the network is not in the host's namespace")
	}
}

// TestAnUnprivilegedRunner starts the runner as the uv backend does without root: inside user, mount and network
// namespaces of its own.
func TestAnUnprivilegedRunner(t *testing.T) {
	if err := sandbox.ProbeUserNamespace(); err != nil {
		needtest.Need(t, false, needtest.Root, err.Error())
	}
	cfg := Config{WorkRoot: workRoot(t), InNetworkNamespace: true, Tmpfs: true}
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if isRoot() {
		// As root of this machine the test plays another user.
		if err := os.Chown(cfg.WorkRoot, testUID, testUID); err != nil {
			t.Fatal(err)
		}
		attr.UidMappings[0].HostID, attr.GidMappings[0].HostID = testUID, testUID
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}
	}
	r := startRunnerAs(t, cfg, attr)
	_, rec := r.run(t, python(reach+`
import os
print([l.split()[1] for l in open("/proc/self/status") if l.startswith(("CapEff", "CapBnd", "NoNewPrivs"))])
for f in ("fd/0", "exe"):
    try: print(os.readlink(f"/proc/{os.getppid()}/{f}"))
    except OSError as e: print(e.strerror)
try: open(f"/proc/{os.getppid()}/mem"); print("reads the runner")
except OSError as e: print(e.strerror)
open("f", "w").write("x")
`), RunInput{})
	want := "loopback works\n['lo']\n['0000000000000000', '0000000000000000', '1']\nPermission denied\nPermission denied\nPermission denied\n"
	if rec.stdout() != want {
		t.Errorf("got\n%s\n%s", rec.stdout(), rec.stderr())
	}
	start := shell("exit 0")
	start.Network = true
	if res, _ := r.run(t, start, RunInput{}); describe(res) != "failed prepare/unimplemented" {
		t.Error(describe(res))
	}
}
