package uvbackend

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// needBounds skips t on a machine that cannot limit the memory of a build as a whole.
func needBounds(t *testing.T, b *Backend) {
	t.Helper()
	needtest.Need(t, b.can.Memory && b.how.Setuid, needtest.Root, "builds have no uid and control group of their own")
}

func TestABuildIsBounded(t *testing.T) {
	b, w := indexed(t, map[string]any{
		"prepare_memory_bytes": 300 << 20, "environment_bytes": 64 << 20, "environment_files": 3000, "compile_bytes": 12 << 20, "prepare_pids": 100,
	})
	needBounds(t, b)
	zeros := strings.Repeat("\x00", 200<<20)
	w.add("pyexec-bomb", "1.0", map[string]string{"pyexec_bomb.bin": zeros})
	w.add("pyexec-two", "1.0", map[string]string{"pyexec_two.bin": zeros[:40<<20]}, "pyexec-three")
	w.add("pyexec-three", "1.0", map[string]string{"pyexec_three.bin": zeros[:40<<20]})
	many := map[string]string{}
	for i := range 3500 {
		many[fmt.Sprintf("pyexec_many/f%d.txt", i)] = ""
	}
	w.add("pyexec-many", "1.0", many)
	w.add("pyexec-long", "1.0", map[string]string{"pyexec_long.py": strings.Repeat("# a line\n", 13<<20/9)})
	w.add("pyexec-greedy", "1.0", map[string]string{"pyexec_greedy.py": "x = [" + strings.Repeat("a,", 4<<20) + "]\n"})
	for _, c := range []struct{ name, requirement, says string }{
		{"a wheel that unpacks to more", "pyexec-bomb", "backends.uv.environment_bytes (67108864)"},
		{"wheels that unpack to more together", "pyexec-two", "backends.uv.environment_bytes (67108864)"},
		{"a wheel with many files", "pyexec-many", "backends.uv.environment_files (3000)"},
		{"a wheel with much source", "pyexec-long", "backends.uv.compile_bytes (12582912)"},
		{"a file that takes much memory to compile", "pyexec-greedy", "compiling pyexec_greedy.py needs more memory than backends.uv.prepare_memory_bytes (314572800)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, _ := run(t, b, executor.Spec{Code: "print(1)", Requirements: c.requirement})
			f := result.Failure
			if result.Status != executor.StatusFailed || f == nil || f.Code != executor.Invalid || f.Phase != executor.PhasePrepare || f.Field != "requirements_txt" || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v with %+v, want %s", result, f, c.says)
			}
			if list, _ := b.cache.entries(); len(list) != 0 {
				t.Errorf("%d environments are kept", len(list))
			}
		})
	}
	if left, _ := filepath.Glob(filepath.Join(b.cache.dir, ".tmp-*")); len(left) != 0 {
		t.Errorf("leftovers of builds: %q", left)
	}
	succeeds(t, b, executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"})
}

func TestSourceThatNoCompilerTakesIsPassedOver(t *testing.T) {
	b, w := indexed(t, nil)
	w.add("pyexec-odd", "1.0", map[string]string{
		"pyexec_odd/__init__.py": "x = 1\n", "pyexec_odd/deep.py": "x = " + strings.Repeat("(", 100_000) + strings.Repeat(")", 100_000) + "\n",
		"pyexec_odd/minus.py": "x = " + strings.Repeat("-", 100_000) + "1\n", "pyexec_odd/attribute.py": "x = a" + strings.Repeat(".a", 100_000) + "\n",
		"pyexec_odd/none.py": "this is no Python\n", "pyexec_odd/zero.py": "x = 1\x00\n", "pyexec_odd/zz.py": "x = 2\n",
	})
	result, j := run(t, b, executor.Spec{Requirements: "pyexec-odd", Code: "import os, pyexec_odd\nprint(sorted(os.listdir(os.path.dirname(pyexec_odd.__file__) + '/__pycache__'))[-1][:2])"})
	if f := result.Failure; f != nil {
		// An old interpreter may end by a signal. The Failure must then name the file.
		if f.Phase != executor.PhasePrepare || !strings.Contains(f.Message, "pyexec_odd/") {
			t.Errorf("%+v", f)
		}
		return
	}
	if j.text(executor.Stdout) != "zz\n" {
		t.Errorf("%+v: %s%s", result, j.text(executor.Stdout), j.text(executor.Stderr))
	}
}

