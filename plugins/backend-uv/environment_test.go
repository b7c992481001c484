package uvbackend

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// indexed returns a backend and a package index for the backend alone.
func indexed(t *testing.T, more map[string]any) (*Backend, *wheelhouse) {
	t.Helper()
	needUV(t)
	w := newWheelhouse(t)
	w.probe()
	set := map[string]any{"index_url": w.url()}
	for k, v := range more {
		set[k] = v
	}
	return openBackend(t, set), w
}

const probeProgram = "import pyexec_probe, pyexec_base, sys\nprint(pyexec_probe.__version__, pyexec_base.__version__)"

func TestRequirementsAreInstalledOnceAndSharedByTheSameSet(t *testing.T) {
	b, w := indexed(t, nil)
	out, result := succeeds(t, b, executor.Spec{Code: probeProgram, Requirements: "pyexec_probe == 1.2.3 # why\n"})
	if out != "1.2.3 1.0\n" {
		t.Errorf("got %q", out)
	}
	w.mu.Lock()
	least := w.last.Sub(w.first)
	w.mu.Unlock()
	if result.Phases.Prepare < least {
		t.Errorf("the preparation took %s according to the result, and it asked the index for %s", result.Phases.Prepare, least)
	}
	if want := []string{"pyexec-base==1.0", "pyexec-probe==1.2.3"}; !slices.Equal(result.Requirements, want) {
		t.Errorf("resolved %q, want %q", result.Requirements, want)
	}
	asked := w.requests.Load()
	succeeds(t, b, executor.Spec{Code: probeProgram, Requirements: "PyExec.Probe==1.2.3"})
	if w.requests.Load() != asked || b.cache.misses.Load() != 1 || b.cache.hits.Load() != 1 {
		t.Errorf("%d more requests to the index, %d builds, %d hits", w.requests.Load()-asked, b.cache.misses.Load(), b.cache.hits.Load())
	}
	succeeds(t, b, executor.Spec{Code: "print(1)", Requirements: "# nothing but a comment\n"})
	if b.cache.misses.Load() != 1 {
		t.Error("an empty set of requirements was built")
	}
}

func TestManyWhoWantTheSameEnvironmentWaitForOneBuild(t *testing.T) {
	b, _ := indexed(t, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			result, j := &executor.Result{}, &journal{}
			var err error
			*result, err = b.Run(t.Context(), job(executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}), j)
			if err != nil || j.text(executor.Stdout) != "2.0 1.0\n" {
				t.Errorf("%v, %+v, %q", err, result.Failure, j.text(executor.Stderr))
			}
		})
	}
	wg.Wait()
	if n := b.cache.misses.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestWhoeverCancelsASharedBuildHurtsNobodyElse(t *testing.T) {
	b, w := indexed(t, nil)
	w.mu.Lock()
	w.hold = make(chan struct{})
	w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	type outcome struct {
		result executor.Result
		err    error
	}
	first, second := make(chan outcome, 1), make(chan outcome, 1)
	go func() {
		r, err := b.Run(ctx, job(executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}), &journal{})
		first <- outcome{r, err}
	}()
	<-w.asked
	joined := make(chan struct{})
	go func() {
		once := sync.OnceFunc(func() { close(joined) })
		j := &journal{on: func(executor.Event) error { once(); return nil }}
		r, err := b.Run(t.Context(), job(executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}), j)
		second <- outcome{r, err}
	}()
	<-joined // the second job has seen progress of the build that both share
	cancel(errors.New("changed my mind"))
	if o := <-first; o.err != nil || o.result.Status != executor.StatusKilled {
		t.Errorf("the cancelled job got %+v, %v", o.result, o.err)
	}
	close(w.hold)
	if o := <-second; o.err != nil || o.result.Status != executor.StatusSucceeded {
		t.Errorf("the other job got %+v, %v", o.result, o.err)
	}
	if n := b.cache.misses.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestABuildThatNobodyWaitsForEndsAndLeavesNothing(t *testing.T) {
	b, w := indexed(t, nil)
	w.mu.Lock()
	w.hold = make(chan struct{})
	w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-w.asked
		cancel(errors.New("changed my mind"))
	}()
	r, err := b.Run(ctx, job(executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}), &journal{})
	if err != nil || r.Status != executor.StatusKilled {
		t.Errorf("got %+v, %v", r, err)
	}
	b.builder.Wait()
	if left, _ := filepath.Glob(filepath.Join(b.cache.dir, ".tmp-*")); len(left) != 0 {
		t.Errorf("leftovers of the build: %q", left)
	}
	close(w.hold)
	succeeds(t, b, executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"})
}

