package input_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/input"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tree writes files below a new folder; a name that ends in / is an empty folder, a content "-> X" a symbolic link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, content := filepath.Join(dir, name), files[name]
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(content, "-> "); link {
			err = os.Symlink(target, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// names opens the workspace and lists its entries in order, links as "name -> target".
func names(t *testing.T, in *input.Input) []string {
	t.Helper()
	r, err := in.Workspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var list []string
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.Name
		if h.Linkname != "" {
			name += " -> " + h.Linkname
		}
		list = append(list, name)
	}
}

func open(t *testing.T, r input.Request) (*input.Input, error) {
	t.Helper()
	return input.Open(t.Context(), r)
}

func archiveOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(files[i+1]))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTheFiveMethods(t *testing.T) {
	dir := tree(t, map[string]string{
		"p/main.py": "1", "p/b.py": "2", "p/lib/x.py": "3", "p/empty/": "", "script.py": "4", "tool": "5", "utils/h.py": "6",
		"project.tar": string(archiveOf(t, "a.py", "7", "requirements.txt", "six==1.0\n")),
	})
	t.Chdir(dir)
	for _, test := range []struct {
		name           string
		r              input.Request
		method         input.Method
		entries        []string
		entry, sent    string
		requirementsOf string
	}{
		{"files keep their relative paths and their order", input.Request{Files: []string{"utils/../script.py", "./utils/h.py"}}, input.MethodFiles,
			[]string{"script.py", "utils/h.py"}, "script.py", "", ""},
		{"an absolute file has its base name", input.Request{Files: []string{filepath.Join(dir, "utils/h.py")}}, input.MethodFiles, []string{"h.py"}, "h.py", "", ""},
		{"a tar is sent as it is", input.Request{Args: []string{"project.tar"}}, input.MethodTar, []string{"a.py", "requirements.txt"}, "a.py", "", "six==1.0\n"},
		{"a folder has its own files before its subfolders", input.Request{Args: []string{"./p/"}}, input.MethodFolder,
			[]string{"b.py", "main.py", "empty/", "lib/", "lib/x.py"}, "main.py", "", ""},
		{"a single file is the entrypoint", input.Request{Args: []string{"utils/h.py"}}, input.MethodFile, []string{"h.py"}, "h.py", "", ""},
		{"a single file that nobody would find is named", input.Request{Args: []string{"tool"}}, input.MethodFile, []string{"tool"}, "tool", "tool", ""},
		{"a pipe is main.py", input.Request{Stdin: strings.NewReader("print(1)")}, input.MethodPipe, []string{"main.py"}, "main.py", "", ""},
		{"a dash is a pipe", input.Request{Args: []string{"-"}, Stdin: strings.NewReader("print(1)")}, input.MethodPipe, []string{"main.py"}, "main.py", "", ""},
		{"an entrypoint that the user names is sent", input.Request{Args: []string{"p"}, Entrypoint: "./lib/x.py"}, input.MethodFolder,
			[]string{"b.py", "main.py", "empty/", "lib/", "lib/x.py"}, "lib/x.py", "lib/x.py", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			in, err := open(t, test.r)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(t, in); in.Method != test.method || !slices.Equal(got, test.entries) {
				t.Errorf("%s %q", in.Method, got)
			}
			if in.Found.Entrypoint != test.entry || in.Entrypoint != test.sent || in.Found.Requirements != test.requirementsOf {
				t.Errorf("%+v, sent %q", in.Found, in.Entrypoint)
			}
		})
	}
}

// unread fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("standard input was read")
	return 0, io.EOF
}

func TestAPipeIsNotReadWhenAnInputIsNamed(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a.py": ""})
	for _, r := range []input.Request{{Args: []string{dir}}, {Files: []string{filepath.Join(dir, "a.py")}}, {Command: true}} {
		r.Stdin = unread{t}
		if _, err := open(t, r); err != nil {
			t.Error(err)
		}
	}
}

