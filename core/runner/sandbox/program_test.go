//go:build linux

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// failureOf is the code and the phase of the Failure in err.
func failureOf(err error) string {
	var f *Failure
	if !errors.As(err, &f) {
		return "no failure"
	}
	return string(f.Phase) + "/" + string(f.Code)
}

func TestWhatCannotBeAVariableIsRefused(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"no name": {"": "x"}, "a name with =": {"A=B": "x"}, "a name with a zero byte": {"A\x00B": "x"}, "a value with a zero byte": {"A": "x\x00y"},
	} {
		if list, err := Environment(protocol.Start{Env: env}, &Folder{}); failureOf(err) != "prepare/invalid" {
			t.Errorf("%s: %q, %v", name, list, err)
		}
	}
	if list, err := Environment(protocol.Start{Env: map[string]string{"A": "b=c", "PYTHONUNBUFFERED": ""}}, &Folder{}); err != nil || !slices.Contains(list, "A=b=c") || len(list) != 5 {
		t.Errorf("%q, %v", list, err)
	}
}

func TestAProgramIsFoundOnItsOwnPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "folders", "tool"), 0o755))
	for file, mode := range map[string]os.FileMode{"closed/tool": 0o644, "bin/tool": 0o755, "closed/other": 0o644} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, file), nil, mode))
	}
	path := "PATH=" + filepath.Join(dir, "folders") + ":closed:bin"
	for name, want := range map[string]string{"tool": filepath.Join(dir, "bin", "tool"), "./tool": "./tool", "other": "start/invalid", "none": "start/not_found", "": "start/invalid"} {
		got, err := (&Folder{}).LookUp(name, dir, []string{"X=/usr/bin", path})
		if err != nil {
			got = failureOf(err)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}

func TestAnEntrypointIsAFileAndNoOption(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "-x.py"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "a.py"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "main.py"), 0o700))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	for name, want := range map[string]string{
		"-x.py": "./-x.py", "./a.py": "a.py", "main.py": "prepare/invalid", "../a.py": "prepare/invalid", "/a.py": "prepare/invalid", "none.py": "prepare/invalid",
	} {
		got, err := namedEntrypoint(root, name)
		if err != nil {
			got = failureOf(err)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
	for firstPy, want := range map[string]string{"-x.py": "./-x.py", "a.py": "a.py", "": "prepare/invalid"} { // main.py is a folder
		got, _, err := entrypoint(protocol.Start{}, &Folder{}, dir, protocol.Config{}, archive.PythonFiles{First: firstPy})
		if err != nil {
			got = failureOf(err)
		}
		if got != want {
			t.Errorf("the first .py is %q: %s, want %s", firstPy, got, want)
		}
	}
}

func TestAZeroByteInAnArgumentIsRefused(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"a\x00b", "a"} {
		_, err := Resolve(protocol.Start{Command: []string{"/bin/echo"}, Args: []string{arg}}, &Folder{}, protocol.Config{}, archive.PythonFiles{})
		if got, want := failureOf(err) == "prepare/invalid", arg != "a"; got != want {
			t.Errorf("%q: %v", arg, err)
		}
	}
}

func TestAnEntrypointThatWasChosenAmongSeveralIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a.py"), nil, 0o600))
	for _, test := range []struct {
		main   bool
		python archive.PythonFiles
		notice bool
	}{
		{false, archive.PythonFiles{First: "a.py"}, false},
		{false, archive.PythonFiles{First: "a.py", Other: "b.py"}, true},
		{true, archive.PythonFiles{First: "a.py", Other: "b.py"}, false},
	} {
		if test.main {
			must(t, os.WriteFile(filepath.Join(dir, "main.py"), nil, 0o600))
		}
		p, err := Resolve(protocol.Start{Interpreter: []string{"/bin/python"}}, &Folder{Path: dir}, protocol.Config{}, test.python)
		if err != nil || (p.Notice != "") != test.notice {
			t.Errorf("%+v: %+v, %v", test, p, err)
		}
	}
}

func TestAStartThatFailsSaysWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "script"), nil, 0o600))
	for _, c := range []struct {
		path string
		err  error
		want string
	}{
		{"./none", unix.ENOENT, "start/not_found"},
		{"./script", unix.ENOENT, "start/invalid"},
		{filepath.Join(dir, "script"), unix.ENOENT, "start/invalid"},
		{"./script", unix.EACCES, "start/invalid"},
		{"./script", unix.EPERM, "start/invalid"},
		{"./script", unix.ENOEXEC, "start/invalid"},
		{"./script", unix.E2BIG, "start/invalid"},
		{"./script", unix.EAGAIN, "start/exhausted"},
		{"./script", unix.ENOMEM, "start/exhausted"},
		{"./script", unix.EIO, "start/internal"},
	} {
		err := (&Folder{}).StartFailure(&Program{Argv: []string{c.path}, Path: c.path, Dir: dir}, 1000, c.err)
		if got := failureOf(err); got != c.want {
			t.Errorf("%s, %v: %s, want %s", c.path, c.err, got, c.want)
		}
	}
}

func TestCodeIsTheProgramsFile(t *testing.T) {
	needtest.NeedRoot(t)
	t.Parallel()
	dir, err := os.Open(t.TempDir())
	must(t, err)
	defer dir.Close() //nolint:errcheck // read only
	must(t, writeCode(&Folder{Root: dir}, protocol.Config{UID: testUID, GID: testUID + 1}, "print(1)"))
	var st unix.Stat_t
	must(t, unix.Fstatat(int(dir.Fd()), "main.py", &st, 0))
	if int(st.Uid) != testUID || int(st.Gid) != testUID+1 || st.Mode&0o777 != 0o644 || st.Size != 8 {
		t.Errorf("%d:%d, mode %o, %d bytes", st.Uid, st.Gid, st.Mode, st.Size)
	}
	if err := writeCode(&Folder{Root: dir}, protocol.Config{}, "print(2)"); failureOf(err) != "prepare/invalid" {
		t.Errorf("beside a main.py: %v", err)
	}
}
