package backendtest

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func limitRules() []rule {
	return []rule{
		{"BE-30", "the timeout ends the program: timed_out, not before its time and not long after, and the Result names config.timeout_seconds", timeout},
		{"BE-31", "the timeout counts from Started: preparation does not shorten it", timeoutFromStarted},
		{"BE-32", "a program that exits within the grace keeps the status of the limit, and its exit code", graceOnTimeout},
		{"BE-33", "memory beyond the limit ends the program as out_of_memory, however large its disk may be, and the Result names config.memory_mb; or asking for the limit is refused", memoryLimit},
		{"BE-34", "a work folder beyond the disk limit is an error of the program's write, and the Result names config.disk_mb if the program fails; or asking for the limit is refused", diskLimit},
		{"BE-35", "a fork bomb is contained by the process limit, or asking for the limit is refused", pidLimit},
		{"BE-36", "network off means that nothing but the program's own loopback answers, or it is refused", networkOff},
		{"BE-37", "network on means that the network answers, or it is refused", networkOn},
		{"BE-38", "with an isolation other than none, host files are invisible; with none they are visible", isolation},
		{"BE-65", "more CPU time than the limit, of all processes together and also of those that have ended, is timed_out, and the Result names config.cpu_seconds; a program that waits uses none; or asking for the limit is refused", cpuTime},
		{"BE-39", "files within the disk limit take nothing from the memory limit", filesAreNoMemory},
	}
}

var hang = Program{
	Python: "import time\nprint('up')\ntime.sleep(3600)\n",
	Fake:   "print up\nhang",
}

func timeout(c *Case) {
	for _, p := range []Program{
		hang,
		{Python: "print('up')\nwhile True:\n    print('x' * 10000)\n", Fake: "print up\nflood stdout 1000GB"},
		{Python: "print('up', flush=True)\nwhile True:\n    pass\n", Fake: "print up\nbusy 1h"},
	} {
		r := c.byTheClock(false, func(timeout, grace time.Duration) *running {
			job := c.job(p)
			job.Limits.Timeout, job.Limits.KillGrace, job.Limits.OutputBytes = timeout, grace, executor.Unlimited
			return c.start(job, func(r *running) {
				over := make(chan struct{})
				time.AfterFunc(timeout, func() { close(over) })
				r.holds(over)
			})
		})
		r.inTime(r.job.Limits.Timeout).hit(executor.FieldTimeout)
	}
}

// burning defines burn for the programs of cpuTime.
const burning = `
import os, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

`

func cpuTime(c *Case) {
	limited := func(limit time.Duration, p Program) *running {
		job := c.job(p)
		job.Limits.CPUTime, job.Spec.Limits.CPUTime, job.Limits.Timeout = limit, limit, awaittest.Forever
		return c.start(job)
	}
	if !c.caps().CPUTime {
		if why := refusal(limited(time.Second, helloProgram).wait(), executor.FieldCPUTime); why != "" {
			c.Errorf("%s", why)
		}
		return
	}
	const limit = 400 * time.Millisecond
	for what, p := range map[string]Program{
		"the program":   {Python: "while True:\n    pass\n", Fake: "busy 1h"},
		"its children":  {Python: burning + "for _ in range(60):\n    if os.fork() == 0:\n        burn(0.05)\n        os._exit(0)\n    os.wait()\n", Fake: "busy 1h"},
		"its orphans":   {Python: burning + "for _ in range(60):\n    r, w = os.pipe()\n    if os.fork() == 0:\n        if os.fork() == 0:\n            burn(0.05)\n        os._exit(0)\n    os.close(w)\n    os.wait()\n    os.read(r, 1)\n    os.close(r)\n", Fake: "busy 1h"},
		"unwaited ones": {Python: burning + "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(3):\n    r, w = os.pipe()\n    if os.fork() == 0:\n        burn(1)\n        os._exit(0)\n    os.close(w)\n    os.read(r, 1)\n    os.close(r)\n", Fake: "busy 1h"},
	} {
		r := limited(limit, p).wait().status(executor.StatusTimedOut).hit(executor.FieldCPUTime)
		if cpu := r.result.CPU; cpu >= 0 && (cpu < limit || cpu > limit+late) {
			c.Errorf("%s: ended after %s of CPU time, want %s", what, cpu, limit)
		}
	}
	// It may end before anybody looks.
	limited(time.Nanosecond, Program{Python: "print('quick')\n", Fake: "busy 1ms"}).wait().status(executor.StatusTimedOut).hit(executor.FieldCPUTime)
	limited(time.Second, Program{Python: "import time\ntime.sleep(1.5)\nprint('waited')\n", Fake: "sleep 10s\nprint waited"}).wait().succeeded().prints("waited\n")
}

