package zygote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

const python = "/usr/bin/python3"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// soon is the deadline of what should not take long.
func soon(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
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
	z, err := New(soon(tb), cfg)
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
	s, err := z.Fork(soon(tb))
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
	return p, s.Run(soon(tb), r)
}

// finish returns the outputs and the end of a program.
func (p *running) finish(tb testing.TB) (stdout, stderr string, exit Exit) {
	tb.Helper()
	out, err := io.ReadAll(p.stdout)
	must(tb, err)
	errs, err := io.ReadAll(p.stderr)
	must(tb, err)
	exit, err = p.Wait(soon(tb))
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

func TestAProgramHasItsArgumentsAndItsEnd(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	text := "import sys\nprint(sys.argv, open('/proc/self/cmdline').read())\nprint('no', file=sys.stderr)\nsys.exit(3)"
	p, err := begin(t, z, text, func(r *Request) { r.Argv = append(r.Argv, "größe", "") })
	must(t, err)
	if p.PID() <= 0 {
		t.Errorf("process %d", p.PID())
	}
	out, errs, exit := p.finish(t)
	if want := "['main.py', 'größe', ''] " + python + "\x00main.py\x00größe\x00\x00\n"; out != want || errs != "no\n" {
		t.Errorf("%q %q", out, errs)
	}
	if exit.Status.ExitStatus() != 3 || exit.CPU <= 0 || exit.MaxRSS < 1<<20 {
		t.Errorf("%+v", exit)
	}
	p, err = begin(t, z, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", nil)
	must(t, err)
	if _, _, exit := p.finish(t); exit.Status.Signal() != unix.SIGTERM {
		t.Errorf("%#x", exit.Status)
	}
}

func TestVariablesAreThoseOfTheRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := filepath.Join(dir, "env")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", env).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cfg := usual(dir)
	cfg.Interpreter = filepath.Join(env, "bin", "python")
	z := start(t, cfg)
	const text = "import os, subprocess\nprint(dict(os.environ), open('/proc/self/environ').read(), subprocess.check_output('/usr/bin/env'))"
	first := run(t, z, text, nil)
	if strings.Contains(first, "PYTHONPATH") || !strings.Contains(first, "\x00PATH=/usr/bin:/bin\x00PYTHONUNBUFFERED=1\x00") {
		t.Errorf("%q", first)
	}
	want := []string{"A=1", "HOME=" + dir, "LANG=C.UTF-8", "PATH=/bin", "PYTHONUNBUFFERED=1", "Z=ö"}
	got := run(t, z, text, func(r *Request) { r.Env = want })
	for _, part := range []string{"{'A': '1'", strings.Join(want, "\x00"), `PATH=/bin\nPYTHONUNBUFFERED=1\nZ=\xc3\xb6\n'`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in %q", part, got)
		}
	}
	if again := run(t, z, text, nil); again != first {
		t.Errorf("%q after %q", again, first)
	}
}

func TestModulesAreImportedAheadIfTheyAreThere(t *testing.T) {
	t.Parallel()
	cfg := usual(t.TempDir())
	cfg.Preimport = []string{"json", "no_such_module", "threading"}
	z := start(t, cfg)
	if got := fmt.Sprint(z.Imported()); got != "[json threading]" {
		t.Errorf("%s", got)
	}
	if got := run(t, z, "import os, threading; print(threading.main_thread().native_id == os.getpid())", nil); got != "True\n" {
		t.Errorf("the main thread has the number of a process: %q", got)
	}
	if got := run(t, z, "import sys; print('json' in sys.modules, '_ctypes' in sys.modules)", nil); got != "True False\n" {
		t.Errorf("%q", got)
	}
}

// A library such as OpenBLAS ends its threads before a fork, and starts them again later.
func TestThreadsThatEndBeforeAForkDoNotHinderIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	userPackages(t, dir, "pool.py", `
import os, threading
over = threading.Event()
thread = threading.Thread(target=over.wait)
thread.start()
def end():
    over.set()
    thread.join()
os.register_at_fork(before=end)
`)
	cfg := usual(t.TempDir())
	cfg.Env = append(cfg.Env, userBase(dir))
	cfg.Preimport = []string{"pool"}
	z := start(t, cfg)
	if got := fmt.Sprint(z.Imported()); got != "[pool]" {
		t.Errorf("%s", got)
	}
	z.startupCode = "" // of this machine
	if why := z.Refuses(Request{Argv: z.cfg.argv(), Env: append(slices.Clone(z.cfg.Env), "A=1")}); !strings.Contains(why, "pool") {
		t.Errorf("variables that the module may have read: %q", why)
	}
}

func TestCodeOfTheEnvironmentIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	userPackages(t, dir, "z.pth", "import sys; sys.own = 1\n")
	cfg := usual(dir)
	cfg.Env = slices.DeleteFunc(slices.Clone(cfg.Env), func(s string) bool { return strings.HasPrefix(s, "HOME=") })
	cfg.Env = append(cfg.Env, "HOME="+dir)
	z := start(t, cfg)
	if z.startupCode == "" {
		t.Error("nothing is reported")
	}
	var refused *RefusedError
	if _, err := begin(t, z, "", nil); !errors.As(err, &refused) || !strings.Contains(refused.Why, "packages of the user") {
		t.Errorf("%v", err)
	}
}

