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

// A data folder that existed before may be open to other users, who could read executions there.
func TestADataFolderIsClosedToOtherUsers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		holds   []string
		mode    os.FileMode
		refused bool
	}{
		"a new one":                         {mode: 0o755},
		"a volume":                          {[]string{"lost+found"}, 0o755, false},
		"one of an earlier version":         {[]string{"instance", "store"}, 0o755, false},
		"one that its group may read":       {[]string{"instance"}, 0o750, false},
		"a closed one with other files":     {[]string{"other"}, 0o700, false},
		"an open one that has other things": {[]string{"other"}, 0o755, true},
	} {
		dir := t.TempDir()
		for _, file := range test.holds {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(newInstance()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, test.mode); err != nil { //nolint:gosec // the test's point
			t.Fatal(err)
		}
		d, err := openDataDir(dir)
		if refused := err != nil; refused != test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), dir+" is open to other users (mode 0755)") || !strings.Contains(err.Error(), "chmod 700") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		info, err := os.Stat(dir)
		if err = errors.Join(err, d.Close()); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
}
