package uvbackend

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// put makes an empty file, with the folders above it, and returns its path.
func put(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	script(t, path, "")
	return path
}

func TestAProgramReachesItsInstallationAndNeverAHome(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	t.Setenv("HOME", home)
	put(t, home, ".ssh", "id_ed25519")
	version := filepath.Join(home, ".pyenv", "versions", "3.12.1")
	own := put(t, version, "bin", "python3.12")
	shared := put(t, home, "bin", "python3.11")
	put(t, home, "lib", "python3.11", "os.py")
	put(t, home, "lib", "mail")
	local := put(t, home, ".local", "bin", "python3.10")
	put(t, home, ".local", "share", "keyrings", "login")
	venv := filepath.Join(home, "venv")
	copied := put(t, venv, "bin", "python3.12")
	script(t, filepath.Join(venv, "pyvenv.cfg"), "home = "+filepath.Join(version, "bin")+"\ninclude-system-site-packages = false\n")
	linked := filepath.Join(home, "tools", "python", "bin", "python3")
	link(t, own, linked)
	for name, c := range map[string]struct {
		path string
		want []string
	}{
		"a version of pyenv":              {own, []string{version, own}},
		"a Python of the home":            {shared, []string{shared, filepath.Join(home, "lib", "python3.11")}},
		"a Python of ~/.local":            {local, []string{local}},
		"a copy in a virtual environment": {copied, []string{venv, version, copied}},
		"a link":                          {linked, []string{filepath.Join(home, "tools", "python"), version, own, linked}},
	} {
		got := installation(c.path)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := installation(linked); len(got) == 0 || len(got[0]) > len(got[len(got)-1]) {
		t.Errorf("the folders of %q must come first", got)
	}
	library := put(t, filepath.Join(t.TempDir(), "lib"))
	link(t, library, filepath.Join(home, "lib", "libpython3.11.so"))
	if got := installation(shared); !slices.Contains(got, library) {
		t.Errorf("got %q, want %s, to which a link leads", got, library)
	}
	if got := installation("/usr/bin/env"); len(got) != 0 {
		t.Errorf("a program of the system needs %q", got)
	}
	for _, prefix := range []string{"/", "/root", "/opt", "/home/alice", home, filepath.Dir(home)} {
		if !sharedPrefix(prefix) {
			t.Errorf("%s would be visible to programs", prefix)
		}
	}
}

func TestAPyenvShimIsNotStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	script(t, filepath.Join(dir, "shims", "python3"), "#!/bin/sh\necho x >> "+asked+"\n")
	for _, version := range []string{"3.11.7", "3.12.1"} {
		script(t, filepath.Join(dir, "versions", version, "bin", "python3"), "\x7fELF "+version)
	}
	script(t, filepath.Join(dir, "versions", "script", "bin", "python3"), "#!/bin/sh\n")
	later := filepath.Join(dir, "later", "python3")
	script(t, later, "\x7fELF later")
	set := map[string]string{}
	p := places{path: filepath.Join(dir, "shims") + ":" + filepath.Dir(later), env: func(name string) string { return set[name] }}
	first := func() string {
		t.Helper()
		for _, c := range p.candidates() {
			if c.onPath >= 0 {
				return c.real
			}
		}
		return ""
	}
	python := func(version string) string { return filepath.Join(dir, "versions", version, "bin", "python3") }
	for _, c := range []struct{ file, variable, want string }{
		{"3.12.1\n", "", python("3.12.1")},
		{"3.11.7\n3.12.1\n", "", python("3.11.7")},
		{"3.99.0\n3.12.1\n", "", python("3.12.1")},
		{"3.12.1\n", "3.11.7", python("3.11.7")},
		{"3.12.1\n", "3.99.0:3.11.7", python("3.11.7")},
		{"script\n3.12.1\n", "", python("3.12.1")},
		{"system\n3.12.1\n", "", later},
		{"", "", later},
	} {
		script(t, filepath.Join(dir, "version"), c.file)
		set["PYENV_VERSION"] = c.variable
		if got := first(); got != c.want {
			t.Errorf("version %q, PYENV_VERSION %q: got %s, want %s", c.file, c.variable, got, c.want)
		}
	}
	if _, err := os.Stat(asked); err == nil {
		t.Error("the shim was started")
	}
}

func TestAHostFolderIsWritableOnlyWhereTheConfigurationSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"open/in", "openly", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link(t, filepath.Join(dir, "open"), filepath.Join(dir, "link"))
	c := Config{WritableDirectories: []string{filepath.Join(dir, "link")}}
	for name, want := range map[string]bool{"open": true, "open/in": true, "openly": false, "other": false, "link": false, "open/../other": false} {
		if got := c.writable(filepath.Join(dir, name)); got != want {
			t.Errorf("%s is writable: %v, want %v", name, got, want)
		}
	}
}

func TestAVersionIsGuessedFromAPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/opt/3.12.7/bin/python3.12": "3.12.7", "/home/ann/.pyenv/versions/3.9.1/bin/python3": "3.9.1", "/usr/bin/python3.9": "3.9", "/usr/bin/python3": "",
	} {
		if got := guess(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestEveryFolderLiesInTheRoot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, dir string
		want      bool
	}{{"/a/b", "/", true}, {"/", "/", true}, {"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}} {
		if got := inFolder(c.path, c.dir); got != c.want {
			t.Errorf("%s lies in %s: %v, want %v", c.path, c.dir, got, c.want)
		}
	}
}

func TestIsolationNamespacesRefusesLessAndNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	whole := mechanisms{Box: true, Layers: []sandbox.Layer{{Name: "seccomp"}, {Name: "landlock", Missing: "the kernel has none"}}}
	for _, c := range []struct {
		name, isolation string
		how             mechanisms
		says            string
	}{
		{"all of it", IsolationNamespaces, whole, ""},
		{"no box", IsolationNamespaces, mechanisms{Why: map[string]string{"box": "user namespaces: operation not permitted"}}, "user namespaces: operation not permitted"},
		{"no filter", IsolationNamespaces, mechanisms{Box: true, Layers: []sandbox.Layer{{Name: "seccomp", Missing: "the kernel has none"}}}, "seccomp: the kernel has none"},
		{"auto takes less", IsolationAuto, mechanisms{Why: map[string]string{"box": "no"}}, ""},
	} {
		err := Config{Isolation: c.isolation}.checkIsolation("mine", c.how)
		if c.says == "" && err != nil || c.says != "" && (executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "backends.mine.isolation")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestInABoxALanguageIsNamedByAPathThatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real := filepath.Join(dir, "node-v22", "bin", "node")
	script(t, real, "\x7fELF")
	link(t, real, filepath.Join(dir, "bin", "node"))
	if got := inBox(filepath.Join(dir, "bin", "node"), real); got != real {
		t.Errorf("got %s, want %s", got, real)
	}
	if got := inBox("/usr/bin/sh", "/usr/bin/busybox"); got != "/usr/bin/sh" {
		t.Errorf("got %s: busybox depends on the name", got)
	}
}
