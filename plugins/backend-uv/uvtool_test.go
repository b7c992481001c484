package uvbackend

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// fetching returns a uvTool that finds no uv and can fetch one from w.
func fetching(t *testing.T, w *wheelhouse, wheel []byte) *uvTool {
	t.Helper()
	python := realPython(t)
	x := hostIndex(w.url(), "", func(string) string { return "" })
	tool := newUVTool(t.TempDir(), places{path: t.TempDir(), env: func(string) string { return "" }}, x,
		func(context.Context) []string { return []string{python} }, slog.New(slog.DiscardHandler))
	tool.pin = pin{"9.9.9", []string{fmt.Sprintf("%x", sha256.Sum256(wheel))}}
	tool.enclose = unbounded(tool)
	if _, err := tool.run(t.Context(), nil, python, "-c", "import pip"); err != nil {
		needtest.Need(t, false, "pip", err.Error())
	}
	return tool
}

// uvWheel returns a wheel whose program is this test binary. Under the name uv the binary prints the version of a uv.
func uvWheel(t *testing.T) []byte {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return plugintest.Wheel("uv", "9.9.9", "py3-none-any", map[string]string{"uv-9.9.9.data/scripts/uv": string(self)})
}

func TestAMissingUvIsFetchedOnceByEverybodyTogether(t *testing.T) {
	w, content := newWheelhouse(t), uvWheel(t)
	w.addFile("uv", "uv-9.9.9-py3-none-any.whl", content)
	first := fetching(t, w, content)
	second := *first // another process: its own memory, the same folder
	second.turn = make(chan struct{}, 1)
	var wg sync.WaitGroup
	for _, tool := range []*uvTool{first, first, &second} {
		wg.Go(func() {
			program, err := tool.find(t.Context(), func(string) {})
			if err != nil || program.version != "9.9.9" {
				t.Errorf("got %+v, %v", program, err)
			}
		})
	}
	wg.Wait()
	if n := w.requests.Load(); n != 2 {
		t.Errorf("the index was asked %d times, want one page and one wheel", n)
	}
	if left, _ := filepath.Glob(filepath.Join(first.dir, ".tmp-*")); len(left) != 0 {
		t.Errorf("leftovers of the fetch: %q", left)
	}
}

func TestAUvWithAnotherHashIsNotTaken(t *testing.T) {
	w, content := newWheelhouse(t), uvWheel(t)
	w.addFile("uv", "uv-9.9.9-py3-none-any.whl", content)
	tool := fetching(t, w, []byte("what was pinned"))
	_, err := tool.find(t.Context(), func(string) {})
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(strings.ToLower(err.Error()), "hash") {
		t.Errorf("got %v", err)
	}
	if isFile(tool.fetched()) {
		t.Error("uv was installed")
	}
}

func TestWithoutAnIndexTheMissingUvIsExplained(t *testing.T) {
	w, content := newWheelhouse(t), []byte("x")
	tool := fetching(t, w, content)
	tool.index = hostIndex("http://me:secret@127.0.0.1:9/simple", "", func(name string) string {
		return map[string]string{"PIP_DEFAULT_TIMEOUT": "1"}[name]
	})
	tool.index.pip = append(tool.index.pip, "PIP_RETRIES=0")
	_, err := tool.find(t.Context(), func(string) {})
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "Install uv") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// boxed returns a uvTool like fetching. Its fetches run in boxes of b.
func boxed(t *testing.T, b *Backend, w *wheelhouse, wheel []byte) *uvTool {
	t.Helper()
	tool := fetching(t, w, wheel)
	tool.dir = b.tool.dir
	tool.enclose = b.tool.enclose
	b.builder.fetches.Sources = tool.index.sources
	return tool
}

