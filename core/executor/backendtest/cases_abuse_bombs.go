package backendtest

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseBombRules() []rule {
	return []rule{
		{"BE-215", "abuse: a fork bomb ends with its program, and its neighbour answers meanwhile", abuseForks},
		{"BE-216", "abuse: a memory bomb of many processes, or in shared memory, ends with its program, and its neighbour answers meanwhile", abuseMemory},
		{"BE-217", "abuse: a program can fill only its own disk, wherever it may write", abuseDisk},
		{"BE-218", "abuse: a hundred thousand empty files and folders hinder no other Execution", abuseInodes},
		{"BE-219", "abuse: a program that uses up descriptors hinders only itself", abuseDescriptors},
		{"BE-220", "abuse: a flood on both streams at once is counted byte for byte, and its neighbour answers meanwhile", abuseFlood},
	}
}

func abuseForks(c *Case) {
	c.need(c.caps().PIDs, "a limit for processes")
	job := c.job(Program{
		Python: `
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            os.fork()
        except OSError:
            pass
while True:  # until there is no room for another process
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
print("up", flush=True)
time.sleep(3600)
`,
		Fake: "fork 200\nprint up\nhang",
	})
	job.Limits.PIDs, job.Spec.Limits.PIDs = 48, 48
	job.Limits.KillGrace = 100 * time.Millisecond
	job.Spec.Args = []string{c.mark()}
	n := c.neighbour()
	r := c.start(job)
	r.says("up\n")
	n.answers()
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled)
	n.leaves()
	c.noneLeft()
	if c.suite.options.Dialect == DialectFake && r.stdout() != "refused after 47\nup\n" {
		c.Errorf("200 processes where 48 may be: %q", r.stdout())
	}
}

func abuseMemory(c *Case) {
	c.need(c.caps().Memory, "a limit for memory")
	bombs := []Program{{
		Python: `
import os, sys, time
for _ in range(4):
    if os.fork() == 0:
        keep = []
        while True:
            keep.append(bytearray(b"x" * (1 << 20)))
status = [os.wait()[1] for _ in range(4)]
print("all are gone")
sys.exit(1)
`,
		Fake: "print up\nalloc 1GB",
	}, {
		Python: `
import mmap, sys
shared = mmap.mmap(-1, 512 << 20)
for at in range(0, 512 << 20, 4096):
    shared[at] = 1
print("through")
`,
		Fake: "alloc 512MB\nprint through",
	}}
	if c.caps().Isolation != executor.IsolationNone {
		bombs = append(bombs, Program{
			Python: `
import os, sys
kept = []
try:
    f = open("/dev/shm/bomb", "wb")
    for _ in range(512):
        f.write(b"x" * (1 << 20))
        f.flush()
    print("through")
except OSError:
    print("full")
    sys.exit(1)
`,
			Fake: "alloc 512MB\nprint through",
		})
	}
	for _, bomb := range bombs {
		n := c.neighbour()
		job := c.job(bomb)
		job.Limits.MemoryBytes, job.Spec.Limits.MemoryBytes = 96<<20, 96<<20
		job.Limits.DiskBytes = 16 << 20
		r := c.start(job)
		n.answers()
		r.wait().status(executor.StatusOutOfMemory, executor.StatusFailed)
		n.leaves()
	}
}

// abuseDisk fills every writable folder, one after the other.
func abuseDisk(c *Case) {
	c.need(c.caps().Disk, "a limit for the disk")
	const maxBytes = "192 << 20"
	job := c.job(Program{
		Python: `
import os, sys
def fill(folder):
    path, size = os.path.join(folder, "fill"), 0
    try:
        with open(path, "wb", buffering=0) as f:
            while size < ` + maxBytes + `:
                size += f.write(b"x" * (1 << 20))
    except OSError:
        pass
    try:
        os.unlink(path)
    except OSError:
        pass
    return size
for folder in (".", os.environ.get("TMPDIR", "/tmp"), "/tmp", "/var/tmp", "/run", "/dev/shm", "/dev", "/dev/mqueue", "/var/lock"):
    size = fill(folder)
    print("through" if size >= ` + maxBytes + ` else "kept", folder, size, flush=True)
`,
		Fake: "print kept\nfill-file big 256MB\nprint through",
	})
	job.Limits.DiskBytes, job.Spec.Limits.DiskBytes = 16<<20, 16<<20
	job.Limits.MemoryBytes = 128 << 20
	n := c.neighbour()
	r := c.start(job)
	n.answers()
	r.wait().status(executor.StatusSucceeded, executor.StatusFailed, executor.StatusOutOfMemory)
	n.leaves()
	c.saysNothingOf(r, "through")
}

// saysNothingOf fails the case for every line of stdout that begins with word.
func (c *Case) saysNothingOf(r *running, word string) {
	for line := range lines(r.stdout()) {
		if len(line) >= len(word) && line[:len(word)] == word {
			c.Errorf("it says %q", line)
		}
	}
}

func abuseInodes(c *Case) {
	job := c.job(Program{
		Python: `
import os
made = 0
try:
    for folder in range(100):
        os.mkdir("d%d" % folder)
        for name in range(1000):
            os.close(os.open("d%d/%d" % (folder, name), os.O_CREAT | os.O_WRONLY))
            made += 1
except OSError as e:
    print("refused", e)
print("made", made)
`,
		Fake: "print made 100000",
	})
	job.Limits.Timeout = 90 * time.Second
	n := c.neighbour()
	r := c.start(job)
	n.answers()
	r.wait().status(executor.StatusSucceeded, executor.StatusFailed, executor.StatusOutOfMemory, executor.StatusTimedOut)
	n.leaves()
	// The resources of the program can be used again.
	c.remove(job.ID)
	c.program(helloProgram).succeeded()
}

func abuseDescriptors(c *Case) {
	job := c.job(Program{
		Python: `
import errno, os
kept = 0
try:
    while kept < 1100000:
        os.dup(0)
        kept += 1
    print("through", kept)
except OSError as e:
    print(errno.errorcode[e.errno])
`,
		Fake: "print EMFILE",
	})
	n := c.neighbour()
	r := c.start(job)
	n.answers()
	r.wait().succeeded().prints("EMFILE\n")
	n.leaves()
}

func abuseFlood(c *Case) {
	const size, kept = 16 << 20, 1 << 20
	job := c.job(Program{
		Python: `
import os, threading
def flood(fd):
    left, piece = 16 << 20, b"0123456789abcde\n" * 4096
    while left > 0:
        left -= os.write(fd, piece[:left])
threads = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
`,
		Fake: "flood stdout 16MB\nflood stderr 16MB",
	})
	job.Limits.OutputBytes = kept
	n := c.neighbour()
	r := c.start(job)
	n.answers()
	r.wait().succeeded()
	n.leaves()
	if res := r.result; res.StdoutBytes != size || res.StderrBytes != size || !res.StdoutTruncated || !res.StderrTruncated {
		c.Errorf("%d and %d bytes were counted (truncated %t and %t), %d were written to each stream",
			res.StdoutBytes, res.StderrBytes, res.StdoutTruncated, res.StderrTruncated, size)
	}
	if len(r.stdout()) != kept || len(r.stderr()) != kept {
		c.Errorf("%d and %d bytes were kept, want %d of each", len(r.stdout()), len(r.stderr()), kept)
	}
}