func TestATarMayBeginLikeACompressedFile(t *testing.T) {
	t.Chdir(tree(t, map[string]string{"a.tar": string(archiveOf(t, "BZh.py", "print(1)"))}))
	if _, err := open(t, input.Request{Args: []string{"a.tar"}}); err != nil {
		t.Error(err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.py": "", "sub/a.py": "", "x.tar.gz": "\x1f\x8b", "gzipped.tar": "\x1f\x8b\x08\x00", "broken.tar": strings.Repeat("garbage ", 200),
		"short.tar": string(archiveOf(t, "a.py", strings.Repeat("x", 2000))[:1000]), "none/readme": "", "void/": "", "text": "print(1)", "zipped": "PK\x03\x04",
		"pep/main.py": "# /// script\n# dependencies = [1]\n# ///\n", "nothing.tar": string(archiveOf(t, "readme", "")), "project": string(archiveOf(t, "a.py", "")),
		"lzma.tar": "\x5d\x00\x00\x00\x04" + strings.Repeat("\xff", 8),
		"pep.py":   "# /// script\n# dependencies = [1]\n# ///\n",
	})
	t.Chdir(dir)
	for _, test := range []struct {
		name string
		r    input.Request
		want string
	}{
		{"nothing at all", input.Request{}, "no input"},
		{"two arguments", input.Request{Args: []string{"a.py", "b"}}, "go after --"},
		{"an argument and --file", input.Request{Args: []string{"a.py"}, Files: []string{"b.py"}}, "two inputs: a.py and --file b.py"},
		{"a missing file", input.Request{Args: []string{"nope.py"}}, "nope.py: no such file"},
		{"a missing --file", input.Request{Files: []string{"nope.py"}}, "nope.py: no such file"},
		{"a folder as --file", input.Request{Files: []string{"sub"}}, "sub is a folder"},
		{"two files of one name", input.Request{Files: []string{"a.py", filepath.Join(dir, "sub/a.py")}}, "would both be a.py"},
		{"a compressed archive by its name", input.Request{Args: []string{"x.tar.gz"}}, "x.tar.gz is compressed: must be an uncompressed .tar"},
		{"a compressed archive by its content", input.Request{Args: []string{"gzipped.tar"}}, "gzipped.tar is compressed"},
		{"a tar by its content", input.Request{Args: []string{"project"}}, "project is a tar, not code: rename it so that its name ends in .tar"},
		{"a zip", input.Request{Args: []string{"zipped"}}, "zipped is compressed"},
		{"no tar", input.Request{Args: []string{"broken.tar"}}, "broken.tar: not a tar"},
		{"half a tar", input.Request{Args: []string{"short.tar"}}, "short.tar"},
		{"a tar without Python", input.Request{Args: []string{"nothing.tar"}}, "no .py file in nothing.tar: --entrypoint names the file that runs"},
		{"a folder without Python", input.Request{Args: []string{"none"}}, "no .py file in none"},
		{"an empty folder", input.Request{Args: []string{"void"}}, "void: no files in it"},
		{"an entrypoint that is not there", input.Request{Args: []string{"sub"}, Entrypoint: "x.py"}, "--entrypoint x.py: no such file in sub"},
		{"an entrypoint that is not the only file", input.Request{Args: []string{"text"}, Entrypoint: "x.py"}, "--entrypoint x.py: no such file in text"},
		{"an entrypoint that leads out", input.Request{Args: []string{"sub"}, Entrypoint: "../a.py"}, "no such file"},
		{"an empty pipe", input.Request{Stdin: strings.NewReader("\n")}, "standard input is empty"},
		{"a compressed pipe", input.Request{Stdin: strings.NewReader("\x1f\x8b\x08")}, "standard input is compressed"},
		{"a tar as a pipe", input.Request{Stdin: bytes.NewReader(archiveOf(t, "a.py", ""))}, "standard input is a tar"},
		{"an lzma that is called .tar", input.Request{Args: []string{"lzma.tar"}}, "lzma.tar is compressed"},
		{"a script block that is wrong", input.Request{Args: []string{"pep"}}, "pep: main.py: script metadata"},
		{"a script block that is wrong, in a file", input.Request{Args: []string{"pep.py"}}, "pep.py: script metadata"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := open(t, test.r); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "pep.py: pep.py") {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestWhatAFolderUploadLeavesOut(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		".gitignore": "*.log\n!keep.log\n/build/\nsecret.txt\n", "main.py": "", "a.log": "", "keep.log": "", "build/x": "", "sub/build/x": "",
		"sub/.gitignore": "!a.log\n", "sub/a.log": "", "sub/b.log": "", "secret.txt": "", ".git/config": "", "sub/.hg/x": "", ".svn/x": "",
		"venv/pyvenv.cfg": "", "venv/bin/python": "", ".env": "",
	}
	dir := tree(t, files)
	in, err := open(t, input.Request{Args: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".env", ".gitignore", "keep.log", "main.py", "sub/", "sub/.gitignore", "sub/a.log", "sub/build/", "sub/build/x"}
	if got := names(t, in); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	all, err := open(t, input.Request{Args: []string{dir}, IncludeAll: true})
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(names(t, all), func(n string) bool { return strings.HasSuffix(n, "/") })
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestARepositoryIgnoresForItsFolders(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		".git/info/exclude": "excluded\n", ".gitignore": "*.log\n/proj/gen\n", "proj/main.py": "", "proj/a.log": "", "proj/gen/x": "", "proj/excluded": "",
		"build/x.py": "",
	})
	in, err := open(t, input.Request{Args: []string{filepath.Join(dir, "proj")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, in); !slices.Equal(got, []string{"main.py"}) {
		t.Errorf("got %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("build/*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, input.Request{Args: []string{filepath.Join(dir, "build")}}); err == nil || !strings.Contains(err.Error(), "--include-all keeps it") {
		t.Error(err)
	}
}

func TestSymbolicLinks(t *testing.T) {
	t.Parallel()
	outside := tree(t, map[string]string{"secret": "s", "d/": ""})
	for _, test := range []struct {
		name  string
		links map[string]string
		want  string // an entry, or the refusal
	}{
		{"inside, to a file", map[string]string{"l": "-> main.py"}, "l -> main.py"},
		{"inside, upwards", map[string]string{"d/l": "-> ../main.py"}, "d/l -> ../main.py"},
		{"inside, to nothing", map[string]string{"l": "-> gone"}, "l -> gone"},
		{"out, absolute", map[string]string{"l": "-> " + filepath.Join(outside, "secret")}, "l: the symbolic link leaves the folder"},
		{"out, relative", map[string]string{"l": "-> ../x"}, "l: the symbolic link leaves the folder (-> ../x)"},
		{"out, to nothing", map[string]string{"d/l": "-> ../../gone"}, "d/l: the symbolic link leaves the folder"},
		{"out, through another link", map[string]string{"x/y/up": "-> ../..", "x/y/l": "-> up/../secret", "secret": ""}, "x/y/l: the symbolic link leaves the folder"},
		{"out and back in", map[string]string{"l": "-> ../" + "NAME/main.py"}, "l: the symbolic link leaves the folder"},
		{"in a circle", map[string]string{"a": "-> b", "b": "-> a"}, "a: the symbolic link leaves the folder"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"main.py": ""}
			maps.Copy(files, test.links)
			dir := tree(t, files)
			in, err := open(t, input.Request{Args: []string{dir}})
			if strings.Contains(test.want, "leaves") {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := names(t, in); !slices.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	t.Run("absolute but inside becomes relative", func(t *testing.T) {
		t.Parallel()
		dir := tree(t, map[string]string{"main.py": "", "d/": ""})
		if err := os.Symlink(filepath.Join(dir, "main.py"), filepath.Join(dir, "d", "l")); err != nil {
			t.Fatal(err)
		}
		in, err := open(t, input.Request{Args: []string{dir}})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, in); !slices.Contains(got, "d/l -> ../main.py") {
			t.Errorf("got %q", got)
		}
	})
}

func TestTheEndOfTheContextEndsTheReading(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	dir := tree(t, map[string]string{"main.py": ""})
	if _, err := input.Open(ctx, input.Request{Args: []string{dir}}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Error(err)
	}
}

func TestAPipeThatNeverEndsIsLeftWhenTheCallIs(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("interrupted")
	cancel(gone)
	if _, err := input.Open(ctx, input.Request{Stdin: r}); !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestAFileThatIsNoneIsRefusedAndNotWaitedFor(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []input.Request{{Files: []string{fifo}}, {Args: []string{fifo}}} {
		if _, err := open(t, r); err == nil || !strings.Contains(err.Error(), "must be a regular file") {
			t.Error(err)
		}
	}
	for _, r := range []input.Request{{Files: []string{""}}, {Args: []string{""}}} {
		if _, err := open(t, r); err == nil || !strings.Contains(err.Error(), "empty") {
			t.Error(err)
		}
	}
}
