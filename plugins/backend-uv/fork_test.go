package uvbackend

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// forkNameOf returns whose programs may be forks of one interpreter with a program of alice.
func forkNameOf(t *testing.T, b *Backend, requirements string) string {
	t.Helper()
	return startOf(t, b, requirements).Fork
}

// startOf returns what the runner gets for a program of alice.
func startOf(t *testing.T, b *Backend, requirements string) runner.Start {
	t.Helper()
	j := job(executor.Spec{Code: "print(1)", Requirements: requirements})
	j.Owner = "alice"
	i, _, err := b.choose(t.Context(), j.Spec)
	if err != nil {
		t.Fatal(err)
	}
	p, failure, err := b.plan(t.Context(), j, i, func(executor.Progress) {})
	if failure != nil || err != nil {
		t.Fatal(failure, err)
	}
	if p.environment != nil {
		p.environment.release()
	}
	return p.start
}

// TestPackagesWithCodeForTheStartDoNotRunInAForkServer builds environments whose packages have code that each interpreter runs when it
// starts.
func TestPackagesWithCodeForTheStartDoNotRunInAForkServer(t *testing.T) {
	b, w := indexed(t, nil)
	w.add("hooked", "1", map[string]string{"hooked.pth": "import os; os.kill = None\n"})
	w.add("elsewhere", "1", map[string]string{"elsewhere-1.data/data/pyvenv.cfg": "home = /tmp\n"})
	for _, name := range []string{"hooked", "elsewhere"} {
		if got := forkNameOf(t, b, name); got != "" {
			t.Errorf("programs that require %s are forks of %q", name, got)
		}
	}
	got := forkNameOf(t, b, "pyexec-probe")
	if bounded := b.groups.Enforces("memory") && b.groups.Enforces("pids"); strings.HasPrefix(got, "alice/") != bounded {
		t.Errorf("programs that require pyexec-probe are forks of %q, control groups: %v", got, bounded)
	}
	if got := forkNameOf(t, b, ""); got != "alice" {
		t.Errorf("programs without requirements are forks of %q", got)
	}
}

func TestOnlyTheFirstProgramOfACommandIsTheLastOne(t *testing.T) {
	for embedded, want := range map[bool][]bool{false: {false, false}, true: {true, false}} {
		b, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name(), Options: section(t, nil), Embedded: embedded})
		if err != nil {
			t.Fatal(err)
		}
		for n, last := range want {
			j := job(executor.Spec{Code: "print(1)"})
			i, _, err := b.choose(t.Context(), j.Spec)
			if err != nil {
				t.Fatal(err)
			}
			p, _, err := b.plan(t.Context(), j, i, func(executor.Progress) {})
			if err != nil {
				t.Fatal(err)
			}
			if p.start.Last != last {
				t.Errorf("program %d of a command (%v) is the last one: %v", n+1, embedded, p.start.Last)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestForksCanBeSwitchedOff(t *testing.T) {
	b := openBackend(t, map[string]any{"start": "exec"})
	if got := forkNameOf(t, b, ""); got != "" {
		t.Errorf("programs are forks of %q", got)
	}
}

func TestModulesAreLearnedOnlyIfTheConfigurationAllowsIt(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		section := map[string]any{}
		if allowed {
			section["preimport_learned"] = true
		}
		level := slog.LevelDebug
		if allowed {
			section["preimport"] = []string{"json"}
			level = slog.LevelWarn // notes tell which module keeps programs from being forks
		}
		b := openBackend(t, section)
		if got := startOf(t, b, ""); got.PreimportLearned != allowed || len(got.Preimport) > 0 != allowed {
			t.Errorf("the runner may learn: %v, must be %v; it imports %q", got.PreimportLearned, allowed, got.Preimport)
		}
		if b.slots.notes != level {
			t.Errorf("notes of runners are logged at the level %s, want %s", b.slots.notes, level)
		}
	}
}

// TestModulesAreImportedBeforeAProgramThatRequiresThem runs a program until it is a fork.
func TestModulesAreImportedBeforeAProgramThatRequiresThem(t *testing.T) {
	needtest.NeedRoot(t)
	// A private folder of the box would hide the environment between programs.
	cache, err := os.MkdirTemp("/var/cache", "uvbackend-")
	if err == nil {
		err = os.Chmod(cache, 0o755) //nolint:gosec // uids of slots pass through it
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeAll(cache); err != nil {
			t.Error(err)
		}
	})
	b, _ := indexed(t, map[string]any{"cache_dir": cache, "preimport": []string{"pyexec_probe", "no_such_module"}})
	needtest.Need(t, b.boundsForks && b.how.Box, needtest.Cgroup, "fork servers cannot be bounded")
	const code = "import sys\nprint('pyexec_probe' in sys.modules, sys.prefix != sys.base_prefix)\nimport pyexec_probe"
	awaittest.Until(t, "a program that is a fork", func() bool {
		j := &journal{}
		result, err := b.Run(t.Context(), job(executor.Spec{Code: code, Requirements: "pyexec-probe"}), j)
		if err != nil || result.Status != executor.StatusSucceeded {
			t.Fatalf("%+v, %v: %s", result, err, j.text(executor.Stderr))
		}
		how, out := j.started().Start, j.text(executor.Stdout)
		if want := map[executor.StartKind]string{executor.StartExec: "False True\n", executor.StartFork: "True True\n"}[how]; out != want {
			t.Fatalf("by %s: %q, want %q", how, out, want)
		}
		return how == executor.StartFork
	})
}

