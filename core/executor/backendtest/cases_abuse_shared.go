package backendtest

import (
	"io"
	"os"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseSharedRules() []rule {
	return []rule{
		{"BE-226", "abuse: descriptors that a program has in flight, and timers that it has set, hinder no other Execution", abuseInFlight},
		{"BE-227", "abuse: files with holes are artifacts of their whole size, and beyond the disk limit or the budget of the job there are none", abuseHoles},
	}
}

// inFlightPython sets timers, and sends descriptors over sockets that nobody reads, until the kernel takes no more. The kernel counts both for
// all processes of a user. It then prints "up" and waits for the end of stdin.
const inFlightPython = `
import array, ctypes, os, resource, socket, sys
timers, made, create = 0, ctypes.c_void_p(), ctypes.CDLL(None).timer_create
while timers < 200000 and create(1, None, ctypes.byref(made)) == 0:
    timers += 1
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open("/dev/null", os.O_RDONLY)
many = array.array("i", [null] * 250)
kept, sent, why = [], 0, "a hundred thousand are in flight"
while sent < 100000:
    if sent % 25000 == 0:
        kept.append(socket.socketpair())
    try:
        kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)], socket.MSG_DONTWAIT)
    except BlockingIOError:
        kept.append(socket.socketpair())
        continue
    except OSError as e:
        why = e
        break
    sent += len(many)
print("in flight:", sent, why, "timers:", timers, file=sys.stderr)
print("up", flush=True)
sys.stdin.read()
`

func abuseInFlight(c *Case) {
	read, write := io.Pipe()
	end := func() { _ = write.Close() } // a pipe's Close returns no error
	c.Cleanup(end)
	job := c.job(Program{Python: inFlightPython, Fake: "print up\nread-stdin"})
	job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return read })
	n := c.neighbour()
	r := c.start(job)
	r.says("up\n")
	n.answers()
	for range 3 { // a Backend may have several sandboxes
		other := c.job(Program{Python: `print(open("given").read(), end="")`, Fake: "cat given"})
		tar := archive(entry{name: "given", text: "given\n"})
		other.Workspace = c.source("workspace", nil, func() io.ReadCloser { return c.fileStream(tar) })
		c.start(other).wait().succeeded().prints("given\n")
	}
	end()
	r.wait().succeeded()
	c.Logf("%s", r.stderr())
	n.leaves()
}

// fileStream returns a stream whose bytes come out of a file, as those of a server's spool do. A Backend may pass its descriptor on.
func (c *Case) fileStream(data []byte) io.ReadCloser {
	f, err := os.CreateTemp("", "pyexec-law-")
	if err != nil {
		c.Fatalf("a stream's file: %v", err)
	}
	_ = os.Remove(f.Name()) // it needs no name
	if _, err := f.Write(data); err != nil {
		c.Fatalf("a stream's file: %v", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		c.Fatalf("a stream's file: %v", err)
	}
	return &fileStream{f: f}
}

// fileStream is an executor.FileStream.
type fileStream struct {
	mu sync.Mutex
	f  *os.File // nil: taken, or closed
}

// Read implements io.Reader.
func (s *fileStream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f == nil {
		return 0, io.EOF
	}
	return s.f.Read(p)
}

// TakeFile implements executor.FileStream.
func (s *fileStream) TakeFile() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.f
	s.f = nil
	return f
}

// Close implements io.Closer.
func (s *fileStream) Close() error {
	if f := s.TakeFile(); f != nil {
		return f.Close()
	}
	return nil
}

var _ executor.FileStream = (*fileStream)(nil)

// abuseHoles makes files that take nothing where they are, and take their size where artifacts are kept.
func abuseHoles(c *Case) {
	c.need(c.caps().Disk, "a limit for the disk")
	const limit = 16 << 20
	job := c.job(Program{
		Python: `
for i in range(8):
    with open("holes%d" % i, "wb") as f:
        f.truncate(8 << 20)
`,
		Fake: "fill-file holes0 8MB\nfill-file holes1 8MB\nfill-file holes2 8MB",
	})
	job.Limits.DiskBytes, job.Spec.Limits.DiskBytes = limit, limit
	job.Spec.Outputs = []string{"holes*"}
	n := c.neighbour()
	r := c.start(job)
	n.answers()
	r.wait().status(executor.StatusFailed)
	n.leaves()
	var kept int64
	for _, a := range r.result.Artifacts {
		kept += a.SizeBytes
	}
	if kept > limit {
		c.Errorf("artifacts of %d bytes were kept where %d may be", kept, limit)
	}
	if f := r.result.Failure; c.suite.options.Dialect != DialectFake && (f == nil || f.Code != executor.Exhausted || f.Phase != executor.PhaseCollect) {
		c.Errorf("the failure is %+v", f)
	}
	budget := c.job(Program{
		Python: "for i in range(3):\n    with open('holes%d' % i, 'wb') as f:\n        f.truncate(2 << 20)\n",
		Fake:   "fill-file holes0 2MB\nfill-file holes1 2MB\nfill-file holes2 2MB",
	})
	budget.Limits.DiskBytes, budget.Spec.Limits.DiskBytes = limit, limit
	budget.ArtifactBytes, budget.Spec.Outputs = 5<<20, []string{"holes*"}
	r = c.run(budget).status(executor.StatusFailed)
	f := r.result.Failure
	if len(r.result.Artifacts) != 2 || f == nil || f.Code != executor.Exhausted || f.Phase != executor.PhaseCollect {
		c.Errorf("of three artifacts of 2 MiB, and a budget of 5, %+v were kept; the failure is %+v", r.result.Artifacts, f)
	}
}