func TestRequirementsThatCannotBeInstalledFailWithUvsExplanation(t *testing.T) {
	b, w := indexed(t, nil)
	w.addFile("pyexec-source", "pyexec-source-1.0.tar.gz", []byte("not read"))
	w.add("pyexec-needy", "1.0", nil, "pyexec-nowhere>=3")
	for _, c := range []struct{ name, text, says string }{
		{"a version that does not exist", "pyexec-probe==99", "pyexec-probe==99"},
		{"a package that does not exist", "pyexec-nothing", "pyexec-nothing"},
		{"two that contradict each other", "pyexec-probe<2\npyexec-probe>=2", "pyexec-probe"},
		{"a dependency that does not exist", "pyexec-needy", "pyexec-nowhere"},
		{"a package without wheels", "pyexec-source", "wheels"},
		{"a line that is no requirement", "pyexec probe", "line 1"},
		{"a file of the host", "-r /etc/passwd", "options are not allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, j := run(t, b, executor.Spec{Code: "print(1)", Requirements: c.text})
			f := result.Failure
			if result.Status != executor.StatusFailed || f == nil || f.Code != executor.Invalid || f.Phase != executor.PhasePrepare || f.Field != "requirements_txt" {
				t.Fatalf("got %+v with %+v", result, f)
			}
			if !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, b.config.CacheDir) {
				t.Errorf("the message is %q, want %q and no path of the cache in it", f.Message, c.says)
			}
			if j.started() != nil {
				t.Error("the program was started")
			}
		})
	}
}

func TestAnIndexThatIsOutOfReachIsAClearError(t *testing.T) {
	needUV(t)
	t.Setenv("UV_HTTP_RETRIES", "0")
	b := openBackend(t, map[string]any{"index_url": "http://user:secret@127.0.0.1:9/simple"})
	result, _ := run(t, b, executor.Spec{Code: "print(1)", Requirements: "pyexec-probe"})
	f := result.Failure
	if result.Status != executor.StatusFailed || f == nil || f.Code != executor.Unavailable || !strings.Contains(f.Message, "could not be reached") {
		t.Fatalf("got %+v with %+v", result, f)
	}
	if strings.Contains(f.Message, "secret") {
		t.Errorf("the message has credentials: %s", f.Message)
	}
}

func TestADamagedEnvironmentIsBuiltAgain(t *testing.T) {
	b, _ := indexed(t, nil)
	spec := executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}
	succeeds(t, b, spec)
	list, _ := b.cache.entries()
	if len(list) != 1 {
		t.Fatalf("%d environments", len(list))
	}
	dir := b.cache.path(list[0].key)
	for name, damage := range map[string]func() error{
		"without its marker":    func() error { return os.Remove(filepath.Join(dir, markerName)) },
		"with a garbled marker": func() error { return os.WriteFile(filepath.Join(dir, markerName), []byte("{"), 0o600) },
		"without its python":    func() error { return os.Remove(filepath.Join(dir, "bin", "python")) },
		"without its packages":  func() error { return removeAll(filepath.Join(dir, "lib")) },
		"after a power cut that emptied a file": func() error {
			b.cache.boot = "another boot"
			clear(b.cache.known)
			packages, err := sitePackages(dir)
			if err != nil {
				return err
			}
			return os.Truncate(filepath.Join(packages, "pyexec_probe", "__init__.py"), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := b.cache.misses.Load()
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			if out, _ := succeeds(t, b, spec); out != "2.0 1.0\n" {
				t.Errorf("got %q", out)
			}
			if n := b.cache.misses.Load() - before; n != 1 {
				t.Errorf("built %d times", n)
			}
		})
	}
}

