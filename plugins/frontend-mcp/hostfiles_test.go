package mcpfrontend

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/hostpath"
)

// hostTree makes open/a/d with scripts, which callers may use, and secret with files of the same names, which they may not.
func hostTree(t *testing.T) (open, secret string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	open, secret = filepath.Join(base, "open"), filepath.Join(base, "secret")
	for dir, text := range map[string]string{filepath.Join(open, "a", "d"): "ours", filepath.Join(secret, "d"): "SECRET"} {
		for name, content := range map[string]string{"main.py": text, "venv/tool.py": text, "requirements.txt": strings.ToLower(text)} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return open, secret
}

// exchange puts a link to the secret folder in the place of open/a.
func exchange(t *testing.T, open, secret string) {
	t.Helper()
	at := filepath.Join(open, "a")
	if err := errors.Join(os.Rename(at, at+"-before"), os.Symlink(secret, at)); err != nil {
		t.Fatal(err)
	}
}

func openTo(dirs ...string) *python {
	return &python{tools: &tools{config: testConfig(func(c *Config) { c.Directories = dirs })}, open: hostpath.Real(dirs)}
}

// sent returns what a script sends to its sandbox, by name.
func sent(t *testing.T, s *script) map[string]string {
	t.Helper()
	r, err := s.input.Workspace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	files, archive := map[string]string{}, tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

// TestWhatWasCheckedIsWhatIsRead: a user of the host who may rename in an open folder exchanges it between the check and the reading.
func TestWhatWasCheckedIsWhatIsRead(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"a script that is sent with its folder": "main.py", "a script that is sent besides its folder": "venv/tool.py"} {
		open, secret := hostTree(t)
		s, err := openTo(open).dirScript(dirArgs{Directory: filepath.Join(open, "a", "d"), ScriptPath: &path})
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, open, secret)
		files := sent(t, s)
		s.close()
		if files[path] != "ours" || files["requirements.txt"] != "ours" {
			t.Errorf("%s: it sends %q", name, files)
		}
	}
	open, secret := hostTree(t)
	p := openTo(open)
	dir, err := p.folder("directory", filepath.Join(open, "a", "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.root.Close()
	file, err := p.file(open, "a/d/main.py")
	if err != nil {
		t.Fatal(err)
	}
	defer file.opened.Close()
	exchange(t, open, secret)
	head, headErr := file.head()
	all, allErr := file.all()
	if err := errors.Join(headErr, allErr); err != nil || string(head) != "ours" || string(all) != "ours" {
		t.Errorf("the script is %q and %q, %v", head, all, err)
	}
	s := &script{}
	if err := p.interpreter(s, dir, nil, true); err != nil || s.spec.Requirements != "ours" {
		t.Errorf("the folder requires %q, %v", s.spec.Requirements, err)
	}
}

// TestALinkInThePlaceOfAFolderIsNotOpened: the name was resolved, and is a link when it is opened.
func TestALinkInThePlaceOfAFolderIsNotOpened(t *testing.T) {
	t.Parallel()
	open, secret := hostTree(t)
	p := openTo(open)
	dir, file := filepath.Join(open, "a", "d"), filepath.Join(open, "a", "d", "main.py")
	exchange(t, open, secret)
	if root, err := p.openRoot(dir); err == nil {
		root.Close()
		t.Error("a folder of somebody else was opened")
	}
	if f, err := p.openFile(file); err == nil {
		f.Close()
		t.Error("a file of somebody else was opened")
	}
}

// TestAFolderOfTheConfigurationIsNoLinkLater: the folder that the configuration opens is exchanged itself.
func TestAFolderOfTheConfigurationIsNoLinkLater(t *testing.T) {
	t.Parallel()
	open, secret := hostTree(t)
	p := openTo(filepath.Join(open, "a"))
	exchange(t, open, secret)
	if dir, err := p.folder("directory", filepath.Join(open, "a", "d")); err == nil {
		dir.root.Close()
		t.Error("a folder of somebody else was opened")
	}
	if err := errors.Join(os.Remove(filepath.Join(open, "a")), os.MkdirAll(filepath.Join(open, "a", "d"), 0o700)); err != nil {
		t.Fatal(err)
	}
	dir, err := p.folder("directory", filepath.Join(open, "a", "d"))
	if err != nil {
		t.Fatalf("a folder that was made anew: %v", err)
	}
	dir.root.Close()
}

func TestAFIFOIsNoScript(t *testing.T) {
	t.Parallel()
	open, _ := hostTree(t)
	if err := syscall.Mkfifo(filepath.Join(open, "fifo.py"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openTo(open).file(open, "fifo.py"); err == nil || !strings.HasPrefix(err.Error(), "FileNotFoundError: script_path") {
		t.Errorf("got %v", err)
	}
}

func TestAFolderIsSentUpToItsBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("12345"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := openTo(dir).folder("directory", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.root.Close()
	for _, test := range []struct {
		files  int
		bytes  int64
		refuse bool
	}{{2, 10, false}, {1, 10, true}, {2, 9, true}} {
		if err := folder.measure(test.files, test.bytes); (err != nil) != test.refuse {
			t.Errorf("at most %d files and %d bytes: %v", test.files, test.bytes, err)
		}
	}
}
