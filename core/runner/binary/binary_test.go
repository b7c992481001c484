//go:build linux && embedrunner

package binary

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheEmbeddedRunnerCanBeExecuted(t *testing.T) {
	t.Parallel()
	f, ok := Open()
	if !ok {
		t.Fatal("no program, or no memfd")
	}
	defer f.Close() //nolint:errcheck // read only
	out, err := exec.Command(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "--what").CombinedOutput()
	if err == nil || len(out) == 0 {
		t.Errorf("%v %s", err, out)
	}
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("the program can be changed")
	}
}

// It runs alone, because a process that another test starts may hold the file open for writing, and such a file cannot be executed.
func TestAKeptProgramIsExecutedUnlessItCouldBeAnother(t *testing.T) {
	dir := t.TempDir()
	name := func(want string) *os.File {
		t.Helper()
		f, ok := OpenKept(dir, "stamp")
		if !ok {
			t.Fatal("no program")
		}
		t.Cleanup(func() { f.Close() })
		if got, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil || !strings.Contains(got, want) {
			t.Fatalf("%s, %v; want %s", got, err, want)
		}
		return f
	}
	name("memfd:")
	f := name("runner-stamp")
	if out, err := exec.Command(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "--what").CombinedOutput(); err == nil || len(out) == 0 {
		t.Errorf("%v %s", err, out)
	}
	path := filepath.Join(dir, "runner-stamp")
	for what, change := range map[string]func() error{
		"writable by others": func() error { return os.Chmod(path, 0o722) },
		"of another size":    func() error { return os.Truncate(path, 10) },
		"a link":             func() error { return errors.Join(os.Rename(path, path+"-x"), os.Symlink(path+"-x", path)) },
	} {
		if err := change(); err != nil {
			t.Fatal(what, err)
		}
		name("memfd:")
		name("runner-stamp")
	}
	if others, err := filepath.Glob(filepath.Join(dir, "*.new")); err != nil || len(others) > 0 {
		t.Errorf("left over: %v, %v", others, err)
	}
}
