package pack

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// folder writes files below a new folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheTarIsTheSameFromEveryOffset(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 120) + ".py" // a name that needs a second header
	dir := folder(t, map[string]string{"main.py": "print(1)\n", "empty": "", "block": strings.Repeat("x", 512), "sub/" + long: strings.Repeat("y", 5000)})
	if err := os.Symlink("main.py", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	a, err := Folder(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(a.Open())
	if err != nil || int64(len(all)) != a.Size() {
		t.Fatalf("%d bytes, size %d, error %v", len(all), a.Size(), err)
	}
	if err := iotest.TestReader(a.Open(), all); err != nil {
		t.Error(err)
	}
	r := a.Open()
	defer r.Close()
	for at := int64(0); at <= a.Size(); at += 331 {
		if _, err := r.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, all[at:]) {
			t.Fatalf("from %d: %d bytes, %v", at, len(rest), err)
		}
	}
	files := 0
	for tr := tar.NewReader(bytes.NewReader(all)); ; files++ {
		if _, err := tr.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if files != 6 {
		t.Errorf("%d entries", files)
	}
}

func TestAFileThatChangesIsAnErrorOrKeepsItsSize(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"main.py": "print(1)\n"})
	a, err := Folder(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "main.py")
	if err := os.WriteFile(file, []byte("print(1)\n# longer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(a.Open()); err != nil || int64(len(all)) != a.Size() {
		t.Errorf("longer: %d bytes of %d, %v", len(all), a.Size(), err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(a.Open()); err == nil || !strings.Contains(err.Error(), "main.py became shorter while it was read") {
		t.Errorf("shorter: %v", err)
	}
	outside := folder(t, map[string]string{"secret": "print(1)\n"})
	if err := errors.Join(os.Remove(file), os.Symlink(filepath.Join(outside, "secret"), file)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(a.Open()); err == nil {
		t.Error("a file outside of the folder was read")
	}
}

func TestAReaderEndsWhenItIsClosed(t *testing.T) {
	t.Parallel()
	a, err := Text("main.py", []byte("print(1)"))
	if err != nil {
		t.Fatal(err)
	}
	r := a.Open()
	if _, err := r.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(make([]byte, 10)); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if _, err := r.Seek(-1, io.SeekStart); err == nil {
		t.Error("a negative offset was taken")
	}
}

func TestFilesThatCannotBeSent(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a.py": "", "b/a.py": ""})
	for want, files := range map[string][]string{
		"must not be empty":                  {""},
		"must be a file (" + dir:             {dir},
		"no such file":                       {filepath.Join(dir, "none")},
		"would both be a.py":                 {filepath.Join(dir, "a.py"), filepath.Join(dir, "b", "a.py")},
		"must be a regular file (got /dev/n": {os.DevNull},
	} {
		if _, err := Files(t.Context(), files...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", files, err)
		}
	}
}