// TestABuildHasAUIDThatNoProgramHas also shows that the environment belongs to the plugin's user in the end, and that programs
// cannot open the package cache.
func TestABuildHasAUIDThatNoProgramHas(t *testing.T) {
	b, w := indexed(t, map[string]any{"run_as": "61340-61371"}) // of the default range another server may have the last uid
	needBounds(t, b)
	if info, err := os.Stat(b.cache.wheel); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the package cache at the start: %v, %v", info, err)
	}
	w.mu.Lock()
	w.hold = make(chan struct{})
	w.mu.Unlock()
	owners := make(chan int, 1)
	go func() {
		defer close(w.hold)
		<-w.asked
		left, _ := filepath.Glob(filepath.Join(b.cache.dir, ".tmp-*"))
		for _, dir := range left {
			if info, err := os.Stat(dir); err == nil {
				owners <- ownerOf(info)
			}
		}
		close(owners)
	}()
	out, _ := succeeds(t, b, executor.Spec{Requirements: "pyexec-probe", Code: `
import os
print(os.getuid())
for path in ("` + b.cache.wheel + `", "` + b.cache.wheel + `/.lock"):
    try:
        os.open(path, os.O_RDONLY)
        print("open", path)
    except (PermissionError, FileNotFoundError):  # private folders may hide it
        pass
`})
	owner := <-owners
	if want := fmt.Sprint(b.how.uids.last); fmt.Sprint(owner) != want || strings.TrimSpace(out) == want || strings.Contains(out, "open") {
		t.Errorf("the build ran as %d, the program wrote %q", owner, out)
	}
	if b.how.uids.programs().has(owner) {
		t.Errorf("programs run as %d too", owner)
	}
	list, _ := b.cache.entries()
	err := filepath.WalkDir(b.cache.path(list[0].key), func(path string, e fs.DirEntry, err error) error {
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
	cached, _ := os.ReadDir(b.cache.wheel)
	info, err := os.Stat(b.cache.wheel)
	if err != nil || ownerOf(info) != owner || info.Mode().Perm() != 0o700 || len(cached) == 0 {
		t.Errorf("the package cache has %d entries, %v, %v", len(cached), info, err)
	}
}

func TestWhatCodeOfAPackageLeavesInAnEnvironmentIsRefused(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(dir string) error{
		"a named pipe":              func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "METADATA"), 0o600) },
		"a link in its own place":   func(dir string) error { return replaceByLink(dir) },
		"a file of somebody else's": func(dir string) error { return foreign(dir) },
	} {
		if name == "a file of somebody else's" && os.Geteuid() != 0 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "env")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := leave(dir); err != nil {
			t.Fatal(err)
		}
		if err := own(dir); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func replaceByLink(dir string) error {
	if err := os.Remove(dir); err != nil {
		return err
	}
	return os.Symlink("/etc", dir)
}

func foreign(dir string) error {
	path := filepath.Join(dir, "foreign")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Lchown(path, 61299, 61299)
}

