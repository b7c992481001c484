package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFoldersOfTheDeadAreRemovedAndOthersStay(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	alive, err := newTemporary(parent)
	if err != nil {
		t.Fatal(err)
	}
	made := func(name string, mode os.FileMode, lock bool) string {
		path := filepath.Join(parent, name)
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		if lock {
			if err := os.WriteFile(filepath.Join(path, "lock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	dead := made(prefix+"dead", 0o700, true)
	stay := []string{alive.path, made(prefix+"unlocked", 0o700, false), made(prefix+"open", 0o755, true), made("other", 0o700, true)}
	next, err := newTemporary(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("what a dead process left is still there")
	}
	for _, path := range stay {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(next.Close(), alive.Close(), alive.Close(), (*temporary)(nil).Close()); err != nil {
		t.Error(err)
	}
}

func TestABrokenInstanceFileIsReplaced(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"", "../x", "abc", strings.Repeat("x", 32), strings.Repeat("a", 33)} {
		file := filepath.Join(t.TempDir(), "instance")
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		name, err := identify(file)
		if err != nil || len(name) != 32 || name == broken {
			t.Fatalf("%q became %q, %v", broken, name, err)
		}
		if again, err := identify(file); err != nil || again != name {
			t.Errorf("%q became %q and then %q, %v", broken, name, again, err)
		}
	}
}