func TestStartupCodeIsFound(t *testing.T) {
	t.Parallel()
	const packages = "lib/python3.11/site-packages"
	write := func(t *testing.T, dir string, files map[string]string) {
		t.Helper()
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a test's own
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"nothing but modules", map[string]string{packages + "/a/__init__.py": "", packages + "/sitecustomize_a.py": "", "bin/a": ""}, ""},
		{"a .pth file with comments", map[string]string{packages + "/a.pth": "# import os\n\n"}, ""},
		{"a .pth file with code", map[string]string{packages + "/a.pth": "import _virtualenv\n"}, packages + "/a.pth"},
		{"a .pth file with a folder", map[string]string{packages + "/a.pth": "a\n"}, packages + "/a.pth"},
		{"a .start file", map[string]string{packages + "/a.start": "a:b\n"}, packages + "/a.start"},
		{"uv's module, changed", map[string]string{packages + "/_virtualenv.py": "import os"}, packages + "/_virtualenv.py"},
		{"a module sitecustomize", map[string]string{packages + "/sitecustomize.cpython-311-x86_64-linux-gnu.so": ""}, packages + "/sitecustomize.cpython-311-x86_64-linux-gnu.so"},
		{"a package usercustomize", map[string]string{packages + "/usercustomize/__init__.py": ""}, packages + "/usercustomize"},
		{"a hook of Debian's", map[string]string{packages + "/apport_python_hook.py": ""}, packages + "/apport_python_hook.py"},
		{"a configuration beside the interpreter", map[string]string{"bin/pyvenv.cfg": "home = /tmp\n"}, "bin/pyvenv.cfg"},
		{"the configuration, changed", map[string]string{"pyvenv.cfg": "home = /tmp\n"}, "pyvenv.cfg"},
		{"an interpreter", map[string]string{"bin/python3": "#!/bin/sh\n"}, "bin/python3"},
		{"a note of a build of the interpreter", map[string]string{"bin/pybuilddir.txt": "build\n"}, "bin/pybuilddir.txt"},
		{"a list of folders beside the interpreter", map[string]string{"bin/python311._pth": "/tmp\n"}, "bin/python311._pth"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{
				"pyvenv.cfg": "home = /usr/bin\n", packages + "/_virtualenv.py": "", packages + "/_virtualenv.pth": "import _virtualenv", "bin/activate": "", "bin/python3": "",
			})
			fresh, err := lookAtNew(dir)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, c.files)
			if got, err := fresh.startupCode(dir); got != c.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestAChangeOfWhatUVHasMadeIsStartupCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	packages := filepath.Join("lib", "python3.11", "site-packages")
	for _, name := range []string{filepath.Join(packages, "_virtualenv.py"), "pyvenv.cfg", "target", "other"} {
		put(t, dir, name)
	}
	python := filepath.Join("bin", "python")
	link(t, filepath.Join(dir, "target"), filepath.Join(dir, python))
	lock := put(t, dir, ".lock")
	fresh, err := lookAtNew(dir)
	if err != nil {
		t.Fatal(err)
	}
	is := func(what, want string) {
		t.Helper()
		if got, err := fresh.startupCode(dir); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", what, got, err, want)
		}
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	is("uv's lock file was removed", "")
	if err := errors.Join(os.Remove(filepath.Join(dir, python)), os.Symlink(filepath.Join(dir, "other"), filepath.Join(dir, python))); err != nil {
		t.Fatal(err)
	}
	is("the interpreter is another one", python)
	if err := errors.Join(os.Remove(filepath.Join(dir, python)), os.Symlink(filepath.Join(dir, "target"), filepath.Join(dir, python))); err != nil {
		t.Fatal(err)
	}
	is("the interpreter is that of uv again", "")
	if err := os.Remove(filepath.Join(dir, packages, "_virtualenv.py")); err != nil {
		t.Fatal(err)
	}
	is("uv's module was removed", filepath.Join(packages, "_virtualenv.py"))
}

