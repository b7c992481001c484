//go:build linux

package runner

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/runner/agent"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/toldtest"
)

// TestMain is also the runner that the tests start: the test binary plays both parts, as python-executor does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(toldtest.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "inside" {
		_, _ = os.Stderr.WriteString(enterInside(os.Args[2:]).Error() + "\n")
		os.Exit(agent.ExitBroken)
	}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) { // by a parent such as nohup: what tests start shall have the default again
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	leaktest.Main(m)
}

// testUID is the slot's uid where the tests run as root; the next few thousand are this process's too. Tests kill all that
// runs as it: another process of tests has another.
var testUID = 1<<20 + os.Getpid()%100_000*4096

// isRoot: the tests may use uids, mounts and control groups.
func isRoot() bool { return os.Geteuid() == 0 }

// openRoot is a folder that no private folder of a box hides, as the folder of environments usually is.
func openRoot(tb testing.TB) string {
	tb.Helper()
	if !isRoot() {
		return workRoot(tb)
	}
	dir, err := os.MkdirTemp("/var/cache", "pyexec-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // programs read it
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// workRoot makes a folder that other uids can pass through.
func workRoot(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "runner-test-*")
	if err != nil {
		tb.Fatal(err)
	}
	//nolint:gosec // other uids pass through it
	if err := os.Chmod(dir, 0o711); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// testConfig is the strongest Config that this process may use.
func testConfig(tb testing.TB) Config {
	tb.Helper()
	cfg := Config{WorkRoot: workRoot(tb), Cgroups: testCgroups(tb)}
	if isRoot() {
		cfg.UID, cfg.GID, cfg.OwnUID = testUID, testUID, true
		cfg.NetworkNamespace = sandbox.ProbeNetworkNamespace() == nil
		cfg.Tmpfs = sandbox.ProbeTmpfs() == nil
		cfg.Box = cfg.Tmpfs
	}
	return cfg
}

// testCgroups makes a slot's control groups; nil where there are none for us.
func testCgroups(tb testing.TB) sandbox.Cgroups {
	tb.Helper()
	all, err := sandbox.FindCgroups()
	if err != nil {
		tb.Logf("some control groups are not ours: %v", err)
	}
	if len(all) == 0 {
		return nil
	}
	slot, err := all.Make("pyexec-test-" + strings.NewReplacer("/", "-", " ", "-").Replace(tb.Name()) + "-" + rand.Text()[:8]) // two runs may be at once
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := slot.Remove(); err != nil {
			tb.Error(err)
		}
	})
	return slot
}

// testRunner is a runner process and our connection to it.
type testRunner struct {
	*Conn
	cmd    *exec.Cmd
	stderr *lockedBuffer
}

// lockedBuffer is what a runner says while a test may already read it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startRunner starts a runner; the test's end stops it and fails if it did not end well.
func startRunner(tb testing.TB, cfg Config) *testRunner {
	tb.Helper()
	return startRunnerAs(tb, cfg, nil)
}

func startRunnerAs(tb testing.TB, cfg Config, attr *syscall.SysProcAttr) *testRunner {
	tb.Helper()
	r, host := startProcess(tb, attr)
	conn, err := NewConn(host, cfg)
	if err != nil {
		tb.Fatalf("hello: %v\n%s", err, r.stderr)
	}
	r.Conn = conn
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// startProcess starts a runner without speaking to it.
func startProcess(tb testing.TB, attr *syscall.SysProcAttr) (*testRunner, net.Conn) {
	tb.Helper()
	return startCommand(tb, attr, exec.Command("/proc/self/exe", "runner", "--fd", "3")) //nolint:gosec // ourselves
}

// startCommand is startProcess with a command of the test's.
func startCommand(tb testing.TB, attr *syscall.SysProcAttr, cmd *exec.Cmd) (*testRunner, net.Conn) {
	tb.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "runner")
	host, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		tb.Fatal(err)
	}
	r := &testRunner{stderr: &lockedBuffer{}, cmd: cmd}
	r.cmd.ExtraFiles = []*os.File{theirs}
	r.cmd.Stderr = r.stderr
	r.cmd.SysProcAttr = attr
	err = r.cmd.Start()
	if err = errors.Join(err, theirs.Close()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { // after conn.Close of startRunner
		_ = host.Close()
		if r.cmd.ProcessState != nil {
			return // the test has waited itself
		}
		if err := r.cmd.Wait(); err != nil && r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			tb.Errorf("runner: %v\n%s", err, r.stderr)
		}
	})
	return r, host
}

// limits are generous: a test that wants one sets it, and one of time comes when the test tells it (told).
func limits() executor.Limits {
	return executor.Limits{
		Timeout: awaittest.Forever, MemoryBytes: 512 << 20, DiskBytes: 256 << 20, CPUShares: 1024, PIDs: 64,
		OutputBytes: 64 << 20, KillGrace: awaittest.Forever,
	}
}

