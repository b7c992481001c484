package uvbackend

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
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

// script makes a file that can be executed at once. A process that another test is starting must not inherit the file while it is open
// for writing.
func script(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
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

// told fills the cache of p with the answers of the files in dir. The Pythons of this machine have no answer, so that none is started.
func told(t *testing.T, p prober, dir string, answers map[string]answer) {
	t.Helper()
	known := map[string]answer{}
	for _, c := range p.places.candidates() {
		a := answer{Error: "not asked"}
		if name, ok := strings.CutPrefix(c.real, dir+"/"); ok {
			a, ok = answers[name]
			if !ok {
				t.Fatalf("no answer of %s", name)
			}
		}
		known[c.stamp(p.owner)] = a
	}
	if err := writeJSON(p.cache, known); err != nil {
		t.Fatal(err)
	}
}

func TestTheBestPythonOfEachVersionIsChosen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answers := map[string]answer{
		"pypy/python3":           {Version: "3.11.9", Implementation: "pypy"},
		"many/python3.9":         {Version: "3.9.18", Implementation: "cpython"},
		"many/python3.11":        {Version: "3.11.2", Implementation: "cpython"},
		"many/python3.12":        {Version: "3.12.4", Implementation: "cpython"},
		"many/python3.13":        {Version: "3.13.0", Implementation: "cpython", Free: true},
		"more/python3.12":        {Version: "3.12.9", Implementation: "cpython"},
		"oldest/python3.8":       {Version: "3.8.0", Implementation: "cpython"},
		"old/python3":            {Version: "3.7.9", Implementation: "cpython"},
		"next/python3":           {Version: "4.9.0", Implementation: "cpython"},
		"lib-3.7.1/bin/python3":  {Error: "broken"},
		"lib-3.12.7/bin/python3": {Error: "broken"},
	}
	for name := range answers {
		script(t, filepath.Join(dir, name), "\x7fELF "+name)
	}
	discover := func(folders ...string) inventory {
		t.Helper()
		for i, name := range folders {
			folders[i] = filepath.Join(dir, name)
		}
		p := testProber(t, strings.Join(folders, ":"))
		told(t, p, dir, answers)
		return p.discover(t.Context())
	}
	inv := discover("old", "next", "pypy", "many", "more", "oldest", "lib-3.7.1/bin", "lib-3.12.7/bin")
	if got := strings.Join(inv.minors(), " "); got != "3.12 3.11 3.9 3.8" {
		t.Errorf("the versions are %s", got)
	}
	for minor, want := range map[string]string{"": "pypy/python3", "3.8": "oldest/python3.8", "3.9": "many/python3.9", "3.11": "many/python3.11", "3.12": "many/python3.12"} {
		if got, ok := inv.find(minor); !ok || got.Path != filepath.Join(dir, want) {
			t.Errorf("version %q is %s, want %s", minor, got.Path, want)
		}
	}
	var mine []string
	for _, u := range inv.unreachable {
		if name, ok := strings.CutPrefix(u.Path, dir+"/"); ok {
			mine = append(mine, name+" "+u.Version)
		}
	}
	if got := strings.Join(mine, ", "); got != "lib-3.12.7/bin/python3 3.12.7" {
		t.Errorf("unreachable are %s", got)
	}
	if got := discover("many").fallback; got.Version != "3.12.4" {
		t.Errorf("without a python3 on PATH the default is %+v, want the newest", got)
	}
	b := &Backend{}
	b.inventory.Store(&inv)
	inv.unreachable = []unreachable{{Path: "/closed/python3"}}
	if got := b.ownPythons(t.Context()); len(got) != 6 || got[0] != filepath.Join(dir, "pypy/python3") || got[5] != "/closed/python3" {
		t.Errorf("the plugin's own tools use %q", got)
	}
}

