package uvbackend

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// realPython returns a Python of this machine that every uid can execute.
func realPython(t *testing.T) string {
	t.Helper()
	for _, c := range (places{path: "/usr/bin:/usr/local/bin", env: func(string) string { return "" }}).candidates() {
		if !c.shim && closedFolder(filepath.Dir(c.real), anyUID) == "" {
			return c.real
		}
	}
	t.Skip("SKIPPED: no Python below /usr")
	return ""
}

func testProber(t *testing.T, path string) prober {
	t.Helper()
	return prober{
		places: places{path: path, env: func(string) string { return "" }},
		owner:  "self", cache: filepath.Join(t.TempDir(), "interpreters.json"), log: slog.New(slog.DiscardHandler),
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func script(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	// A process that another test starts meanwhile would hold the file open for writing until its exec, and such a file cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstPython3OnPathIsTheDefaultAsARealFile(t *testing.T) {
	t.Parallel()
	real, dir := realPython(t), t.TempDir()
	link(t, real, filepath.Join(dir, "a", "python3"))
	inv := testProber(t, filepath.Join(dir, "none")+":"+filepath.Join(dir, "a")).discover(t.Context())
	if inv.fallback.Path != real {
		t.Errorf("default is %q, want %q", inv.fallback.Path, real)
	}
	if i, ok := inv.find(inv.fallback.Minor); !ok || !strings.HasPrefix(i.Version, inv.fallback.Minor+".") {
		t.Errorf("%s is %+v", inv.fallback.Minor, i)
	}
}

func TestAShimIsAskedOnceWhatItStandsFor(t *testing.T) {
	t.Parallel()
	real, dir := realPython(t), t.TempDir()
	asked := filepath.Join(dir, "asked")
	script(t, filepath.Join(dir, "shims", "python3"), "#!/bin/sh\necho x >> "+asked+"\nexec "+real+" \"$@\"\n")
	p := testProber(t, filepath.Join(dir, "shims"))
	for range 3 {
		if inv := p.discover(t.Context()); inv.fallback.Path != real {
			t.Fatalf("default is %q, want %q", inv.fallback.Path, real)
		}
	}
	if raw, err := os.ReadFile(asked); err != nil || string(raw) != "x\n" {
		t.Errorf("asked %q, %v", raw, err)
	}
	script(t, filepath.Join(dir, "version"), "3.99\n") // the file that a pyenv shim reads
	p.discover(t.Context())
	if raw, _ := os.ReadFile(asked); string(raw) != "x\nx\n" {
		t.Errorf("after a change of the version file the shim was asked %q, want two times", raw)
	}
}

func TestWhatDoesNotRunIsAFindingAndNotAChoice(t *testing.T) {
	t.Parallel()
	real, dir := realPython(t), t.TempDir()
	script(t, filepath.Join(dir, "broken", "python3"), "#!/bin/sh\necho 'no such version' >&2\nexit 127\n")
	link(t, "/bin/true", filepath.Join(dir, "silent", "python3.12"))
	link(t, real, filepath.Join(dir, "good", "python3"))
	inv := testProber(t, strings.Join([]string{filepath.Join(dir, "broken"), filepath.Join(dir, "silent"), filepath.Join(dir, "good")}, ":")).discover(t.Context())
	if inv.fallback.Path != real {
		t.Errorf("default is %q, want %q", inv.fallback.Path, real)
	}
	if len(inv.unreachable) != 2 || !strings.Contains(inv.unreachable[0].Why, "no such version") || inv.unreachable[1].Why == "" {
		t.Errorf("findings are %+v", inv.unreachable)
	}
}

func TestAPythonInAClosedHomeIsNamedWithTheRemedy(t *testing.T) {
	needtest.NeedRoot(t)
	t.Parallel()
	home := t.TempDir() // its parent is closed below
	if err := os.Chmod(filepath.Dir(home), 0o700); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(home, ".pyenv", "versions", "3.12.1", "bin")
	raw, err := os.ReadFile(realPython(t))
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(bin, "python3.12"), string(raw))
	locks := t.TempDir()
	p := testProber(t, "/nowhere")
	p.places.home = home
	// Uids that no other test has: those do not look into this folder of locks.
	p.claim = func() (*uidClaim, error) { c, err := claimUID(locks, uids{61500, 61509}); return c, err }
	inv := p.discover(t.Context())
	if len(inv.unreachable) != 1 {
		t.Fatalf("findings are %+v", inv.unreachable)
	}
	u := inv.unreachable[0]
	if u.Version != "3.12.1" || !strings.Contains(u.Why, filepath.Dir(home)) || !strings.Contains(u.Remedy, "chmod o+x "+filepath.Dir(home)) {
		t.Errorf("finding is %+v", u)
	}
	if hint := inv.hint("3.12"); !strings.Contains(hint, "chmod") {
		t.Errorf("the hint is %q", hint)
	}
	if err := os.Chmod(filepath.Dir(home), 0o711); err != nil {
		t.Fatal(err)
	}
	if inv := p.discover(t.Context()); len(inv.unreachable) != 0 {
		t.Errorf("after the remedy: %+v", inv.unreachable)
	}
}

func TestAnAliasGivesAnInterpreterAllItsNames(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	i := interpreter{Path: "/usr/bin/python3.9", Version: "3.9.2", Minor: "3.9"}
	for range 2 {
		dir, err := i.alias(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"python", "python3", "python3.9"} {
			if target, err := os.Readlink(filepath.Join(dir, name)); err != nil || target != i.Path {
				t.Errorf("%s is %q, %v", name, target, err)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(root, ".tmp-*")); len(left) != 0 {
		t.Errorf("leftovers of alias: %q", left)
	}
}

func TestImagesChooseInterpreters(t *testing.T) {
	t.Parallel()
	mapped := map[string]string{"my/image:1": "3.9"}
	for _, c := range []struct{ image, want string }{
		{"python:3.12", "3.12"},
		{"python:3.12-slim", "3.12"},
		{"python:3.12.1-slim-bookworm", "3.12"},
		{"docker.io/library/python:3.11", "3.11"},
		{"library/python:3.8", "3.8"},
		{"python:3.12@sha256:" + strings.Repeat("0", 64), "3.12"},
		{"my/image:1", "3.9"},
		{"python", ""},
		{"python:3", ""},
		{"python:3-slim", ""},
		{"python:latest", ""},
		{"python:3.123", ""},
		{"python:2.7", ""},
		{"evil/python:3.12", ""},
		{"ubuntu:22.04", ""},
		{"python:3.12 ; rm", ""},
	} {
		if got, _ := imageVersion(c.image, mapped); got != c.want {
			t.Errorf("%s stands for %q, want %q", c.image, got, c.want)
		}
	}
}

func TestTheClosedFolderOfAPathIsFound(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	closed := filepath.Join(dir, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := closedFolder(filepath.Join(closed, "in"), anyUID); got != "" {
		t.Errorf("closedFolder names %q, and all folders are open", got)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := closedFolder(filepath.Join(closed, "in"), anyUID); got != closed {
		t.Errorf("got %q, want %q", got, closed)
	}
	if got := closedFolder(filepath.Join(closed, "in"), os.Geteuid()); got != "" {
		t.Errorf("closedFolder names %q for the owner", got)
	}
}
