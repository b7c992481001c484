package session

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// hostFile makes a file of root's outside of every work folder, and returns its name and a check of its owner.
func hostFile(t *testing.T, dir string, makeIt func(name string) error) (name string, check func()) {
	t.Helper()
	name = filepath.Join(dir, "host-file")
	must(t, makeIt(name))
	var before unix.Stat_t
	must(t, unix.Stat(name, &before))
	return name, func() {
		t.Helper()
		var now unix.Stat_t
		must(t, unix.Stat(name, &now))
		if now.Uid != before.Uid || now.Gid != before.Gid || now.Mode != before.Mode {
			t.Fatalf("the host's file belongs to %d:%d with mode %o, before to %d:%d with %o", now.Uid, now.Gid, now.Mode, before.Uid, before.Gid, before.Mode)
		}
	}
}

func plainFile(name string) error { return os.WriteFile(name, []byte("host"), 0o600) }

func hostFIFO(name string) error { return unix.Mkfifo(name, 0o600) }

// swapper exchanges name for other as often as it can. It does what a program can do in its own folder; hard links to files of
// others only a root makes where the kernel protects them.
func swapper(name, other string) (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for !sandbox.IsClosed(done) {
			_ = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE) // mostly name is not there
		}
	})
	return func() { close(done); wg.Wait() }
}

// removeBoth removes what a swapper exchanges, which a single Remove may miss.
func removeBoth(t *testing.T, names ...string) {
	t.Helper()
	for range 1000 {
		var problems []error
		for _, name := range names {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				problems = append(problems, err)
			}
		}
		if problems == nil {
			return
		}
	}
	t.Fatalf("%v cannot be removed", names)
}

func TestAFIFOForStandardInputNeverGivesAHostsFileAway(t *testing.T) {
	needtest.NeedRoot(t)
	if runtime.NumCPU() < 2 {
		t.Skip("SKIPPED: nothing races on one processor")
	}
	for kind, makeIt := range map[string]func(string) error{"a file": plainFile, "a FIFO": hostFIFO} {
		t.Run(kind, func(t *testing.T) {
			host, check := hostFile(t, workRoot(t), makeIt)
			dir, err := os.Open(filepath.Dir(host))
			must(t, err)
			defer dir.Close() //nolint:errcheck // read only
			name, other := filepath.Join(dir.Name(), "fifo"), filepath.Join(dir.Name(), "other")
			stop := swapper(name, other)
			defer stop()
			made := 0
			for range 500 {
				removeBoth(t, name, other)
				must(t, os.Link(host, other))
				if fd, err := MakeFIFO(int(dir.Fd()), "fifo", protocol.Config{UID: testUID, GID: testUID}); err == nil {
					made++
					must(t, unix.Close(fd))
				}
				check()
			}
			if made == 0 {
				t.Error("no FIFO was made at all")
			}
		})
	}
}

func TestAFolderForAnUploadNeverGivesAHostsFileAway(t *testing.T) {
	needtest.NeedRoot(t)
	dir := workRoot(t)
	host, check := hostFile(t, dir, plainFile)
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	s := &Session{sandbox: &sandbox.Sandbox{Config: protocol.Config{UID: testUID, GID: testUID}}, root: root}
	for name, put := range map[string]func(name string) error{
		"another name of it": func(name string) error { return os.Link(host, name) },
		"a link to it":       func(name string) error { return os.Symlink("host-file", name) },
		"a link out":         func(name string) error { return os.Symlink("/etc", name) },
		"a FIFO":             hostFIFO,
	} {
		must(t, put(filepath.Join(dir, "folder")))
		if err := s.ownFolder("folder"); err == nil {
			t.Errorf("%s was taken for a folder", name)
		}
		check()
		must(t, os.Remove(filepath.Join(dir, "folder")))
	}
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	must(t, s.ownFolder("folder"))
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(dir, "folder"), &st))
	if int(st.Uid) != testUID || int(st.Gid) != testUID {
		t.Errorf("the folder belongs to %d:%d", st.Uid, st.Gid)
	}
	// And while the name changes all the time.
	other := filepath.Join(dir, "other")
	stop := swapper(filepath.Join(dir, "new"), other)
	defer stop()
	for range 500 {
		removeBoth(t, filepath.Join(dir, "new"), other)
		must(t, os.Link(host, other))
		_, _ = s.makeFolders("new") // it may fail
		check()
	}
}