func TestAWholeEnvironmentSurvivesAReboot(t *testing.T) {
	b, _ := indexed(t, nil)
	spec := executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}
	succeeds(t, b, spec)
	b.cache.boot = "another boot"
	clear(b.cache.known)
	succeeds(t, b, spec)
	if n := b.cache.misses.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestProgramsCannotChangeAnEnvironment(t *testing.T) {
	b, _ := indexed(t, nil)
	out, _ := succeeds(t, b, executor.Spec{Requirements: "pyexec-probe", Code: `
import os, pyexec_probe, sys
bad = []
top = sys.prefix
for folder, _, files in os.walk(top):
    for name in [folder] + [os.path.join(folder, f) for f in files]:
        try:
            mode = os.stat(name).st_mode
        except OSError as e:
            bad.append(str(e)); continue
        if os.stat(name).st_uid == os.getuid() and mode & 0o222 or mode & 0o022:
            bad.append(name)
print(bad, os.path.exists(os.path.join(os.path.dirname(pyexec_probe.__file__), "__pycache__")))
`})
	if out != "[] True\n" {
		t.Errorf("writable, or without bytecode: %s", out)
	}
}

func TestWheelsThatWouldRunCodeAtInstallationDoNotRunItAsUs(t *testing.T) {
	b, w := indexed(t, nil)
	dir := folder(t)
	trap := filepath.Join(dir, "sprung")
	w.add("pyexec-trap", "1.0", map[string]string{
		"pyexec_trap.py":  "x = 1\n",
		"pyexec_trap.pth": "import os; os.getuid() == 0 and open('" + trap + "', 'w').close()\n",
	})
	succeeds(t, b, executor.Spec{Code: "import pyexec_trap", Requirements: "pyexec-trap"})
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the test only shows whether code of a wheel runs as root")
	}
	if _, err := os.Stat(trap); err == nil {
		t.Error("a .pth file of a wheel was executed as root")
	}
}

func TestScriptsOfAnEnvironmentAreOnPath(t *testing.T) {
	b, w := indexed(t, nil)
	w.add("pyexec-tool", "1.0", map[string]string{
		"pyexec_tool.py": "def main():\n    import sys\n    print('tool', sys.argv[1:])\n",
		"pyexec_tool-1.0.dist-info/entry_points.txt": "[console_scripts]\npyexec-tool = pyexec_tool:main\n",
	})
	out, _ := succeeds(t, b, executor.Spec{Command: []string{"pyexec-tool", "a"}, Args: []string{"b"}, Requirements: "pyexec-tool"})
	if out != "tool ['a', 'b']\n" {
		t.Errorf("got %q", out)
	}
}

func TestTheRealIndex(t *testing.T) {
	needUV(t)
	b := openBackend(t, nil)
	result, j := run(t, b, executor.Spec{Code: "import six; print(six.__version__)", Requirements: "six==1.16.0"})
	if f := result.Failure; f != nil && f.Code == executor.Unavailable {
		needtest.Need(t, false, "index", f.Message)
	}
	if result.Status != executor.StatusSucceeded || j.text(executor.Stdout) != "1.16.0\n" || !slices.Equal(result.Requirements, []string{"six==1.16.0"}) {
		t.Errorf("got %+v, %+v, %q", result, result.Failure, j.text(executor.Stderr))
	}
}

