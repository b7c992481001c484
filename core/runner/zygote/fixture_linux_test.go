package zygote

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

const python = "/usr/bin/python3"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// launched is a process that a test has started.
type launched struct{ *os.Process }

func (p launched) Wait() error {
	_, err := p.Process.Wait()
	return err
}

func launch(c Command) (Process, error) {
	p, err := os.StartProcess(c.Path, c.Argv, &os.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files})
	return launched{p}, err
}

// inNamespace starts the interpreter as PID 1 of a namespace, as the user nobody.
func inNamespace(c Command) (Process, error) {
	unshare := []string{"/usr/bin/unshare", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child", "--setuid", "65534", "--setgid", "65534"}
	p, err := os.StartProcess(unshare[0], slices.Concat(unshare, c.Argv), &os.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files})
	return launchedInit{launched{p}}, err
}

// launchedInit is unshare, whose child is the interpreter.
type launchedInit struct{ launched }

func (p launchedInit) Kill() error {
	child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.Pid))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
	if err != nil {
		return err
	}
	return unix.Kill(pid, unix.SIGKILL)
}

// usual is a Config for programs of dir.
func usual(dir string) Config {
	return Config{
		Interpreter: python, Entrypoint: "main.py", Dir: dir, Launch: launch,
		Env: []string{"HOME=" + dir, "LANG=C.UTF-8", "PATH=/usr/bin:/bin", "PYTHONUNBUFFERED=1"},
	}
}

// needNamespaces skips a test that cannot have namespaces.
func needNamespaces(t *testing.T) {
	t.Helper()
	needtest.NeedRoot(t)
}

func start(tb testing.TB, cfg Config) *Zygote {
	tb.Helper()
	z, err := New(awaittest.Context(tb), cfg)
	must(tb, err)
	tb.Cleanup(func() { must(tb, z.Close()) })
	return z
}

// running is a program that has begun.
type running struct {
	*Slot
	stdout, stderr *os.File
}

// begin starts text as the main file.
func begin(tb testing.TB, z *Zygote, text string, change func(*Request)) (*running, error) {
	tb.Helper()
	must(tb, os.WriteFile(filepath.Join(z.cfg.Dir, "main.py"), []byte(text), 0o644)) //nolint:gosec // programs of other users read it
	s, err := z.Next(awaittest.Context(tb))
	must(tb, err)
	return beginIn(tb, s, change)
}

// beginIn starts the main file that is there in s.
func beginIn(tb testing.TB, s *Slot, change func(*Request)) (*running, error) {
	tb.Helper()
	p, z := &running{Slot: s}, s.zygote
	null, err := os.Open(os.DevNull)
	must(tb, err)
	defer null.Close()
	var stdout, stderr *os.File
	p.stdout, stdout, err = os.Pipe()
	must(tb, err)
	defer stdout.Close()
	p.stderr, stderr, err = os.Pipe()
	must(tb, err)
	defer stderr.Close()
	tb.Cleanup(func() { _, _ = p.stdout.Close(), p.stderr.Close() })
	r := Request{Argv: z.cfg.argv(), Env: z.cfg.Env, Files: [3]int{int(null.Fd()), int(stdout.Fd()), int(stderr.Fd())}}
	if change != nil {
		change(&r)
	}
	return p, s.Run(awaittest.Context(tb), r)
}

// finish returns the outputs and the end of a program.
func (p *running) finish(tb testing.TB) (stdout, stderr string, exit Exit) {
	tb.Helper()
	out, err := io.ReadAll(p.stdout)
	must(tb, err)
	errs, err := io.ReadAll(p.stderr)
	must(tb, err)
	exit, err = p.Wait(awaittest.Context(tb))
	must(tb, err)
	return string(out), string(errs), exit
}

// run runs text as the main file and returns stdout. It fails if the program fails.
func run(tb testing.TB, z *Zygote, text string, change func(*Request)) string {
	tb.Helper()
	p, err := begin(tb, z, text, change)
	must(tb, err)
	out, errs, exit := p.finish(tb)
	if errs != "" || exit.Status != 0 {
		tb.Fatalf("status %#x\n%s", exit.Status, errs)
	}
	return out
}

// openToAll lets other users write to a folder of t.TempDir.
func openToAll(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Chmod(dir, 0o777))               //nolint:gosec // a test's own
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // likewise
}
