package uvbackend

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestWhatAProgramLeavesInPublicFoldersIsGoneWithItsResult(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: without uids of their own the files of programs are not told from ours")
	}
	b := backend(t, nil)
	name := filepath.Base(t.TempDir()) + time.Now().Format("-150405.000000")
	code := "import os\nfor d in ('/tmp', '/var/tmp', '/dev/shm'):\n  p = d + '/" + name + "'\n  assert not os.path.exists(p)\n  os.mkdir(p); open(p + '/secret', 'w').write('s')\nprint('left')"
	for range 3 { // the same slot or another, at once after each other
		if out, _ := succeeds(t, b, executor.Spec{Code: code}); out != "left\n" {
			t.Fatalf("got %q", out)
		}
		for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", filepath.Join(dir, name), err)
			}
		}
	}
}

func TestAFolderThatDidNotChangeIsNotSearched(t *testing.T) {
	var l litter
	l.look()
	l.looked = l.looked.Add(time.Hour) // as if all had been quiet for long
	dir := t.TempDir()
	l.seen = map[string]time.Time{dir: l.seen["/tmp"]}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.seen[dir] = info.ModTime()
	if l.possible() {
		t.Error("nothing happened, and a search is due")
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(dir, time.Time{}, info.ModTime().Add(time.Second)); err != nil { // whatever the clock's tick
		t.Fatal(err)
	}
	if !l.possible() {
		t.Error("a file was made, and no search is due")
	}
}