// TestAnEnvironmentIsMeasuredWhenNobodyWritesToItAnyMore matters because a build may leave processes that write after the last look.
func TestAnEnvironmentIsMeasuredWhenNobodyWritesToItAnyMore(t *testing.T) {
	t.Parallel()
	for limit, fits := range map[int64]bool{5: true, 4: false} {
		c := testCache(t, 1<<20)
		dir := filepath.Join(t.TempDir(), "env")
		script(t, filepath.Join(dir, "lib", "python3.11", "site-packages", "a.py"), "x = 1")
		put(t, dir, "bin", "python")
		put(t, dir, ".lock")
		fresh, err := lookAtNew(dir)
		if err != nil {
			t.Fatal(err)
		}
		b := &builder{name: "mine", config: Config{EnvironmentBytes: limit, EnvironmentFiles: 2}, cache: c}
		failure, err := b.finish("key", dir, want{interpreter: interpreter{Version: "3.11.2"}}, fresh)
		if err != nil || (failure == nil) != fits || failure != nil && !strings.Contains(failure.Message, "backends.mine.environment_bytes (4)") {
			t.Errorf("at most %d bytes: %+v, %v", limit, failure, err)
		}
		if (c.keys() == "key") != fits || fits && isFile(filepath.Join(c.path("key"), ".lock")) {
			t.Errorf("at most %d bytes: the environments are %q", limit, c.keys())
		}
	}
}

func TestThePackagesOfAnEnvironmentAreThoseOfTheirMetadata(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "env")
	packages := filepath.Join(dir, "lib", "python3.11", "site-packages")
	for folder, text := range map[string]string{
		"Py_Exec.Probe-1.dist-info": "Metadata-Version: 2.1\r\nName: Py_Exec.Probe\r\nVersion: 1.2.3\r\n\r\nVersion: 9\r\n",
		"late-2.0.dist-info":        "Name: late\n\nVersion: 9\n",
		"nameless-3.0.dist-info":    "Version: 9\n\nName: other\n",
	} {
		script(t, filepath.Join(packages, folder, "METADATA"), text)
	}
	put(t, packages, "bare-1.0.dist-info", "RECORD")
	put(t, packages, "no_package", "METADATA")
	got, err := resolved(dir)
	if want := []string{"bare==1.0", "late==2.0", "nameless==3.0", "py-exec-probe==1.2.3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestSourceIsWhatTheCompilerCompiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.py": "x = 1\n", "in/b.py": "yy = 1\n", "c.pyc": "bytecode", "in/d.txt": "text"} {
		script(t, filepath.Join(dir, name), text)
	}
	if got := sourceSize(dir); got != 13 {
		t.Errorf("%d bytes, want 13", got)
	}
}

func TestAddressesInAnEnvironmentHaveNoSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "env")
	packages := filepath.Join(dir, "lib", "python3.11", "site-packages")
	for name, text := range map[string]string{
		"a-1.dist-info": `{"url":"https://user:secret@host/a.whl?token=secret#sha256=1","archive_info":{}}`,
		"b-1.dist-info": `{"url":"git+https://secret@host/b","vcs_info":{"vcs":"git"}}`,
		"c-1.dist-info": `{"url":"https://host/c.whl","archive_info":{}}`,
		"d-1.dist-info": `{"url":"https://secret`,
	} {
		if err := os.MkdirAll(filepath.Join(packages, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(packages, name, originName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(`{"url":"https://user:secret@host/"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(packages, "e-1.dist-info"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(packages, "e-1.dist-info", originName)); err != nil {
		t.Fatal(err)
	}
	if err := withoutSecrets(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a-1.dist-info": `{"archive_info":{},"url":"https://host/a.whl#sha256=1"}`,
		"b-1.dist-info": `{"url":"git+https://host/b","vcs_info":{"vcs":"git"}}`,
		"c-1.dist-info": `{"url":"https://host/c.whl","archive_info":{}}`,
		"d-1.dist-info": "",
	} {
		got, _ := os.ReadFile(filepath.Join(packages, name, originName))
		if string(got) != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if raw, err := os.ReadFile(outside); err != nil || !bytes.Contains(raw, []byte("secret")) {
		t.Errorf("a file outside was changed: %s, %v", raw, err)
	}
}