// TestFilesOfAProgramDoNotRunInTheServer has files that the module site runs when an interpreter starts with this HOME. They belong to a
// program that comes while the server starts.
func TestFilesOfAProgramDoNotRunInTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	userPackages(t, dir, "z.pth", fmt.Sprintf("import os; open(%q, 'w')\n", ran))
	userPackages(t, dir, "usercustomize.py", fmt.Sprintf("open(%q, 'w')\n", ran))
	z := start(t, usual(dir))
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files ran in the server: %v", err)
	}
	var refused *RefusedError
	if _, err := begin(t, z, "", nil); !errors.As(err, &refused) || !strings.Contains(refused.Why, "packages of the user") {
		t.Errorf("%v", err)
	}
}

func TestASlotThatIsNotUsedEnds(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	s, err := z.Fork(soon(t))
	must(t, err)
	s.Close()
	exit, err := s.Wait(soon(t))
	if err != nil || exit.Status != 0 {
		t.Errorf("%+v %v", exit, err)
	}
	if s, err = z.Fork(soon(t)); err != nil {
		t.Fatal(err)
	}
	must(t, unix.Kill(s.PID(), unix.SIGKILL))
	if err := s.Run(soon(t), Request{Argv: z.cfg.argv(), Env: z.cfg.Env}); err == nil {
		t.Error("a killed copy runs")
	}
}

func TestEmptyKillsWhatRuns(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	p, err := begin(t, z, "import os, time\nif os.fork(): print('runs', flush=True)\ntime.sleep(99)", nil)
	must(t, err)
	if _, err := io.ReadAtLeast(p.stdout, make([]byte, 5), 5); err != nil {
		t.Fatal(err)
	}
	must(t, z.Empty(soon(t)))
	if _, _, exit := p.finish(t); exit.Status.Signal() != unix.SIGKILL { // finish also waits for the end of the other process
		t.Errorf("%#x", exit.Status)
	}
	if got := run(t, z, "print(1)", nil); got != "1\n" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestTheEndOfTheServerEndsEverything(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(z *Zygote){
		"killed": func(z *Zygote) { must(t, z.process.Kill()) },
		"closed": func(z *Zygote) { must(t, z.Close()) },
	} {
		needNamespaces(t)
		cfg := usual(t.TempDir())
		cfg.Launch = inNamespace
		openToAll(t, cfg.Dir)
		z := start(t, cfg)
		p, err := begin(t, z, "import time\nprint('runs', flush=True)\ntime.sleep(99)", nil)
		must(t, err)
		waiting, err := z.Fork(soon(t))
		must(t, err)
		end(z)
		for _, s := range []*Slot{p.Slot, waiting} {
			if exit, err := s.Wait(soon(t)); err == nil && exit.Status.Signal() != unix.SIGKILL || err != nil && !errors.Is(err, ErrGone) {
				t.Errorf("%s: %+v %v", name, exit, err)
			}
		}
		<-z.Gone()
		if _, err := z.Fork(soon(t)); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.ReadAll(p.stdout); err != nil { // the program has it open
			t.Errorf("%s: %v", name, err)
		}
		waiting.Close()
	}
}

// openToAll lets other users write to a folder of t.TempDir.
func openToAll(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Chmod(dir, 0o777))               //nolint:gosec // a test's own
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // likewise
}

func TestAProgramEntersControlGroups(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	r, w, err := os.Pipe() // in the place of a group's file
	must(t, err)
	defer r.Close()
	got := run(t, z, "print(1)", func(r *Request) { r.Groups = []int{int(w.Fd())} })
	must(t, w.Close())
	if text, err := io.ReadAll(r); string(text) != "0" || err != nil || got != "1\n" {
		t.Errorf("%q %v", text, err)
	}
}

func TestManyCopiesLeaveNothing(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	count := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", z.process.(launched).Pid))
		must(t, err)
		return len(all)
	}
	const blocks = "import sys; print(sys.getallocatedblocks())" // each copy has what the server has collected
	memory := func() (n int) {
		_, err := fmt.Sscan(run(t, z, blocks, nil), &n)
		must(t, err)
		return n
	}
	run(t, z, blocks, nil)
	before, beforeMemory := count(), memory()
	for range 20 {
		run(t, z, blocks, nil)
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors after %d", after, before)
	}
	if after := memory(); after > beforeMemory+20 {
		t.Errorf("%d blocks of memory after %d", after, beforeMemory)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.slots) != 0 {
		t.Errorf("%d slots", len(z.slots))
	}
}

func TestAContextBoundsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	userPackages(t, dir, "slow.py", "import time; time.sleep(99)")
	cfg := usual(dir)
	cfg.Preimport = []string{"slow"}
	own := errors.New("not any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg.Launch = func(c Command) (Process, error) {
		p, err := launch(c)
		cancel(own)
		return killer{p}, err
	}
	if _, err := New(ctx, cfg); !errors.Is(err, own) {
		t.Error(err)
	}
}

