//go:build linux

package runner

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// asOrdinary is a variable of the process of a test that runs as an ordinary user.
const asOrdinary = "PYEXEC_TEST_AS_ORDINARY"

// ordinary runs the rest of the test in a process of its own, as a user that no other process has. The kernel counts what the processes of a
// user have in flight, and does not refuse root. ordinary reports whether this is that process.
func ordinary(t *testing.T) bool {
	t.Helper()
	if os.Getenv(asOrdinary) != "" {
		return true
	}
	uid := testUID + 3000
	dir := workRoot(t)
	must(t, os.Chmod(dir, 0o777))                                                                                //nolint:gosec // it is for the other user
	cmd := exec.CommandContext(awaittest.Context(t), "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v") //nolint:gosec // ourselves
	cmd.Env, cmd.Dir = []string{asOrdinary + "=1", "TMPDIR=" + dir, "PATH=/usr/bin:/bin"}, "/"
	if isRoot() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}} //nolint:gosec // a uid
	}
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Error(err)
	}
	return false
}

// fileInput is a Workspace whose bytes come out of a file.
type fileInput struct{ *os.File }

// TakeFile implements executor.FileStream.
func (f *fileInput) TakeFile() *os.File {
	file := f.File
	f.File = nil
	return file
}

func (f *fileInput) Read(p []byte) (int, error) {
	if f.File == nil {
		return 0, io.EOF
	}
	return f.File.Read(p)
}

func (f *fileInput) Close() error {
	if f.File == nil {
		return nil
	}
	return f.File.Close()
}

var _ executor.FileStream = (*fileInput)(nil)

// given returns a Workspace with a file of n bytes.
func given(t *testing.T, n int) *fileInput {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	w := tar.NewWriter(f)
	must(t, w.WriteHeader(&tar.Header{Name: "given", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(n)}))
	_, err = w.Write(bytes.Repeat([]byte("x"), n))
	must(t, errors.Join(err, w.Close()))
	_, err = f.Seek(0, io.SeekStart)
	must(t, err)
	return &fileInput{f}
}

// TestWhatAProgramHasInFlightHindersNobody: an ordinary user's server and its programs are one user, whose descriptors in flight the kernel
// counts together.
func TestWhatAProgramHasInFlightHindersNobody(t *testing.T) {
	if !ordinary(t) {
		return
	}
	cfg := Config{WorkRoot: workRoot(t)}
	bomb, other := startRunner(t, cfg), startRunner(t, Config{WorkRoot: workRoot(t)})
	read, write := io.Pipe()
	rec := newRecord()
	ended := make(chan error, 1)
	go func() {
		res, err := bomb.Run(awaittest.Context(t), python(inFlight), RunInput{Stdin: read}, rec)
		if res.Status != executor.StatusSucceeded {
			err = errors.Join(err, errors.New(describe(res)+rec.stderr()))
		}
		ended <- err
	}()
	awaittest.Until(t, "the program has descriptors in flight", func() bool { return strings.Contains(rec.stdout(), "up") })
	t.Logf("the program: %s", rec.stderr())
	if err := passes(t); err != nil {
		t.Errorf("this user cannot pass a descriptor any more: %v", err)
	}
	res, got := other.run(t, python(`print(len(open("given").read()))`), RunInput{Workspace: given(t, 1<<20)})
	if res.Status != executor.StatusSucceeded || got.stdout() != "1048576\n" {
		t.Errorf("%s, %q %q", describe(res), got.stdout(), got.stderr())
	}

	// Now this process may have as few in flight as the program has at least.
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 200, Max: limit.Max}))
	if err := passes(t); !errors.Is(err, protocol.ErrNotPassed) || !errors.Is(err, unix.ETOOMANYREFS) {
		t.Fatalf("a descriptor is passed: %v", err)
	}
	res, got = other.run(t, python(`print(len(open("given").read()))`), RunInput{Workspace: given(t, 10<<20)})
	if res.Status != executor.StatusSucceeded || got.stdout() != "10485760\n" {
		t.Errorf("in frames: %s, %q %q", describe(res), got.stdout(), got.stderr())
	}
	must(t, write.Close())
	must(t, awaittest.Recv(t, "the end of the program", ended))
}

// TestWhatAProgramHasQueuedLeavesRoom: without a signal in the queue of its user no box can be made, and timers count as signals.
func TestWhatAProgramHasQueuedLeavesRoom(t *testing.T) {
	if !ordinary(t) {
		return
	}
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_SIGPENDING, &limit))
	res, got := boxed(t, nil).run(t, python(`
import ctypes, resource
n, made, libc = 0, ctypes.c_void_p(), ctypes.CDLL(None)
while n < 1000000 and libc.timer_create(1, None, ctypes.byref(made)) == 0: n += 1
print(n, resource.getrlimit(resource.RLIMIT_SIGPENDING)[1])
`), RunInput{})
	var timers, hard uint64
	_, err := fmt.Sscan(got.stdout(), &timers, &hard)
	if err != nil || res.Status != executor.StatusSucceeded || timers == 0 || timers > hard || hard != min(limit.Max, max(limit.Max/128, 128)) {
		t.Errorf("%s, %q %q, the host may queue %d", describe(res), got.stdout(), got.stderr(), limit.Max)
	}
}

// passes passes a descriptor over a socket.
func passes(t *testing.T) error {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fds[1]) //nolint:errcheck // nothing was written
	f := os.NewFile(uintptr(fds[0]), "ours")
	conn, err := net.FileConn(f)
	must(t, errors.Join(err, f.Close()))
	defer conn.Close() //nolint:errcheck // likewise
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close() //nolint:errcheck // likewise
	return protocol.NewWriter(conn).SendFile(protocol.FrameFile, null)
}

const inFlight = `
import array, os, resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open("/dev/null", os.O_RDONLY)
many = array.array("i", [null] * 250)
kept, sent, why = [socket.socketpair()], 0, "many"
while sent < 200000:
    try:
        kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)], socket.MSG_DONTWAIT)
        sent += len(many)
    except BlockingIOError:
        kept.append(socket.socketpair())
    except OSError as e:
        why = e
        break
print("in flight:", sent, why, "limit:", hard, file=sys.stderr, flush=True)
print("up", flush=True)
sys.stdin.read()
`

// A host that hears nothing any more would wait for ever for an answer.
func TestARunnerThatCannotSpeakEnds(t *testing.T) {
	t.Parallel()
	r, host := startProcess(t, nil)
	frames, w := protocol.NewReader(host), protocol.NewWriter(host)
	must(t, w.SendJSON(protocol.FrameHello, protocol.Hello{Version: protocol.Version, Config: testConfig(t)}))
	kind, n, err := frames.Header()
	must(t, err)
	_, err = frames.Payload(n)
	must(t, err)
	if kind != protocol.FrameHelloReply {
		t.Fatalf("frame %d", kind)
	}
	must(t, host.(*net.UnixConn).CloseRead()) //nolint:forcetypeassert // a socketpair
	must(t, w.SendJSON(protocol.FrameStart, shell("echo hello; exec sleep 100000")))
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	_ = awaittest.Recv(t, "the end of the runner", ended) // its exit code follows
	if code := r.cmd.ProcessState.ExitCode(); code != agent.ExitBroken || !strings.Contains(r.stderr.String(), "could not be sent") {
		t.Errorf("exit code %d: %s", code, r.stderr)
	}
}