// slowTar gives job a Workspace whose tar arrives after delay.
func (c *Case) slowTar(job *executor.Job, tar []byte, delay time.Duration) {
	in, out := io.Pipe()
	job.Workspace = c.source("workspace", nil, func() io.ReadCloser {
		time.AfterFunc(delay, func() {
			_, err := out.Write(tar)
			_ = out.CloseWithError(err) // it returns nil
		})
		return in
	})
}

func timeoutFromStarted(c *Case) {
	r := awaittest.Ladder(c, time.Second, func(limit time.Duration) (*running, bool) {
		job := c.job(Program{Python: "print('in time')\n", Fake: "print in time"})
		job.Limits.Timeout = limit
		c.slowTar(&job, archive(entry{name: "a.txt", text: "a"}), limit+limit/8)
		r := c.run(job)
		return r, r.result.Status != executor.StatusTimedOut // a busy machine may need longer for the program itself
	}).succeeded().prints("in time\n")
	if limit := r.job.Limits.Timeout; r.result.Phases.Prepare < limit {
		c.Errorf("phase prepare took %s, it must have been at least %s", r.result.Phases.Prepare, limit)
	}
}

// leavesOnTerm prints "up" when it is ready, and exits with 0 at SIGTERM.
// It sleeps in short steps: CPython runs no handler for a signal that arrives just before a sleep begins until that sleep ends.
var leavesOnTerm = Program{
	Python: `
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up")
while True:
    time.sleep(0.05)
`,
	Fake: "on-term 0\nprint up\nhang",
}

func graceOnTimeout(c *Case) {
	c.timesOut(false, c.limited(leavesOnTerm)).exit(0)
}

func memoryLimit(c *Case) {
	job := c.job(Program{
		Python: "print('up')\nkeep = []\nwhile True:\n    keep.append(bytearray(b'x' * (4 << 20)))\n",
		Fake:   "print up\nalloc 1GB",
	})
	job.Limits.MemoryBytes = 96 << 20
	job.Spec.Limits.MemoryBytes = 96 << 20
	job.Limits.DiskBytes = 32 << 20 // a work folder in memory may count together with it
	if !c.caps().Memory {
		c.refused(job, "config.memory_mb")
		return
	}
	r := c.run(job).status(executor.StatusOutOfMemory).hit("config.memory_mb").prints("up\n")
	if peak := r.result.PeakMemoryBytes; peak != 0 && (peak < 16<<20 || peak > 192<<20) {
		c.Errorf("its peak is given as %d MiB, the limit was 96", peak>>20)
	}
	c.memoryBesideDisk()
	// A program below the limit succeeds.
	fits := c.job(Program{Python: "b = bytearray(b'x' * (24 << 20))\nprint('fits')\n", Fake: "alloc 24MB\nprint fits"})
	fits.Limits.MemoryBytes, fits.Spec.Limits.MemoryBytes = 128<<20, 128<<20
	r = c.run(fits).succeeded().prints("fits\n")
	if peak := r.result.PeakMemoryBytes; peak != 0 && (peak < 24<<20 || peak > 128<<20) {
		c.Errorf("its peak is given as %d MiB, it used a little more than 24", peak>>20)
	}
}

// memoryBesideDisk checks that a large disk limit does not raise the memory limit.
func (c *Case) memoryBesideDisk() {
	if c.caps().Isolation == executor.IsolationVM {
		return // the limit is for all memory of its kernel, including files
	}
	for what, p := range map[string]Program{
		"memory":        {Python: "import time\nkeep = b'x' * (320 << 20)\nprint('kept')\ntime.sleep(3600)\n", Fake: "alloc 320MB\nprint kept"},
		"shared memory": {Python: "import mmap, time\nkeep = mmap.mmap(-1, 320 << 20)\nfor _ in range(320):\n    keep.write(b'x' * (1 << 20))\nprint('kept')\ntime.sleep(3600)\n", Fake: "alloc 320MB\nprint kept"},
	} {
		job := c.job(p)
		job.Limits.MemoryBytes, job.Spec.Limits.MemoryBytes = 64<<20, 64<<20
		job.Limits.DiskBytes, job.Spec.Limits.DiskBytes = 1<<30, 1<<30
		if !c.caps().Disk {
			job.Spec.Limits.DiskBytes = 0
		}
		if r := c.run(job); r.result.Status != executor.StatusOutOfMemory {
			c.Errorf("320 MiB of %s where 64 may be, beside a disk of 1 GiB: %s", what, r.verdict())
		} else {
			r.hit("config.memory_mb")
		}
	}
}

