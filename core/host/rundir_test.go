package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// shortDir is a temporary folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestARunFolderOfSomebodyElseIsRefused(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	target := filepath.Join(dir, "target")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for _, path := range []string{link, file} {
		if _, err := openRunDir(path, log); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("%s: %v", path, err)
		}
	}
	if d, err := openRunDir(target, log); err != nil {
		t.Errorf("a folder that is too open is closed: %v", err)
	} else if err := d.close(); err != nil {
		t.Error(err)
	}
	for _, mode := range []os.FileMode{0o755, 0o750, 0o710, 0o705, 0o700} {
		if err := os.Chmod(target, mode); err != nil {
			t.Fatal(err)
		}
		if err := makePrivate(target); err != nil {
			t.Errorf("mode %v: %v", mode, err)
		}
		if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode %v became %v, %v", mode, info.Mode(), err)
		}
	}
}

func TestARunFolderOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	needtest.NeedRoot(t) // for a folder of another user
	dir := shortDir(t)
	if err := os.Chown(dir, 60601, 60601); err != nil {
		t.Fatal(err)
	}
	if err := makePrivate(dir); err == nil || !strings.Contains(err.Error(), "not a folder of ours") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyWhatIsStaleIsRemoved(t *testing.T) {
	t.Parallel()
	parent, log := shortDir(t), slog.New(slog.DiscardHandler)
	living, err := openRunDir(parent, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"h1/p1", "h2", "other", "hfile-not-a-folder/x"} {
		if err := os.MkdirAll(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// h1 was a host's; h2 is being made, or was when its host died.
	if err := os.WriteFile(filepath.Join(parent, "h1", lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := openRunDir(parent, log)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"h1": false, "h2": true, "other": true, filepath.Base(living.path): true} {
		if _, err := os.Stat(filepath.Join(parent, name)); (err == nil) != want {
			t.Errorf("%s is there: %t", name, err == nil)
		}
	}
	for _, d := range []*runDir{living, next} {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheLongestRunFolderLeavesRoomForASocket(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("x", maxRunDir)
	if n := len(longest + "/h4294967295/p4294967295/plugin-dir4294967295/plugin4294967295"); n+1 != 108 {
		t.Errorf("%d bytes with the final zero, want 108", n+1)
	}
}

func TestAFolderThatIsBeingMadeIsNotTakenForStale(t *testing.T) {
	t.Parallel()
	parent, log := shortDir(t), slog.New(slog.DiscardHandler)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 300 {
				d, err := openRunDir(parent, log)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(d.path); err != nil {
					t.Errorf("the folder was taken away: %v", err)
				}
				if err := d.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