// killer kills a process before it waits for it.
type killer struct{ Process }

func (k killer) Wait() error { return errors.Join(k.Kill(), k.Process.Wait()) }

func TestTheStartRunsNothingOfPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	userPackages(t, dir, "z.pth", "import atexit; atexit.register(lambda: open('atexit.txt', 'w'))\n")
	must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte("open('main.txt', 'w')"), 0o600))
	must(t, start(t, usual(dir)).Close())
	if left, err := filepath.Glob(filepath.Join(dir, "*.txt")); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}

func TestAProgramEndsEarlyUnlessAnObjectOrAModuleHasAnEnd(t *testing.T) {
	t.Parallel()
	const early = "objects_harmless\n"
	// The trace of an imported module shows how the process ends.
	const traced = `
import sys
def trace(frame, event, arg, out=sys.stderr):
    if frame.f_code.co_name in ("nothing_left", "objects_harmless", "quit"): print(frame.f_code.co_name, file=out)
sys.settrace(trace)
`
	for name, c := range map[string]struct {
		preimport, own, text string
		early                bool
	}{
		"nothing":                    {"", "", "import traced\n", true},
		"modules imported before":    {"json", "", "import traced\n", true},
		"a file imported before":     {"own", "import os\nf = open(os.devnull)", "import traced\n", false},
		"harmless modules":           {"", "", "import traced, json, re, dataclasses, subprocess, random\n", true},
		"a file":                     {"", "import os\nf = open(os.devnull)", "import own, traced\n", false},
		"a generator with finally":   {"", "def g():\n    try: yield\n    finally: pass\ng = g()\nnext(g)", "import own, traced\n", false},
		"a generator without":        {"", "def g():\n    yield\ng, h = g(), g()\nnext(g)", "import own, traced\n", true},
		"files that are closed":      {"", "with open('a', 'w'), open('a', 'rb+'), open('a', 'rb', 0): pass", "import own, traced\n", true},
		"a wrapper of the input":     {"", "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)", "import own, traced\n", true},
		"a buffer of the output":     {"", "f = open(1, 'wb', 100, closefd=False)", "import own, traced\n", false},
		"files in memory":            {"", "import io\ns, b = io.StringIO(), io.BytesIO()", "import own, traced\n", true},
		"bytes in use":               {"", "import io\nb = io.BytesIO(b'a')\nv = b.getbuffer()", "import own, traced\n", false},
		"an attribute of a stream":   {"", "import sys\nsys.stdin.close = print", "import own, traced\n", false},
		"a finalizer":                {"", "class C:\n    def __del__(self): pass\nc = C()", "import own, traced\n", false},
		"a module of C":              {"", "import mmap", "import own, traced\n", false},
		"a module of C at the start": {"mmap", "", "import traced\n", false},
		"an exception":               {"", "", "import traced\n1 / 0\n", true},
		"an exit after an exception": {"", "", "import traced\ntry: 1 / 0\nfinally: raise SystemExit(1)", false},
		"an interrupt":               {"", "", "import traced\nraise KeyboardInterrupt\n", false},
		"event loops and queues":     {"", "import asyncio, queue\nasync def f(): pass\nasyncio.run(f())", "import own, traced\n", true},
		"calls of the collector":     {"", "import gc\ngc.callbacks.append(lambda *_: None)", "import own, traced\n", false},
		"an exit":                    {"", "", "import traced\nraise SystemExit\n", false},
	} {
		cfg := usual(t.TempDir())
		must(t, os.WriteFile(filepath.Join(cfg.Dir, "traced.py"), []byte(traced), 0o600))
		if c.preimport != "" {
			cfg.Preimport = []string{c.preimport}
		}
		packages := t.TempDir()
		if c.preimport == "own" {
			userPackages(t, packages, "own.py", c.own)
			cfg.Env = append(cfg.Env, userBase(packages))
		} else {
			must(t, os.WriteFile(filepath.Join(cfg.Dir, "own.py"), []byte(c.own), 0o600))
		}
		z := start(t, cfg)
		must(t, os.RemoveAll(filepath.Join(packages, ".local"))) // a copy would refuse to begin
		p, err := begin(t, z, c.text, nil)
		must(t, err)
		_, errs, _ := p.finish(t)
		if got := strings.HasSuffix(errs, "quit\n") && strings.Contains(errs, early); got != c.early {
			t.Errorf("%s: early %v\n%s", name, got, errs)
		}
	}
}

func TestAFolderThatGoesDuringTheStartIsNoticed(t *testing.T) {
	t.Parallel()
	cfg := Config{Interpreter: python, Entrypoint: "main.py", Dir: t.TempDir(), Launch: func(c Command) (Process, error) {
		c.Argv = append([]string{"sh", "-c", `rmdir "$PWD" && exec "$0" "$@"`, c.Path}, c.Argv[1:]...)
		c.Path = "/bin/sh"
		return launch(c)
	}}
	z, err := New(t.Context(), cfg)
	if !errors.Is(err, ErrMoved) {
		t.Errorf("error %v, want %v", err, ErrMoved)
	}
	if err == nil {
		_ = z.Close()
	}
}
