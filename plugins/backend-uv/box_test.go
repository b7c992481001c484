package uvbackend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// boxTests are the tests of boxes that lawWithoutRoot runs again.
const boxTests = "TestInABoxNothingOfTheServersUserIsThere|TestAPythonInAClosedFolderIsUsable|TestAHostDirectoryIsReadOnlyUnlessTheConfigurationOpensIt"

// openBoxed is openBackend for a test of boxes.
func openBoxed(t *testing.T, more map[string]any) *Backend {
	t.Helper()
	b := openBackend(t, more)
	needtest.Need(t, b.how.Box, needtest.Box, b.how.Why["box"])
	return b
}

func TestInABoxNothingOfTheServersUserIsThere(t *testing.T) {
	home := folder(t)
	t.Setenv("HOME", home)
	for _, name := range []string{".ssh/id_ed25519", "public.txt"} {
		script(t, filepath.Join(home, name), "not-for-you")
	}
	b := openBoxed(t, nil)
	code := fmt.Sprintf(`
import os
for path in %q.split():
    print(path, os.path.lexists(path))
print(sorted(os.listdir("/")))
`, strings.Join([]string{filepath.Join(home, ".ssh", "id_ed25519"), filepath.Join(home, "public.txt"), b.config.WorkDir, filepath.Join(b.config.CacheDir, "uv-cache"),
		filepath.Join(b.config.CacheDir, "environments"), "/home", "/root/.bashrc", "/var/lib", "/run/python-executor"}, " "))
	for what, run := range map[string]func() string{
		"a program": func() string { out, _ := succeeds(t, b, executor.Spec{Code: code}); return out },
		"a command": func() string {
			out, _ := succeeds(t, b, executor.Spec{Command: []string{"python3", "-c", code}})
			return out
		},
		"a session": func() string { return inSession(t, b, code) },
	} {
		out := run()
		if strings.Contains(out, " True") || !strings.Contains(out, "'work'") {
			t.Errorf("%s sees\n%s", what, out)
		}
	}
}

// inSession runs code in a new Session and returns what it prints.
func inSession(t *testing.T, b *Backend, code string) string {
	t.Helper()
	id := "ctx-" + strings.ToLower(t.Name())
	j := job(executor.Spec{})
	if _, err := b.OpenSession(t.Context(), executor.Session{ID: id, Spec: executor.Spec{}, Limits: j.Limits}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.CloseSession(t.Context(), id); err != nil {
			t.Error(err)
		}
	}()
	out, _ := succeeds(t, b, executor.Spec{Session: id, Code: code})
	return out
}

// TestAPythonInAClosedFolderIsUsable has a Python in a folder that only the plugin's user may enter, like /root/.pyenv.
func TestAPythonInAClosedFolderIsUsable(t *testing.T) {
	closed := filepath.Join(folder(t), "closed")
	python := filepath.Join(closed, "versions", "3.99.1", "bin", "python3")
	copyPython(t, python)
	script(t, filepath.Join(closed, "secret"), "not-for-you")
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(python)+":"+os.Getenv("PATH"))
	b := openBoxed(t, nil)
	if got := b.inventory.Load().fallback.Path; got != python {
		t.Fatalf("the default is %s, unreachable are %+v", got, b.inventory.Load().unreachable)
	}
	out, _ := succeeds(t, b, executor.Spec{Code: fmt.Sprintf("import os, sys; print(sys.executable, os.listdir(%q), os.access(sys.executable, os.W_OK))", closed)})
	if want := python + " ['versions'] False\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if err := os.Remove(python); err != nil {
		t.Fatal(err)
	}
	j := job(executor.Spec{Code: "print(1)"})
	j.Owner = "" // a fork server may still have the interpreter
	if result, err := b.Run(t.Context(), j, &journal{}); executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), python+" no longer exists") {
		t.Errorf("after the removal of the interpreter: %+v, %v", result, err)
	}
}

// copyPython makes an installation at file that uses the standard library of a Python of the system.
func copyPython(t *testing.T, file string) {
	t.Helper()
	real := realPython(t)
	raw, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	script(t, file, string(raw))
	script(t, filepath.Join(filepath.Dir(filepath.Dir(file)), "pyvenv.cfg"), "home = "+filepath.Dir(real)+"\n")
}

func TestAHostDirectoryIsReadOnlyUnlessTheConfigurationOpensIt(t *testing.T) {
	open, other := folder(t), folder(t)
	b := openBoxed(t, map[string]any{"writable_directories": []string{open}})
	if !b.can.HostDirectories {
		t.Skip("SKIPPED: root's programs have uids of their own and get no host directories; TestConformance runs this test without root")
	}
	for dir, want := range map[string]string{open: "written\n", other: "[Errno 30] Read-only file system: 'made'\n"} {
		script(t, filepath.Join(dir, "data.txt"), "data")
		out, _ := succeeds(t, b, executor.Spec{HostDirectory: dir, Code: `
import os
assert open("data.txt").read() == "data", os.getcwd()
try:
    open("made", "w").close()
    print("written")
except OSError as e:
    print(e)
`})
		if out != want {
			t.Errorf("%s: got %q, want %q", dir, out, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != (dir == open) {
			t.Errorf("%s: a file was made: %v", dir, err == nil)
		}
	}
}

func TestOnlyTheProgramsOwnEnvironmentIsThere(t *testing.T) {
	b, _ := indexed(t, nil)
	needtest.Need(t, b.how.Box, needtest.Box, b.how.Why["box"])
	for _, requirements := range []string{"pyexec-probe", "pyexec-base"} {
		succeeds(t, b, executor.Spec{Requirements: requirements, Code: "import pyexec_base"})
	}
	list, _ := b.cache.entries()
	out, _ := succeeds(t, b, executor.Spec{Requirements: "pyexec-probe", Code: fmt.Sprintf("import os, pyexec_probe; print(len(os.listdir(%q)))", b.cache.dir)})
	if len(list) != 2 || out != "1\n" {
		t.Errorf("of %d environments the program sees %s", len(list), out)
	}
}
