package hostpath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree makes real/a/b, and link, which leads to real.
func tree(t *testing.T) (base string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.MkdirAll(filepath.Join(base, "real", "a", "b"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(base, "real", "a", "b", "file"), []byte("x"), 0o600)
	}
	if err == nil {
		err = os.Symlink("real", filepath.Join(base, "link"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func TestNoLinkIsFollowed(t *testing.T) {
	t.Parallel()
	base := tree(t)
	for path, want := range map[string]error{
		"real/a/b": nil, "real": nil, "": nil, "link": ErrLink, "link/a": ErrLink, "link/a/b": ErrLink, "none": fs.ErrNotExist, "real/none": fs.ErrNotExist,
	} {
		for _, open := range []func(string) (*os.Root, error){OpenRoot, walkTo} {
			root, err := open(filepath.Join(base, path))
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
			if err == nil {
				root.Close()
			}
		}
	}
	if _, err := OpenRoot("real"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a relative name: %v", err)
	}
	if root, err := OpenRoot(filepath.Join(base, "real", "a", "b", "file")); err == nil {
		root.Close()
		t.Error("a file was opened as a folder")
	}
	if root, err := OpenRoot("/"); err != nil {
		t.Error(err)
	} else {
		root.Close()
	}
}

// TestTheOpenFolderStaysWhatItWas exchanges a folder that is open.
func TestTheOpenFolderStaysWhatItWas(t *testing.T) {
	t.Parallel()
	base := tree(t)
	dir := filepath.Join(base, "real", "a", "b")
	root, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(os.Rename(dir, dir+"2"), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), []byte("other"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := root.ReadFile("file"); err != nil || string(got) != "x" {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestALinkThatTakesTheNameIsNoticed exchanges the folder between the look and the opening.
func TestALinkThatTakesTheNameIsNoticed(t *testing.T) {
	t.Parallel()
	base := tree(t)
	at, err := os.OpenRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	seen, err := at.Lstat("real")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(filepath.Join(base, "real"), filepath.Join(base, "gone")), os.MkdirAll(filepath.Join(base, "secret"), 0o700), os.Symlink("secret", filepath.Join(base, "real"))); err != nil {
		t.Fatal(err)
	}
	opened, err := at.Stat("real")
	if err != nil || os.SameFile(seen, opened) {
		t.Errorf("the folder that was seen and the link's are the same: %v", err)
	}
	if _, err := enter(at, "real"); !errors.Is(err, ErrLink) {
		t.Errorf("got %v", err)
	}
}

func TestFoldersAreResolvedOnce(t *testing.T) {
	t.Parallel()
	base := tree(t)
	got := Real([]string{filepath.Join(base, "link"), filepath.Join(base, "none") + "/"})
	if want := []string{filepath.Join(base, "real"), filepath.Join(base, "none")}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for path, want := range map[string]string{"/srv/a": ".", "/srv/a/b": "b", "/srv/ab": "", "/srv": "", "/srv/a/../b": "", "/": ""} {
		if _, rel, ok := Below(path, []string{"/none", "/srv/a"}); rel != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", path, rel, ok)
		}
	}
}