func filesAreNoMemory(c *Case) {
	if !c.caps().Memory || !c.caps().Disk {
		c.Skipf("this backend does not bound both memory and disk")
	}
	job := c.job(Program{
		Python: `
import time
with open("big", "wb") as f:
    for _ in range(96):
        f.write(b"x" * (1 << 20))
time.sleep(0.5)
print("written")
`,
		Fake: "fill-file big 96MB\nprint written",
	})
	job.Limits.MemoryBytes, job.Spec.Limits.MemoryBytes = 64<<20, 64<<20
	job.Limits.DiskBytes, job.Spec.Limits.DiskBytes = 192<<20, 192<<20
	c.run(job).succeeded().prints("written\n")
}

func diskLimit(c *Case) {
	job := c.job(Program{
		Python: `
try:
    with open("big", "wb") as f:
        for _ in range(64):
            f.write(b"x" * (1 << 20))
            f.flush()
    print("written")
except OSError:
    print("full")
`,
		Fake: "fill-file big 64MB\nprint written",
	})
	job.Limits.DiskBytes = 16 << 20
	job.Spec.Limits.DiskBytes = 16 << 20
	if !c.caps().Disk {
		c.refused(job, "config.disk_mb")
		return
	}
	r := c.run(job)
	if r.stdout() == "written\n" {
		c.Errorf("64 MiB were written into 16 MiB")
	}
	fails := c.job(Program{Python: "open('big', 'wb').write(b'x' * (64 << 20))\n", Fake: "fill-file big 64MB"})
	fails.Limits.DiskBytes, fails.Spec.Limits.DiskBytes = 16<<20, 16<<20
	c.run(fails).status(executor.StatusFailed).exit(1).hit("config.disk_mb")
	fits := c.job(Program{
		Python: "open('small', 'wb').write(b'x' * (4 << 20))\nprint('written')\n",
		Fake:   "fill-file small 4MB\nprint written",
	})
	fits.Limits.DiskBytes, fits.Spec.Limits.DiskBytes = 16<<20, 16<<20
	c.run(fits).succeeded().prints("written\n")
	// The files of the Workspace count too.
	large := c.job(helloProgram)
	large.Limits.DiskBytes, large.Spec.Limits.DiskBytes = 1<<20, 1<<20
	c.workspace(&large, archive(entry{name: "large.bin", text: string(make([]byte, 4<<20))}))
	r = c.run(large).status(executor.StatusFailed)
	if r.hasStarted() || r.result.Failure == nil || r.result.Failure.Phase != executor.PhasePrepare {
		c.Errorf("a workspace of 4 MiB in 1 MiB: %s", r.verdict())
	}
}

func pidLimit(c *Case) {
	job := c.job(Program{
		Python: `
import os, sys, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(3600)
            os._exit(0)
        made += 1
    print("forked", made)
except OSError:
    print("refused after", made)
`,
		Fake: "fork 200",
	})
	job.Limits.PIDs = 24
	job.Spec.Limits.PIDs = 24
	job.Spec.Args = []string{c.mark()}
	if !c.caps().PIDs {
		c.refused(job, "config.pids")
		return
	}
	r := c.run(job)
	var made int64
	if _, err := fmt.Sscanf(r.stdout(), "refused after %d\n", &made); err != nil {
		c.Errorf("of 200 forks none was refused where %d processes may be: %q", job.Limits.PIDs, clip(r.stdout()))
	}
	// Threads of a runner may count against the same limit, so a program may get slightly fewer or more processes.
	const few = 8
	if made >= job.Limits.PIDs+few || made < job.Limits.PIDs/2 {
		c.Errorf("the program started %d processes although config.pids is %d", made, job.Limits.PIDs)
	}
	c.noneLeft()
	// The next Execution is not affected.
	c.program(helloProgram).succeeded()
}