// TestAVirtualEnvironmentBehindAShimStandsForItsBase has a virtual environment whose python3 is a copy.
func TestAVirtualEnvironmentBehindAShimStandsForItsBase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base, venv, shim := filepath.Join(dir, "base", "python3"), filepath.Join(dir, "venv", "python3"), filepath.Join(dir, "shims", "python3")
	script(t, base, "\x7fELF base")
	script(t, venv, "\x7fELF venv")
	script(t, shim, "#!/bin/sh\n")
	c := candidate{path: shim, real: shim, shim: true}
	for name, a := range map[string]struct {
		answer
		want string
	}{
		"a virtual environment": {answer{Version: "3.12.1", Executable: venv, Base: base}, base},
		"no base":               {answer{Version: "3.12.1", Executable: venv}, venv},
		"another shim":          {answer{Version: "3.12.1", Executable: shim}, ""},
		"a removed file":        {answer{Version: "3.12.1", Executable: filepath.Join(dir, "none")}, ""},
	} {
		if got, ok := resolve(c, a.answer); ok != (a.want != "") || got.Path != a.want {
			t.Errorf("%s: %+v, %v, want %s", name, got, ok, a.want)
		}
	}
	p := testProber(t, dir)
	p.claim = func() (*uidClaim, error) { return nil, errors.New("not called") }
	open := filepath.Join(folder(t), "python3")
	script(t, open, "#!/bin/sh\n")
	u := p.explain(candidate{path: open, real: open, shim: true}, answer{Error: "no such version"})
	if !strings.Contains(u.Remedy, "no shim first on PATH") || u.Why != "no such version" {
		t.Errorf("a shim that does not work: %+v", u)
	}
}

// TestAPythonIsAskedAgainIfItCouldNotBeAsked also shows that the uid is given back.
func TestAPythonIsAskedAgainIfItCouldNotBeAsked(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	elf := filepath.Join(dir, "elf")
	script(t, elf, "\x7fELF")
	p := testProber(t, filepath.Join(dir, "shims"))
	told(t, p, dir, nil)
	script(t, filepath.Join(dir, "shims", "python3"), `#!/bin/sh
echo '{"executable":"`+elf+`","version":"3.12.1"}'
`)
	locks, uid := t.TempDir(), 61510
	p.claim = func() (*uidClaim, error) { return nil, errors.New("no uid is free") }
	if inv := p.discover(t.Context()); inv.fallback.Path == elf || len(inv.unreachable) == 0 || inv.unreachable[0].Why != "no uid is free" {
		t.Errorf("without a uid: %+v", inv)
	}
	p.claim = nil
	if os.Geteuid() == 0 {
		p.claim = func() (*uidClaim, error) { return claimUID(locks, uids{uid, uid}) }
	}
	if inv := p.discover(t.Context()); inv.fallback.Path != elf {
		t.Errorf("with a uid the default is %+v, unreachable are %+v", inv.fallback, inv.unreachable)
	}
	c, err := claimUID(locks, uids{uid, uid})
	if err != nil || c.dirty {
		t.Errorf("the uid was not given back: %+v, %v", c, err)
	}
	if err == nil {
		c.release()
	}
}

func TestAMissingPythonIsSearchedForAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "bin", "python3.39")
	script(t, file, "\x7fELF")
	b := &Backend{prober: testProber(t, filepath.Dir(file))}
	told(t, b.prober, dir, map[string]answer{"bin/python3.39": {Version: "3.39.1", Implementation: "cpython"}})
	b.inventory.Store(&inventory{})
	choose := func(minor string) string {
		t.Helper()
		i, _, _ := b.choose(t.Context(), executor.Spec{PythonVersion: minor})
		return i.Path
	}
	if got := choose("3.39"); got != file {
		t.Errorf("the interpreter that was installed meanwhile is not found, but %q", got)
	}
	// A client that asks for a missing version all the time must not cause a search each time.
	b.searched = time.Now().Add(time.Hour)
	b.inventory.Store(&inventory{})
	if got := choose("3.39"); got != "" || len(b.inventory.Load().byMinor) > 0 {
		t.Errorf("a second search followed at once: %q", got)
	}
}