func TestProgramsOfOneForkServerAreAlike(t *testing.T) {
	t.Parallel()
	like := runner.Start{Fork: "alice", Interpreter: []string{"/usr/bin/python3"}, Entrypoint: "main.py"}
	seen := map[string]string{forkOf(like): "the first"}
	for name, change := range map[string]func(*runner.Start){
		"another owner":       func(s *runner.Start) { s.Fork = "bob" },
		"another interpreter": func(s *runner.Start) { s.Interpreter = []string{"/usr/bin/python3.9"} },
		"another entrypoint":  func(s *runner.Start) { s.Entrypoint = "other.py" },
		"a network":           func(s *runner.Start) { s.Network = true },
	} {
		s := like
		change(&s)
		if other, had := seen[forkOf(s)]; had {
			t.Errorf("a program with %s is a fork like %s", name, other)
		}
		seen[forkOf(s)] = name
	}
	for want, groups := range map[bool][]sandbox.Cgroups{true: {{"memory": "/m", "pids": "/p"}}, false: {nil, {"memory": "/m"}, {"pids": "/p"}, {"cpu": "/c"}}} {
		for _, g := range groups {
			if boundsForks(g) != want {
				t.Errorf("%v bound a fork server: %v", g, !want)
			}
		}
	}
	for name, s := range map[string]runner.Start{"no name": {Interpreter: like.Interpreter}, "a command": {Fork: "alice"}} {
		if got := forkOf(s); got != "" {
			t.Errorf("a program with %s is a fork of %s", name, got)
		}
	}
}

func TestTheDoctorSaysHowProgramsStart(t *testing.T) {
	t.Parallel()
	linked := filepath.Join(folder(t), "linked")
	if err := os.Symlink("/var/tmp", linked); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		start                 string
		learned, box, bounded bool
		cache, want, remedy   string
	}{
		{StartFork, false, true, true, "/c", "programs are forks of an interpreter that has started", ""},
		{StartFork, true, true, true, "/var/tmpx", "that has started, with the modules that most of them import", ""},
		{StartFork, false, true, false, "/tmp/c", "no control group bounds memory and processes", ""},
		{StartFork, true, false, true, "/tmp/c", "each program starts an interpreter: there is no sandbox", ""},
		{StartExec, true, true, true, "/tmp/c", "each program starts an interpreter: backends.uv.start is exec", ""},
		{StartFork, false, true, true, "/tmp/c", "cache_dir is below /tmp, which is private to each program", "not below /tmp"},
		{StartFork, false, true, true, linked, "cache_dir is below /var/tmp, which is private to each program", "not below /var/tmp"},
	} {
		b := &Backend{config: Config{Start: c.start, PreimportLearned: c.learned, CacheDir: c.cache}, how: mechanisms{Box: c.box}, boundsForks: c.bounded}
		got := b.startFinding()
		if !strings.HasSuffix(got.Message, c.want) || !strings.HasSuffix(got.Remedy, c.remedy) || (got.Level == backend.LevelWarn) != (c.remedy != "") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
