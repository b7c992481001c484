package zygote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestModulesAreImportedAheadIfTheyAreThere(t *testing.T) {
	t.Parallel()
	cfg := usual(t.TempDir())
	cfg.Preimport = []string{"json", "no_such_module", "threading"}
	z := start(t, cfg)
	if got := fmt.Sprint(z.imported); got != "[json threading]" {
		t.Errorf("%s", got)
	}
	if got := run(t, z, "import os, threading; print(threading.main_thread().native_id == os.getpid())", nil); got != "True\n" {
		t.Errorf("the main thread has the number of a process: %q", got)
	}
	// Before Python 3.13, the end of the main thread looks for its lock there.
	if got := run(t, z, "import threading; print(len(getattr(threading, '_shutdown_locks', '1')))", nil); got != "1\n" {
		t.Errorf("the module threading knows another number of locks: %q", got)
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
	if got := fmt.Sprint(z.imported); got != "[pool]" {
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