func TestWhoAsksIsPartOfAnAnswer(t *testing.T) {
	t.Parallel()
	r := uids{70000, 70007}
	owners := map[string]bool{}
	for _, how := range []mechanisms{{}, {Box: true}, {Setuid: true, uids: r}, {Setuid: true, Box: true, uids: r}} {
		b := &Backend{how: how, config: Config{CacheDir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
		var ids *uidPool
		if how.Setuid {
			ids = poolWithoutProcesses(t, r)
		}
		b.equip(ids)
		if owners[b.prober.owner] || (b.prober.inside != nil) != how.Box || (b.prober.claim != nil) != how.Setuid {
			t.Errorf("%+v: the owner is %q, asked in a box: %v, under a uid: %v", how, b.prober.owner, b.prober.inside != nil, b.prober.claim != nil)
		}
		owners[b.prober.owner] = true
	}
}

func TestWhatAToolPrintsIsBounded(t *testing.T) {
	t.Parallel()
	var b boundedBuffer
	for range 3 {
		if n, err := b.Write(make([]byte, maxKept/2+1)); n != maxKept/2+1 || err != nil {
			t.Error(n, err)
		}
	}
	if b.Len() != maxKept {
		t.Errorf("%d bytes are kept", b.Len())
	}
	for out, ok := range map[string]bool{` {"version":"3.12.1"} `: true, "{}": false, "Python 3.12.1": false, "": false} {
		if a := parseAnswer([]byte(out)); (a.Error == "") != ok {
			t.Errorf("%q: %+v", out, a)
		}
	}
}

func TestAFileIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, taken := filepath.Join(dir, "file.json"), filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(taken, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, value := range []int{1, 2} {
		if err := writeJSON(file, value); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(file)
		if info, _ := os.Stat(file); err != nil || string(raw) != strconv.Itoa(value) || info.Mode().Perm() != 0o644 {
			t.Errorf("%s, %v, %v", raw, info.Mode(), err)
		}
	}
	if err := writeJSON(taken, 1); err == nil {
		t.Error("a folder was replaced")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}

func TestOtherLanguagesAreTheFirstThatProgramsCanExecute(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for name, mode := range map[string]os.FileMode{"a/node": 0o644, "a/bash": 0o750, "a/sh": 0o755, "b/node": 0o755, "b/bash": 0o755} {
		file := filepath.Join(dir, name)
		script(t, file, "\x7fELF")
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	p := places{path: filepath.Join(dir, "a") + ":" + filepath.Join(dir, "b"), env: func(string) string { return "" }}
	for name, c := range map[string]struct {
		how         mechanisms
		node, shell string
	}{
		"as this user":      {mechanisms{}, "b/node", "a/bash"},
		"under another uid": {mechanisms{Setuid: true, uids: uids{61500, 61509}}, "b/node", "b/bash"},
		"in a box":          {mechanisms{Setuid: true, Box: true, uids: uids{61500, 61509}}, "b/node", "b/bash"},
	} {
		got := findLanguages(p, c.how)
		if got[executor.LanguageJavaScript] != filepath.Join(dir, c.node) || got[executor.LanguageShell] != filepath.Join(dir, c.shell) {
			t.Errorf("%s: %q, want %s and %s", name, got, c.node, c.shell)
		}
	}
}

func TestPythonsAreLookedForWhereTheVariablesSay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := map[string]string{"PYENV_ROOT": filepath.Join(dir, "pyenv"), "UV_PYTHON_INSTALL_DIR": filepath.Join(dir, "uv"), "XDG_DATA_HOME": filepath.Join(dir, "data")}
	var want []string
	for _, name := range []string{"pyenv/versions/3.12.1/bin", "uv/cpython-3.12/bin", "data/uv/python/cpython-3.11/bin"} {
		want = append(want, filepath.Join(dir, name))
		put(t, dir, name, "python3")
	}
	got, n := places{home: filepath.Join(dir, "home"), env: func(name string) string { return set[name] }}.folders()
	if n != 0 || len(got) < 3 || !slices.Equal(got[:3], want) {
		t.Errorf("got %q, %d of them of PATH, want %q first", got, n, want)
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
