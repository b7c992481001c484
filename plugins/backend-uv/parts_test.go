package uvbackend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestARefusalNamesEveryFieldAndInvalidComesFirst(t *testing.T) {
	t.Parallel()
	spec := executor.Spec{Script: "/x", PreCommands: []string{"true"}, PythonVersion: "3", Limits: executor.Limits{PIDs: 1}}
	e, ok := errors.AsType[*executor.Error](refuse(spec, executor.Capabilities{}, ""))
	if !ok || e.Code != executor.Invalid {
		t.Fatalf("got %+v", e)
	}
	var fields []string
	for _, f := range e.Fields {
		fields = append(fields, f.Field)
	}
	if got := strings.Join(fields, " "); got != "config.pids pre_commands python_version script" {
		t.Errorf("the refusal names %s", got)
	}
}

func TestWhatASessionHasIsNotRefused(t *testing.T) {
	t.Parallel()
	// OpenSession has checked the language of the session.
	if err := refuse(executor.Spec{Session: "ctx", Language: executor.LanguageJavaScript}, executor.Capabilities{Sessions: true, Languages: []executor.Language{executor.LanguageJavaScript}}, ""); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, "."} {
		if err := refuse(executor.Spec{HostDirectory: dir}, executor.Capabilities{HostDirectories: true}, ""); executor.CodeOf(err) != executor.Invalid {
			t.Errorf("host_directory %s: %v", dir, err)
		}
	}
}

