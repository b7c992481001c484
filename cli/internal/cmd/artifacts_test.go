package cmd

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// archived is a Service that has artifacts only.
type archived struct {
	executor.Service
	tar []byte
}

func (a archived) Artifacts(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(a.tar)), nil
}

func hostile(t *testing.T, headers ...tar.Header) *target {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 4
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte("data"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &target{Service: archived{tar: b.Bytes()}, ctx: t.Context()}
}

func TestArtifactsAreSavedInsideTheirFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, outside := filepath.Join(dir, "out"), filepath.Join(dir, "outside")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(out, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(out, "up")); err != nil {
		t.Fatal(err)
	}
	d := hostile(t, tar.Header{Name: "a/b.txt"}, tar.Header{Name: "link"}, tar.Header{Name: "run", Mode: 0o755},
		tar.Header{Name: "sym", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, tar.Header{Name: "fifo", Typeflag: tar.TypeFifo})
	if saved, err := saveArtifacts(d, "exe_1", out, true); err != nil || !slices.Equal(saved, []string{"a/b.txt", "link", "run"}) {
		t.Fatal(saved, err)
	}
	for name, want := range map[string]string{"out/a/b.txt": "data", "out/link": "data", "outside": "untouched"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	if info, err := os.Stat(filepath.Join(out, "run")); err != nil || info.Mode()&0o100 == 0 {
		t.Error(info, err)
	}
	if info, err := os.Stat(filepath.Join(out, "a", "b.txt")); err != nil || info.Mode()&0o111 != 0 {
		t.Error(info, err)
	}
	for _, name := range []string{"sym", "fifo"} {
		if _, err := os.Lstat(filepath.Join(out, name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	for _, name := range []string{"../x", "/x", "a/../../x", "up/x"} {
		if _, err := saveArtifacts(hostile(t, tar.Header{Name: name}), "exe_1", out, false); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnArtifactThatCannotBeSavedDoesNotKeepTheRestFromIt(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	if err := os.MkdirAll(filepath.Join(out, "a", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	saved, err := saveArtifacts(hostile(t, tar.Header{Name: "a"}, tar.Header{Name: "b"}), "exe_1", out, true)
	if !slices.Equal(saved, []string{"b"}) || err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Error(saved, err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "b")); err != nil || string(b) != "data" {
		t.Errorf("%q %v", b, err)
	}
}

func TestHiddenFilesAreSavedOnlyWhereTheyWereNamed(t *testing.T) {
	t.Parallel()
	files := func() *target {
		return hostile(t, tar.Header{Name: "new.txt"}, tar.Header{Name: ".cache/x"}, tar.Header{Name: "a/.config/y"}, tar.Header{Name: ".env"},
			tar.Header{Name: "pkg/__pycache__/m.pyc"}, tar.Header{Name: "./b.txt"}, tar.Header{Name: "a.b/c.txt"})
	}
	visible := []string{"new.txt", "b.txt", "a.b/c.txt"}
	out := t.TempDir()
	if saved, err := saveArtifacts(files(), "exe_1", out, false); err != nil || !slices.Equal(saved, visible) {
		t.Errorf("saved %q, %v", saved, err)
	}
	for _, name := range []string{".cache", "a", ".env", "pkg"} {
		if _, err := os.Lstat(filepath.Join(out, name)); err == nil {
			t.Errorf("%s was saved", name)
		}
	}
	if saved, err := saveArtifacts(files(), "exe_1", t.TempDir(), true); err != nil || len(saved) != 7 {
		t.Errorf("of those that were named: saved %q, %v", saved, err)
	}
}

func TestWhatWasSavedIsSaid(t *testing.T) {
	t.Parallel()
	many := strings.Fields(strings.Repeat("f ", maxSaid+1))
	for _, c := range []struct {
		saved []string
		named bool
		want  string
	}{
		{nil, true, "no file matches --artifact: nothing is saved in out"},
		{nil, false, "no new or changed file: nothing is saved in out"},
		{[]string{"a", "b/c"}, false, "saved in out: a, b/c"},
		{many[:maxSaid], true, "saved in out: f, f, f, f, f, f, f, f, f, f"},
		{many, true, "saved in out: f, f, f, f, f, f, f, f, f, f and 1 more"},
	} {
		if got := saidOf(c.saved, "out", c.named); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