// TestUvIsFetchedAsAPreparationIs shows that pip runs under a uid of its own, and that the fetched files belong to the plugin's
// user in the end.
func TestUvIsFetchedAsAPreparationIs(t *testing.T) {
	w, content := newWheelhouse(t), uvWheel(t)
	w.addFile("uv", "uv-9.9.9-py3-none-any.whl", content)
	b := openBackend(t, nil)
	needBounds(t, b)
	tool := boxed(t, b, w, content)
	w.mu.Lock()
	w.hold = make(chan struct{})
	w.mu.Unlock()
	owners := make(chan int, 1)
	go func() {
		defer close(w.hold)
		defer close(owners)
		<-w.asked
		pids, _ := filepath.Glob("/proc/[0-9]*")
		for _, pid := range pids {
			line, _ := os.ReadFile(filepath.Join(pid, "cmdline"))
			if info, err := os.Stat(pid); err == nil && strings.Contains(string(line), tool.dir) && strings.Contains(string(line), "--require-hashes") {
				owners <- ownerOf(info)
				return
			}
		}
	}()
	program, err := tool.find(t.Context(), func(string) {})
	if err != nil || program.version != "9.9.9" {
		t.Fatalf("got %+v, %v", program, err)
	}
	owner, seen := <-owners
	if !seen || owner < b.how.uids.first || owner > b.how.uids.last || b.how.uids.programs().has(owner) {
		t.Errorf("pip was seen: %t; it ran as uid %d, want a reserved uid of %s", seen, owner, b.how.uids)
	}
	err = filepath.WalkDir(filepath.Dir(filepath.Dir(tool.fetched())), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && ownerOf(info) != 0 {
			t.Errorf("%s belongs to %d", path, ownerOf(info))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := tool.reachable(t.Context(), program, mechanisms{}, owner); err != nil {
		t.Errorf("a build cannot execute the fetched uv: %v", err)
	}
}

func TestAFetchOfUvIsBounded(t *testing.T) {
	w := newWheelhouse(t)
	for name, c := range map[string]struct {
		size    int
		options map[string]any
		says    string
	}{
		"what it writes": {80 << 20, map[string]any{"environment_bytes": 64 << 20}, "backends.uv.environment_bytes (67108864)"},
		"its time":       {0, map[string]any{"prepare_seconds": 1}, "backends.uv.prepare_seconds (1)"},
	} {
		t.Run(name, func(t *testing.T) {
			content := plugintest.Wheel("uv", "9.9.9", "py3-none-any", map[string]string{"uv-9.9.9.data/scripts/uv": "x", "zeros": strings.Repeat("\x00", c.size)})
			w.addFile("uv", "uv-9.9.9-py3-none-any.whl", content)
			b := openBackend(t, c.options)
			if c.size == 0 {
				w.mu.Lock()
				w.hold = make(chan struct{})
				w.mu.Unlock()
				defer close(w.hold)
			}
			*b.tool = *boxed(t, b, w, content)
			result, _ := run(t, b, executor.Spec{Code: "print(1)", Requirements: "pyexec-probe"})
			f := result.Failure
			if result.Status != executor.StatusFailed || f == nil || f.Phase != executor.PhasePrepare || !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, "requirements_txt") {
				t.Errorf("got %+v with %+v, want %s", result, f, c.says)
			}
			if isFile(b.tool.fetched()) {
				t.Error("uv was installed")
			}
			if left, _ := filepath.Glob(filepath.Join(b.tool.dir, ".tmp-*")); len(left) != 0 {
				t.Errorf("leftovers of the fetch: %q", left)
			}
		})
	}
}

func TestAShimNamedUvIsPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script(t, filepath.Join(dir, "uv"), "#!/bin/sh\necho uv 99.0.0\n")
	tool := newUVTool(t.TempDir(), places{path: dir, env: func(string) string { return "" }}, index{},
		func(context.Context) []string { return nil }, slog.New(slog.DiscardHandler))
	if program, err := tool.look(t.Context()); err != nil || program.path != "" {
		t.Errorf("got %+v, %v", program, err)
	}
}

func TestVersionsOfUv(t *testing.T) {
	t.Parallel()
	oldest := fmt.Sprintf("0.%d.0", oldestUVMinor)
	for out, want := range map[string]struct {
		version string
		old     bool
	}{
		"uv " + oldest + " (1234 2025-01-01)\n":            {oldest, false},
		fmt.Sprintf("uv 0.%d.99\n", oldestUVMinor-1):       {fmt.Sprintf("0.%d.99", oldestUVMinor-1), true},
		"uv 0.13.9 (x86_64-unknown-linux-gnu)\n":           {"0.13.9", false},
		"uv 1.0.0\n":                                       {"1.0.0", false},
		"uvx 1.0.0\n":                                      {"", false},
		"uv: error while loading shared libraries: libc\n": {"", false},
	} {
		if version, old := parseUVVersion(out); version != want.version || old != want.old {
			t.Errorf("%q: version %q, old: %v, want %+v", out, version, old, want)
		}
	}
}