func TestIndexSettingsOfTheHostReachPip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, config string
		env          map[string]string
		want         string
	}{
		{"the configuration wins", "https://c.example", map[string]string{"PIP_INDEX_URL": "https://p.example", "PIP_NO_INDEX": "1"}, "PIP_INDEX_URL=https://c.example"},
		{"pip's own variables come before uv's", "", map[string]string{"PIP_INDEX_URL": "https://p.example", "UV_INDEX_URL": "https://u.example"}, "PIP_INDEX_URL=https://p.example"},
		{"without an index of its own pip uses uv's", "", map[string]string{"UV_DEFAULT_INDEX": "https://u.example"}, "PIP_INDEX_URL=https://u.example"},
		{"nothing of uv's own reaches it", "", map[string]string{"UV_INSECURE_HOST": "x", "PIP_PROXY": "p", "HTTPS_PROXY": "h"}, "HTTPS_PROXY=h PIP_PROXY=p"},
		{"and uv's older variable", "", map[string]string{"UV_INDEX_URL": "https://u.example"}, "PIP_INDEX_URL=https://u.example"},
		{"no index stays none", "", map[string]string{"PIP_NO_INDEX": "1"}, "PIP_NO_INDEX=1"},
	} {
		x := hostIndex(c.config, "", func(name string) string { return c.env[name] })
		if got := strings.Join(x.pip, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if x := hostIndex("", "", func(name string) string { return map[string]string{"UV_INDEX_URL": "https://me:pw@u.example"}[name] }); x.shown != "https://u.example" {
		t.Errorf("users see the index %s", x.shown)
	}
}

// TestFilesOfTheHomeReachPip matters because pip runs with another home.
func TestFilesOfTheHomeReachPip(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	netrc, first, second := put(t, home, ".netrc"), put(t, home, ".config", "pip", "pip.conf"), put(t, home, ".pip", "pip.conf")
	pip := func(env map[string]string) string {
		return strings.Join(hostIndex("", home, func(name string) string { return env[name] }).pip, " ")
	}
	if got, want := pip(nil), "NETRC="+netrc+" PIP_CONFIG_FILE="+first; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := pip(map[string]string{"PIP_CONFIG_FILE": "/own.conf", "NETRC": "/own.netrc"}), "NETRC=/own.netrc PIP_CONFIG_FILE=/own.conf"; got != want {
		t.Errorf("with variables of its own: got %s, want %s", got, want)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if got, want := pip(nil), "NETRC="+netrc+" PIP_CONFIG_FILE="+second; got != want {
		t.Errorf("with the older file: got %s, want %s", got, want)
	}
}

func TestInterpretersAreLookedForInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	for _, file := range []string{
		"path/python3", "path/python3.9", "path/python3.11", "path/python3-config",
		"home/.pyenv/versions/3.8.1/bin/python3", "home/.pyenv/versions/3.9.1/bin/python3", "home/.local/share/uv/python/cpython-3.12/bin/python3.12",
	} {
		script(t, filepath.Join(dir, file), "\x7fELF "+file)
	}
	script(t, filepath.Join(dir, "shims", "python3"), "#!/bin/sh\n")
	script(t, filepath.Join(dir, "shims", "python3.9"), "#!/bin/sh\n")
	link(t, filepath.Join(dir, "path", "python3.9"), filepath.Join(dir, "late", "python3"))
	path := strings.Join([]string{"relative", filepath.Join(dir, "shims"), filepath.Join(dir, "path"), filepath.Join(dir, "late")}, ":")
	p := places{path: path, home: home, env: func(string) string { return "" }}
	folders, onPath := p.folders()
	if onPath != 3 || slices.Contains(folders, "relative") {
		t.Errorf("the first %d of %q are those of PATH", onPath, folders)
	}
	var got []string
	for _, c := range p.candidates() {
		if name, ok := strings.CutPrefix(c.path, dir+"/"); ok {
			got = append(got, strings.TrimPrefix(name, "home/")+map[bool]string{true: "*"}[c.onPath >= 0])
		}
	}
	want := "shims/python3* path/python3* path/python3.11 path/python3.9* .pyenv/versions/3.9.1/bin/python3 .pyenv/versions/3.8.1/bin/python3 " +
		".local/share/uv/python/cpython-3.12/bin/python3.12"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	inv := inventory{unreachable: []unreachable{{Path: "/x", Version: "3.13.0"}}}
	if inv.hint("3.13") == "" || inv.hint("3.1") != "" {
		t.Errorf("the hints about 3.13.0 are %q for 3.13 and %q for 3.1", inv.hint("3.13"), inv.hint("3.1"))
	}
}

// TestAStampChangesWithWhatTheAnswerDependsOn matters because an interpreter is asked again only if its stamp changes.
func TestAStampChangesWithWhatTheAnswerDependsOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "bin", "python3")
	script(t, file, "\x7fELF one")
	when := time.Now().Add(-time.Hour)
	seen := map[string]string{}
	look := func(what string, c candidate, uid string) {
		t.Helper()
		stamp := c.stamp(uid)
		if before, ok := seen[stamp]; ok || stamp == "" {
			t.Errorf("%s: the stamp is empty or the same as for %q", what, before)
		}
		seen[stamp] = what
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := candidate{path: file, real: file}
	look("the file", c, "1")
	if again := c.stamp("1"); seen[again] != "the file" {
		t.Error("an unchanged file has another stamp")
	}
	look("another uid", c, "2")
	must(os.Chtimes(file, when, when))
	look("another time", c, "1")
	must(os.WriteFile(file, []byte("\x7fELF longer"), 0o700))
	must(os.Chtimes(file, when, when))
	look("another size", c, "1")
	must(os.Chmod(filepath.Join(dir, "bin"), 0o700))
	look("another mode of a folder above it", c, "1")
	c.shim = true
	look("a shim", c, "1")
	must(os.WriteFile(filepath.Join(dir, "version"), []byte("3.9"), 0o600))
	look("a shim with a version file", c, "1")
	must(os.Remove(file))
	if c.stamp("1") != "" {
		t.Error("a removed file has a stamp")
	}
}