// knock returns a program that tries to open a TCP connection to address.
func knock(address string) Program {
	host, port, _ := net.SplitHostPort(address)
	return Program{
		Python: fmt.Sprintf(`
import socket
try:
    socket.create_connection((%q, %s), timeout=20).close()
    print("connected")
except OSError:
    print("unreachable")
`, host, port),
		Fake: "connect " + address,
	}
}

// listen opens a port of the host. It returns an address that a program with the host's network can reach.
func (c *Case) listen() string { return c.listenAt("127.0.0.1:0") }

func (c *Case) listenAt(address string) string {
	var lc net.ListenConfig
	l, err := lc.Listen(c.ctx, "tcp", address)
	if err != nil {
		c.Fatalf("listen: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // the connection is all that knock needs
		}
	}()
	c.Cleanup(func() {
		_ = l.Close() // ends the loop
		<-done
	})
	return l.Addr().String()
}

func networkOff(c *Case) {
	job := c.job(knock(c.listen()))
	job.Spec.Network = executor.NetworkOff
	if !c.caps().NetworkOff {
		c.refused(job, "config.network_disabled")
		return
	}
	c.run(job).succeeded().prints("unreachable\n")
	// The network is also on by default, if the Backend supports it.
	job = c.job(knock(c.listen()))
	c.run(job).succeeded().prints("unreachable\n")
	own := c.job(Program{
		Python: `
import socket
l = socket.create_server(("127.0.0.1", 0))
socket.create_connection(l.getsockname(), timeout=20).close()
print("up")
`,
		Fake: "loopback",
	})
	own.Spec.Network = executor.NetworkOff
	c.run(own).succeeded().prints("up\n")
}

func networkOn(c *Case) {
	reached := cmp.Or(c.suite.options.NetworkAddress, "127.0.0.1")
	job := c.job(knock(c.listenAt(net.JoinHostPort(reached, "0"))))
	job.Spec.Network = executor.NetworkOn
	if !c.caps().NetworkOn {
		c.refused(job, "config.network_disabled")
		return
	}
	if c.caps().Isolation != executor.IsolationNone && c.suite.options.NetworkAddress == "" && c.suite.options.Dialect != DialectFake {
		c.Skipf("isolation %s: the listener of the suite is not on this backend's network", c.caps().Isolation)
	}
	c.run(job).succeeded().prints("connected\n")
}

func isolation(c *Case) {
	name := c.hostFile("canary", "x", 0o644)
	want := "hidden\n"
	if c.caps().Isolation == executor.IsolationNone {
		// The file is one of the system's, because folders for temporary files may be private even without isolation.
		name, want = "/etc/passwd", "visible\n"
	}
	info, err := os.Stat(name)
	if err != nil {
		c.Fatalf("a file of the host: %v", err)
	}
	r := c.program(Program{
		Python: fmt.Sprintf(`
import os
try:
    found = os.stat(%q)
    print("visible" if (found.st_size, found.st_mtime_ns) == (%d, %d) else "hidden")
except OSError:
    print("hidden")
`, name, info.Size(), info.ModTime().UnixNano()),
		Fake: fmt.Sprintf("host-file %q", name),
	}).succeeded()
	if r.stdout() != want {
		c.Errorf("isolation is %q and a file of the host is %s", c.caps().Isolation, r.stdout())
	}
}

// refused ends the case unless Run refuses job with an error that names field, and emits nothing.
func (c *Case) refused(job executor.Job, field string) {
	r := c.start(job).wait()
	if why := refusal(r, field); why != "" {
		c.Errorf("%s", why)
	}
}

func refusal(r *running, field string) string {
	switch executor.CodeOf(r.err) {
	case "":
		return fmt.Sprintf("%s is not promised, and it was not refused: %s", field, r.verdict())
	case executor.Unimplemented, executor.Invalid, executor.Denied:
	default:
		return fmt.Sprintf("%s was refused with code %s: %v", field, executor.CodeOf(r.err), r.err)
	}
	if !names(r.err, field) {
		return fmt.Sprintf("%s was refused with an error whose Fields do not name it: %v", field, r.err)
	}
	if r.hasStarted() {
		return fmt.Sprintf("%s was refused after a program had been started", field)
	}
	return ""
}