func shell(script string) Start {
	return Start{ExecutionID: "exe_test", Command: []string{"/bin/sh", "-c", script}, Path: "/usr/bin:/bin", Limits: limits()}
}

func python(code string) Start {
	return Start{ExecutionID: "exe_test", Interpreter: []string{"/usr/bin/python3"}, Code: code, Path: "/usr/bin:/bin", Limits: limits()}
}

// record is a Sink that keeps all.
type record struct {
	mu        sync.Mutex
	out       [2]bytes.Buffer
	kinds     []executor.Kind
	started   chan executor.Started
	files     map[string]string
	headers   []*tar.Header
	emit      func(executor.Event) error
	badOffset bool
	earlier   string
	displays  []executor.Display
}

func newRecord() *record {
	return &record{started: make(chan executor.Started, 1), files: map[string]string{}}
}

func (r *record) Emit(e executor.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds = append(r.kinds, e.Body.Kind())
	switch b := e.Body.(type) {
	case executor.Started:
		select {
		case r.started <- b:
		default: // again, to a host that came back
		}
	case executor.Output:
		buf := &r.out[protocol.StreamIndex(b.Stream)]
		if b.Offset != int64(buf.Len()) || len(b.Data) == 0 || len(b.Data) > executor.MaxOutputData {
			r.badOffset = true
		}
		buf.Write(b.Data)
		if b.Earlier {
			r.earlier += string(b.Data)
		}
	case executor.Display:
		r.displays = append(r.displays, b)
	}
	if r.emit != nil {
		return r.emit(e)
	}
	return nil
}

func (r *record) Artifact(h *tar.Header, body io.Reader) error {
	data, err := io.ReadAll(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = append(r.headers, h)
	r.files[h.Name] = string(data)
	return err
}

// cancelsAtOutput makes r cancel its run at the first output.
func (r *record) cancelsAtOutput(cancel context.CancelCauseFunc) {
	r.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindOutput {
			cancel(executor.Errorf(executor.Unavailable, "enough"))
		}
		return nil
	}
}

func (r *record) stdout() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out[0].String()
}

func (r *record) stderr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out[1].String()
}

// condition says for a test that fails whether the runner is well, and why not. One that has ended is waited for, because it
// says why at its end.
func (r *testRunner) condition(tb testing.TB) string {
	tb.Helper()
	ctx := awaittest.Context(tb)
	if err := r.Check(ctx); err != nil {
		ended := make(chan error, 1)
		go func() { ended <- r.cmd.Wait() }()
		select {
		case exit := <-ended:
			return fmt.Sprintf("the runner is gone (%v): %v\n%s", exit, err, r.stderr)
		case <-ctx.Done():
			return fmt.Sprintf("the runner does not answer: %v\n%s", err, r.stderr)
		}
	}
	return fmt.Sprintf("the runner lives\n%s", r.stderr)
}

// run runs start and fails the test if we failed.
func (r *testRunner) run(tb testing.TB, start Start, in RunInput) (executor.Result, *record) {
	tb.Helper()
	rec := newRecord()
	res, err := r.Run(context.Background(), start, in, rec)
	if err != nil {
		tb.Fatalf("run: %v\n%s", err, r.condition(tb))
	}
	if rec.badOffset {
		tb.Error("output with a wrong offset or size")
	}
	return res, rec
}

// said is a limit that comes when a program has printed text. A limit with the text "" comes when the program has started.
type said struct{ text, limit string }

// told runs start and lets limits come when its program says so. No other limit comes.
func (r *testRunner) told(tb testing.TB, start Start, limits ...said) (executor.Result, *record) {
	tb.Helper()
	return r.toldWith(tb, start, RunInput{}, limits...)
}

func (r *testRunner) toldWith(tb testing.TB, start Start, in RunInput, limits ...said) (executor.Result, *record) {
	tb.Helper()
	rec := newRecord()
	rec.tells(tb, &start, limits...)
	res, err := r.Run(context.Background(), start, in, rec)
	if err != nil {
		tb.Fatalf("run: %v\n%s", err, r.condition(tb))
	}
	for _, s := range limits {
		if !strings.Contains(rec.stdout()+rec.stderr(), s.text) {
			tb.Errorf("%s %s: the program never said %q: %q %s", start.Command, start.Code, s.text, rec.stdout(), rec.stderr())
		}
	}
	return res, rec
}

// tells makes the limits of start come when r has the text of their program.
func (r *record) tells(tb testing.TB, start *Start, limits ...said) {
	id := "exe_" + rand.Text()
	start.ExecutionID, start.Limits.Timeout, start.Limits.KillGrace = id, awaittest.Forever, awaittest.Forever
	r.emit = func(e executor.Event) error {
		for len(limits) > 0 && strings.Contains(r.out[0].String()+r.out[1].String(), limits[0].text) {
			toldtest.Tell(tb, id, limits[0].limit)
			limits = limits[1:]
		}
		return nil
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
