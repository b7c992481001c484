package input_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/cli/internal/input"
)

// read returns the whole of a workspace.
func read(t *testing.T, in *input.Input) []byte {
	t.Helper()
	r, err := in.Workspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAWorkspaceSaysHowLongItIsAndThatItCanBeReadAgain(t *testing.T) {
	dir := tree(t, map[string]string{"main.py": "1", "a.TAR": string(archiveOf(t, "main.py", "1"))})
	t.Chdir(dir)
	for _, name := range []string{".", "main.py", "a.TAR"} {
		in, err := open(t, input.Request{Args: []string{name}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s := in.Workspace; s.SizeBytes != int64(len(read(t, in))) || !s.Replayable || !bytes.Equal(read(t, in), read(t, in)) {
			t.Errorf("%s: size %d of %d bytes, replayable %t", name, s.SizeBytes, len(read(t, in)), s.Replayable)
		}
		// A tar of the user's has a name that holds wherever we are.
		if want := map[string]string{"a.TAR": filepath.Join(dir, "a.TAR")}[name]; in.Workspace.Path != want {
			t.Errorf("%s: path %q, want %q", name, in.Workspace.Path, want)
		}
	}
}

func TestWhatIsSentOfAFolder(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"b.py": "", "c.py": "", "out/old.txt": "", "tool": ""})
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := errors.Join(os.Chmod(filepath.Join(dir, "tool"), 0o755), os.Chtimes(filepath.Join(dir, "tool"), at, at)); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	in, err := open(t, input.Request{Args: []string{dir}, Leave: filepath.Join(dir, "out"), Warn: func(w string) { warnings = append(warnings, w) }})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, in); !slices.Equal(got, []string{"b.py", "c.py", "tool"}) {
		t.Errorf("sent %q", got)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "b.py runs: the first of several .py files") {
		t.Errorf("warned %q", warnings)
	}
	a := tar.NewReader(bytes.NewReader(read(t, in)))
	for {
		h, err := a.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "tool" {
			if h.Mode != 0o755 || !h.ModTime.Equal(at) {
				t.Errorf("mode %o, time %s", h.Mode, h.ModTime)
			}
			break
		}
	}
}

func TestWhatIsNoFileIsLeftOutAndSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := exec.Command("mkfifo", filepath.Join(dir, "fifo")).Run(); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	_, err := open(t, input.Request{Args: []string{dir}, Warn: func(w string) { warnings = append(warnings, w) }})
	if err == nil || !strings.HasSuffix(err.Error(), "no files in it") {
		t.Errorf("got %v", err)
	}
	if len(warnings) != 1 || !strings.HasSuffix(warnings[0], `fifo": no file: left out`) {
		t.Errorf("warned %q", warnings)
	}
}

// A server takes no tar with such a name. One of them does not keep the others from running.
func TestWhatHasNoNameInUTF8IsLeftOutAndSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "main.py"), nil, 0o600), os.WriteFile(filepath.Join(dir, "caf\xe9.txt"), nil, 0o600),
		os.Mkdir(filepath.Join(dir, "caf\xe9"), 0o700), os.WriteFile(filepath.Join(dir, "caf\xe9", "a"), nil, 0o600),
		os.Symlink("caf\xe9.txt", filepath.Join(dir, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var warnings []string
	in, err := open(t, input.Request{Args: []string{dir}, Warn: func(w string) { warnings = append(warnings, w) }})
	if err != nil || in.Found.Entrypoint != "main.py" {
		t.Fatal(in, err)
	}
	all := strings.Join(warnings, "\n")
	for _, want := range []string{`caf\xe9.txt": the name is not UTF-8: left out`, `caf\xe9": the name is not UTF-8: left out`, `link": the target of the link is not UTF-8: left out`} {
		if !strings.Contains(all, want) {
			t.Errorf("not warned of %s: %q", want, warnings)
		}
	}
}

func TestRulesAboveAFolderThatIsInNoRepositoryAreSomebodyElses(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{".gitignore": "*.log\n", "p/main.py": "", "p/a.log": ""})
	in, err := open(t, input.Request{Args: []string{filepath.Join(dir, "p")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, in); !slices.Equal(got, []string{"a.log", "main.py"}) {
		t.Errorf("sent %q", got)
	}
}

func TestWhatMayRun(t *testing.T) {
	dir := tree(t, map[string]string{
		"linked/main.py": "1", "linked/run.py": "-> main.py", "app.pyz": "PK\x03\x04", "notes/n.ipynb": "{}", "notes/a.py": "", "readme/text": "",
		"pep/main.py": "# /// script\n# dependencies = [1]\n# ///\n",
	})
	var hard bytes.Buffer
	w := tar.NewWriter(&hard)
	err := errors.Join(w.WriteHeader(&tar.Header{Name: "./a.py", Mode: 0o644, Typeflag: tar.TypeReg}),
		w.WriteHeader(&tar.Header{Name: "./b.py", Linkname: "./a.py", Typeflag: tar.TypeLink}), w.Close(), os.WriteFile(filepath.Join(dir, "hard.tar"), hard.Bytes(), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct {
		name string
		r    input.Request
		want string // of the error
	}{
		{"a symbolic link", input.Request{Args: []string{"linked"}, Entrypoint: "run.py"}, ""},
		{"a hard link", input.Request{Args: []string{"hard.tar"}, Entrypoint: "b.py"}, ""},
		{"a zip application", input.Request{Args: []string{"app.pyz"}}, ""},
		{"a notebook", input.Request{Args: []string{"notes"}, Entrypoint: "n.ipynb"}, "n.ipynb: must be a program, not a notebook"},
		{"a command among files that are no programs", input.Request{Args: []string{"readme"}, Command: true}, ""},
	} {
		if _, err := open(t, c.r); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