// TestUvIsLookedForAgainWhenItIsGone has a machine without uv, on which no uv can be fetched.
func TestUvIsLookedForAgainWhenItIsGone(t *testing.T) {
	t.Parallel()
	tool := newUVTool(t.TempDir(), places{path: t.TempDir()}, index{}, func(context.Context) []string { return nil }, slog.New(slog.DiscardHandler))
	tool.enclose = func(context.Context, string) (enclosure, error) { return enclosure{}, errors.New("no box") }
	tool.found = uvProgram{path: put(t, t.TempDir(), "uv"), version: "9.9.9"}
	if program, err := tool.find(t.Context(), func(string) {}); err != nil || program != tool.found {
		t.Errorf("got %+v, %v", program, err)
	}
	if err := os.Remove(tool.found.path); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(tool.dir, ".tmp-killed")
	put(t, killed, "target", "uv")
	var said []string
	program, err := tool.find(t.Context(), func(message string) { said = append(said, message) })
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "no box") || len(said) != 1 || !strings.Contains(said[0], tool.pin.version) {
		t.Errorf("got %+v, %v, progress %q", program, err, said)
	}
	if isFolder(killed) {
		t.Error("the leftover of a killed fetch was not removed")
	}
}

func TestUvIsLookedForOnPathAndElsewhere(t *testing.T) {
	t.Parallel()
	tool := &uvTool{dir: "/tools", pin: pin{version: "9.9.9"}, places: places{path: "/a:/b", home: "/home/me"}}
	want := []string{"/a/uv", "/b/uv", "/home/me/.local/bin/uv", "/home/me/.cargo/bin/uv", "/tools/uv-9.9.9/bin/uv", "/py/bin/uv"}
	if got := tool.files([]string{"/py/bin/python3"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestABuildGetsACopyOfAUvThatItMayNotExecute(t *testing.T) {
	t.Parallel()
	tool := &uvTool{dir: filepath.Join(folder(t), "tools")}
	program := uvProgram{path: filepath.Join(folder(t), "uv"), version: "9.9.9"}
	script(t, program.path, "one")
	if err := os.Mkdir(tool.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	reach := func(uid int, mode os.FileMode) string {
		t.Helper()
		if err := os.Chmod(program.path, mode); err != nil {
			t.Fatal(err)
		}
		path, err := tool.reachable(t.Context(), program, mechanisms{}, uid)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	const build = 61299
	if open, own := reach(build, 0o755), reach(0, 0o700); open != program.path || own != program.path {
		t.Errorf("got %s and %s, want uv itself", open, own)
	}
	copied := reach(build, 0o700)
	if executable := reach(build, 0o744); copied == program.path || executable != copied || reach(build, 0o700) != copied {
		t.Errorf("got %s, and for a file that can only be read %s, want one copy", copied, executable)
	}
	raw, err := os.ReadFile(copied)
	if err != nil || string(raw) != "one" || !(mechanisms{}).readable(copied, build) {
		t.Errorf("the copy has %q, %v", raw, err)
	}
	script(t, program.path, "two")
	if err := os.Chtimes(program.path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if renewed := reach(build, 0o700); renewed == copied {
		t.Error("the copy is that of an older uv")
	}
}

// TestPipOfAPythonFetchesUv has Pythons that have pip, venv, or neither.
func TestPipOfAPythonFetchesUv(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pip, venv, want string
	}{
		{"the second one has pip", "/py/2", "", "/py/2"},
		{"one has venv", "", "/py/2", "venv/bin/python"},
		{"both have venv", "", "/py/1 /py/2", "venv/bin/python"},
		{"none has either", "", "", ""},
	} {
		temp := t.TempDir()
		tool := &uvTool{index: index{pip: []string{"PIP_INDEX_URL=https://me:pw@index.example"}}, pythons: func(context.Context) []string { return []string{"/py/1", "/py/2"} }}
		installed := ""
		err := tool.pip(t.Context(), temp, func(_ context.Context, env, _ []string, program string, args ...string) error {
			line := strings.Join(args, " ")
			has := func(list string) error {
				if strings.Contains(list, program) {
					return nil
				}
				return errors.New("no module")
			}
			switch {
			case strings.Contains(line, "--require-hashes"):
				if !strings.Contains(strings.Join(env, " "), tool.index.pip[0]) {
					t.Errorf("%s: pip gets the variables %q", c.name, env)
				}
				installed = strings.TrimPrefix(program, temp+"/")
				return nil
			case len(env) > 0:
				t.Errorf("%s: %s gets the variables %q", c.name, line, env)
			case strings.Contains(line, "import pip"):
				return has(c.pip)
			}
			venv := args[len(args)-1]
			if isFolder(venv) {
				t.Errorf("%s: the folder of a failed venv is still there", c.name)
			}
			put(t, venv, "pyvenv.cfg")
			return has(c.venv)
		})
		if installed != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: installed by %q, %v, want %q", c.name, installed, err, c.want)
		}
	}
}

func TestIndexSettingsOfTheHostReachUv(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	conf := filepath.Join(home, ".config", "pip", "pip.conf")
	script(t, conf, "[global]\nindex-url = https://me:pw@conf.example/simple\nextra-index-url =\n  https://one.example/simple\n  https://two.example/simple\n[other]\ntrusted-host = other.example\n")
	for _, c := range []struct {
		name, config string
		env          map[string]string
		home         string
		want         []string
		absent       []string
	}{
		{"the configuration wins", "https://config.example/simple", map[string]string{"UV_INDEX_URL": "https://uv.example", "PIP_INDEX_URL": "https://pip.example"}, home,
			[]string{"UV_DEFAULT_INDEX=https://config.example/simple"}, []string{"UV_INDEX_URL", "UV_INDEX="}},
		{"uv's variables come before pip's", "", map[string]string{"UV_DEFAULT_INDEX": "https://uv.example", "PIP_INDEX_URL": "https://pip.example"}, "",
			[]string{"UV_DEFAULT_INDEX=https://uv.example"}, nil},
		{"pip's variables come before its file", "", map[string]string{"PIP_INDEX_URL": "https://pip.example", "PIP_TRUSTED_HOST": "pip.example"}, home,
			[]string{"UV_DEFAULT_INDEX=https://pip.example", "UV_INSECURE_HOST=pip.example"}, nil},
		{"pip's file is read", "", nil, home,
			[]string{"UV_DEFAULT_INDEX=https://me:pw@conf.example/simple", "UV_INDEX=https://one.example/simple https://two.example/simple"}, []string{"UV_INSECURE_HOST=other"}},
		{"authorities and proxies are passed", "", map[string]string{"PIP_CERT": "/ca.pem", "HTTPS_PROXY": "http://proxy:1"}, "",
			[]string{"SSL_CERT_FILE=/ca.pem", "HTTPS_PROXY=http://proxy:1"}, nil},
		{"folders that are not there are left out", "", map[string]string{"PIP_FIND_LINKS": "/not/there https://links.example"}, "",
			[]string{"UV_FIND_LINKS=https://links.example"}, nil},
		{"nothing else is passed", "", map[string]string{"SECRET": "x", "PYTHONPATH": "/x", "UV_CACHE_DIR": "/x"}, "", nil, []string{"SECRET", "PYTHONPATH", "UV_CACHE_DIR"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := hostIndex(c.config, c.home, func(name string) string { return c.env[name] })
			all := "\n" + strings.Join(x.uv, "\n") + "\n"
			for _, w := range c.want {
				if !strings.Contains(all, "\n"+w+"\n") {
					t.Errorf("no %s in%s", w, all)
				}
			}
			for _, a := range c.absent {
				if strings.Contains(all, "\n"+a) {
					t.Errorf("%s in%s", a, all)
				}
			}
			if strings.Contains(x.shown, "pw") {
				t.Errorf("credentials are shown: %s", x.shown)
			}
		})
	}
}

func TestWhatPipSaysWhileItTriesAgainIsLeftOut(t *testing.T) {
	t.Parallel()
	retrying := "WARNING: Retrying (Retry(total=4)) after connection broken\n"
	for said, want := range map[string]string{
		retrying + retrying + "ERROR: No matching distribution found for uv\n": "ERROR: No matching distribution found for uv",
		retrying: strings.TrimSpace(retrying),
		"":       "",
	} {
		if got := complaint(said); got != want {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
	}
}