func TestRangesOfUIDs(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"1-65536": true, "1": true, "2147483646": true, "70000 - 70001": true,
		"0-10": false, "1-65537": false, "2147483647": false, "5-4": false, "-1-5": false, "a-b": false, "1-": false, "": false,
	} {
		if r, err := parseUIDs(text); (err == nil) != ok {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
}

func TestAnEnvironmentIsOnlyWhatItsMarkerSays(t *testing.T) {
	t.Parallel()
	c := testCache(t, 1<<30)
	opens := func(key string, want bool) {
		t.Helper()
		e, ok := c.open(key)
		if ok {
			e.release()
		}
		if ok != want {
			t.Errorf("%s: opened %v, want %v", key, ok, want)
		}
	}
	read := func(key string) (m marker) {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(c.path(key), markerName))
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	fill(t, c, "mine", 10, time.Hour)
	opens("mine", true)
	unseal(c.path("mine"))
	if err := os.Rename(c.path("mine"), c.path("other")); err != nil {
		t.Fatal(err)
	}
	opens("other", false)

	// The marker of a rebuilt environment is read again, even if its time is the same.
	when := time.Now().Add(-time.Hour)
	for _, bytes := range []int{10, 20} {
		fill(t, c, "again", bytes, time.Hour)
		if err := os.Chtimes(filepath.Join(c.path("again"), markerName), when, when); err != nil {
			t.Fatal(err)
		}
		e, ok := c.open("again")
		if !ok || e.Bytes != int64(bytes) {
			t.Fatalf("opened %v with %+v, want %d bytes", ok, e, bytes)
		}
		e.release()
	}
	if n := c.rebuilt.Load(); n != 1 {
		t.Errorf("%d environments count as rebuilt, want 1", n)
	}

	// After a reboot an environment is measured once, because a power cut may have emptied files.
	fill(t, c, "old", 10, time.Hour)
	c.boot = "another"
	c.known = map[string]knownMarker{}
	opens("old", true)
	if got := read("old").Boot; got != c.boot {
		t.Errorf("the marker has the boot %q, so the environment would be measured again", got)
	}
	python := filepath.Join(c.path("old"), "bin", "python")
	if err := errors.Join(os.Chmod(python, 0o700), os.WriteFile(python, []byte("short"), 0o700)); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	c.boot = "a third"
	c.known = map[string]knownMarker{}
	opens("old", false)
	fill(t, c, "more", 10, time.Hour)
	packages := filepath.Join(c.path("more"), "lib", "python3.11", "site-packages")
	if err := os.Chmod(packages, 0o700); err != nil { //nolint:gosec // a folder
		t.Fatal(err)
	}
	put(t, packages, "empty.py")
	c.boot = "a fourth"
	c.known = map[string]knownMarker{}
	opens("more", false)
}

func TestWhatIsCommittedCanBeReadByAllAndWrittenByNone(t *testing.T) {
	t.Parallel()
	c := testCache(t, 1<<30)
	temp := filepath.Join(t.TempDir(), "env")
	packages := filepath.Join(temp, "lib", "python3.11", "site-packages")
	if err := os.MkdirAll(packages, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"open": 0o666, "closed": 0o600, "tool": 0o700} {
		file := filepath.Join(packages, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.commit("key", temp, marker{}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(c.path("key"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o444)
		if e.IsDir() || e.Name() == "tool" {
			want = 0o555
		}
		if got := info.Mode().Perm() &^ 0o200; got != want || info.Mode()&0o200 != 0 && os.Geteuid() != 0 {
			t.Errorf("%s has the mode %o", path, info.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestASlotThatCannotBeMadeIsGivenBack shows that a slot whose runner does not start gives its folder and its uid back.
func TestASlotThatCannotBeMadeIsGivenBack(t *testing.T) {
	first := 2_000_000 + os.Getpid()%10_000*40 // no other test process uses these uids
	b := openBackend(t, map[string]any{"run_as": fmt.Sprintf("%d-%d", first, first+39), "warm_sessions": -1})
	p := b.slots
	folders := func() int {
		t.Helper()
		entries, err := os.ReadDir(p.claim.dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	free := func() int {
		t.Helper()
		if p.ids == nil {
			return 0
		}
		c, err := claimUID(p.ids.dir, p.ids.uids)
		if err != nil {
			t.Fatal(err)
		}
		defer c.release()
		return c.uid
	}
	make := func() (*slot, error) {
		p.mu.Lock()
		p.number++
		n := p.number
		p.wg.Add(1)
		p.mu.Unlock()
		return p.make(t.Context(), n, slotKind{}, p.programUID)
	}
	awaittest.Until(t, "the runners that are started in advance", func() bool {
		all, busy := p.counts()
		return all >= 2 && busy == 0
	})
	before, uid := folders(), free()
	program := p.program
	for _, path := range []string{"/not/there", "/bin/false"} {
		p.program.path = path
		if s, err := make(); executor.CodeOf(err) != executor.Unavailable || strings.Contains(err.Error(), "hello within") {
			t.Errorf("%s: %v, %v, want unavailable without a wait for it", path, s, err)
		}
	}
	p.program = program
	if folders() != before || free() != uid {
		t.Errorf("after a slot that did not start: %d folders and free uid %d, want %d and %d", folders(), free(), before, uid)
	}

	// A slot that is ready only after close gives both back too.
	set := func(closed bool) {
		p.mu.Lock()
		p.isClosed = closed
		p.mu.Unlock()
	}
	set(true)
	if s, err := make(); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("got %v, %v", s, err)
	}
	set(false)
	if folders() != before || free() != uid {
		t.Errorf("after a slot that was ready too late: %d folders and free uid %d, want %d and %d", folders(), free(), before, uid)
	}
}
