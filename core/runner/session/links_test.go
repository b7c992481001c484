package session

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinksAreFollowedInsideOfARootOnly by us as by os.Root, which has to be done on gVisor.
func TestLinksAreFollowedInsideOfARootOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.WriteFile(filepath.Join(dir, "a/b/file"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"in": "a/b", "a/up": "..", "a/b/far": "../../in/file", "out": "..", "root": "/", "deep": "a/b/../../../x", "loop": "loop", "gone": "nowhere", "same": "./a//b",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"a/b/file": "a/b/file", "in/file": "a/b/file", "in": "a/b", "a/up/in/far": "a/b/file", "same/file": "a/b/file", ".": ".", "a/up": ".",
		"gone": "nowhere", "new/file": "new/file", "in/new": "a/b/new",
	} {
		if got, err := withoutLinks(root, name, true); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]string{"in": "in", "a/up/in": "in", "in/file": "a/b/file", "root": "root"} {
		if got, err := withoutLinks(root, name, false); err != nil || got != want {
			t.Errorf("%s itself: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"out/x", "out", "root/etc", "root", "deep", "a/up/out/x"} {
		if got, err := withoutLinks(root, name, true); !errors.Is(err, errEscapes) {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
		if _, err := root.Stat(name); err == nil {
			t.Errorf("%s does not lead out for os.Root", name)
		}
	}
	if got, err := withoutLinks(root, "loop", true); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a loop leads to %q, %v", got, err)
	}
}