// TestWhateverMayChangeAnEnvironmentIsInItsKey shows that each input of an environment changes the key. Otherwise, for example, a
// job could get the packages of another index.
func TestWhateverMayChangeAnEnvironmentIsInItsKey(t *testing.T) {
	t.Parallel()
	a := interpreter{Path: "/usr/bin/python3.11", Version: "3.11.2", Minor: "3.11", Platform: "linux-x86_64", Implementation: "cpython"}
	lines := []string{"six", "wheel"}
	keys := map[string]string{}
	add := func(name string, b builder, w want) {
		t.Helper()
		key := b.key(w)
		if key != b.key(w) || len(key) != 64 {
			t.Errorf("%s: the key is %q", name, key)
		}
		if other, had := keys[key]; had {
			t.Errorf("%s has the key of %s", name, other)
		}
		keys[key] = name
	}
	add("the plain one", builder{}, want{a, lines})
	add("another index", builder{index: index{key: "other"}}, want{a, lines})
	add("builds allowed", builder{config: Config{AllowBuilds: true}}, want{a, lines})
	add("other requirements", builder{}, want{a, []string{"six"}})
	add("requirements run together", builder{}, want{a, []string{"sixwheel"}})
	for name, change := range map[string]func(*interpreter){
		"another path":           func(i *interpreter) { i.Path = "/opt/python3.11" },
		"another version":        func(i *interpreter) { i.Version = "3.11.3" },
		"another platform":       func(i *interpreter) { i.Platform = "linux-aarch64" },
		"another implementation": func(i *interpreter) { i.Implementation = "pypy" },
	} {
		i := a
		change(&i)
		add(name, builder{}, want{i, lines})
	}
}

// TestAnEnvironmentThatAnotherProcessHasBuiltIsNotBuiltAgain has a process that waited for the other's build.
func TestAnEnvironmentThatAnotherProcessHasBuiltIsNotBuiltAgain(t *testing.T) {
	t.Parallel()
	c := testCache(t, 1<<20)
	tool := newUVTool(t.TempDir(), places{path: t.TempDir()}, index{}, func(context.Context) []string { return nil }, slog.New(slog.DiscardHandler))
	tool.enclose = func(context.Context, string) (enclosure, error) { return enclosure{}, errors.New("no box") }
	b := &builder{name: "uv", config: Default(), cache: c, tool: tool}
	fill(t, c, "there", 1000, time.Hour)
	if failure, err := b.build(t.Context(), "there", want{}, backend.NoProgress); failure != nil || err != nil || c.misses.Load() != 0 {
		t.Errorf("%+v, %v, %d builds", failure, err, c.misses.Load())
	}
	failure, err := b.build(t.Context(), "missing", want{}, backend.NoProgress)
	if err != nil || failure == nil {
		t.Fatalf("without uv: %+v, %v", failure, err)
	}
	if failure.Code != executor.Unavailable || failure.Phase != executor.PhasePrepare || !strings.Contains(failure.Message, "no box") || c.misses.Load() != 1 {
		t.Errorf("without uv: %+v, %v, %d builds", failure, err, c.misses.Load())
	}
}

// TestTwoIndexesShareNoEnvironment shows the same for the index with a whole backend.
func TestTwoIndexesShareNoEnvironment(t *testing.T) {
	needUV(t)
	cache := filepath.Join(folder(t), "cache")
	for _, version := range []string{"1.0", "2.0"} {
		w := newWheelhouse(t)
		w.add("pyexec-mine", version, map[string]string{"pyexec_mine.py": "print('" + version + "')\n"})
		b := openBackend(t, map[string]any{"cache_dir": cache, "index_url": w.url()})
		if out, _ := succeeds(t, b, executor.Spec{Code: "import pyexec_mine", Requirements: "pyexec-mine"}); out != version+"\n" {
			t.Errorf("the index has %s, the program %q", version, out)
		}
	}
}
