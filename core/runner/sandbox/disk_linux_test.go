package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// inOwnMounts runs f on a thread with a mount namespace of its own. Mounts that f makes end with the thread.
func inOwnMounts(t *testing.T, f func()) {
	t.Helper()
	needtest.NeedRoot(t)
	needtest.Need(t, ProbeTmpfs() == nil, needtest.Root, "the right to mount")
	done := make(chan error, 1)
	work := func() {
		runtime.LockOSThread() // without an unlock: the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			defer func() { done <- nil }()
			f()
			return
		}
		done <- err
	}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if unix.Gettid() != unix.Getpid() {
			work()
			return
		}
		// The main thread does not end, and its mounts are what /proc shows of the process. It is held, so another one does the work.
		var wg sync.WaitGroup
		wg.Go(work)
		wg.Wait()
	}()
	if err := <-done; err != nil {
		t.Fatalf("a mount namespace: %v", err)
	}
}

// newTestDisk returns a mounted disk of 16 MiB whose work root lies below a public folder, as it does with a TMPDIR in /tmp.
func newTestDisk(t *testing.T, reach ...string) *Disk {
	t.Helper()
	d, err := newDisk(protocol.Config{WorkRoot: t.TempDir(), Reach: reach})
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	if err := d.fit(16 << 20); err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return d
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("left"), 0o600); err != nil {
		t.Error(err)
	}
}

func TestADiskHidesPublicFoldersButForWhatIsReached(t *testing.T) {
	own, reached := t.TempDir(), t.TempDir()
	write(t, filepath.Join(own, "host"))
	write(t, filepath.Join(reached, "host"))
	inOwnMounts(t, func() {
		d := newTestDisk(t, reached, "/tmp", filepath.Join(own, "missing"))
		if _, err := os.Stat(filepath.Join(own, "host")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a host's file in a public folder: %v", err)
		}
		if got := names(t, reached); !slices.Equal(got, []string{"host"}) {
			t.Errorf("a reached folder holds %q", got)
		}
		write(t, filepath.Join(d.root, "work-file"))
		for _, c := range d.hidden {
			write(t, filepath.Join(c.path, "left"))
		}
		if err := d.wipe(); err != nil {
			t.Error(err)
		}
		for _, c := range d.hidden {
			if slices.Contains(names(t, c.path), "left") {
				t.Errorf("%s keeps a file", c.path)
			}
		}
		if got := names(t, d.root); !slices.Equal(got, []string{"work-file"}) {
			t.Errorf("the work root holds %q", got)
		}
		if got := names(t, reached); !slices.Equal(got, []string{"host"}) {
			t.Errorf("after the wipe a reached folder holds %q", got)
		}
		if err := d.unmount(); err != nil {
			t.Error(err)
		}
		if err := d.unmount(); err != nil {
			t.Errorf("the second unmount: %v", err)
		}
		if got := names(t, own); !slices.Equal(got, []string{"host"}) {
			t.Errorf("behind the disk the host's folder holds %q", got)
		}
	})
}

// TestANextDiskHasNothingOfTheOneBefore also covers what one Execution alone may reach.
func TestANextDiskHasNothingOfTheOneBefore(t *testing.T) {
	directory := t.TempDir()
	write(t, filepath.Join(directory, "host"))
	inOwnMounts(t, func() {
		d := newTestDisk(t)
		if err := d.reachAll(protocol.Start{Directory: directory, Path: "/usr/bin:relative"}); err != nil {
			t.Error(err)
		}
		if got := names(t, directory); !slices.Equal(got, []string{"host"}) {
			t.Errorf("the program's directory holds %q", got)
		}
		write(t, filepath.Join(d.root, "left"))
		for _, c := range d.hidden {
			write(t, filepath.Join(c.path, "left"))
		}
		if err := d.unmount(); err != nil {
			t.Error(err)
		}
		if err := d.fit(16 << 20); err != nil {
			t.Error(err)
		}
		for _, dir := range append([]string{d.root}, paths(d.hidden)...) {
			if slices.Contains(names(t, dir), "left") {
				t.Errorf("%s has a file of the disk before", dir)
			}
		}
		if _, err := os.Stat(directory); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the next program reaches the directory of the one before: %v", err)
		}
		if err := d.unmount(); err != nil {
			t.Error(err)
		}
	})
}

func paths(covers []*cover) []string {
	var list []string
	for _, c := range covers {
		list = append(list, c.path)
	}
	return list
}

func TestADiskHasTheSizeOfItsLimit(t *testing.T) {
	inOwnMounts(t, func() {
		d := newTestDisk(t)
		big := make([]byte, 20<<20)
		if err := os.WriteFile(filepath.Join(d.temp(), "big"), big, 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("20 MiB on a disk of 16: %v", err)
		}
		if err := os.Remove(filepath.Join(d.temp(), "big")); err != nil {
			t.Error(err)
		}
		if err := d.fit(32 << 20); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(d.root, "big"), big, 0o600); err != nil {
			t.Errorf("20 MiB on a disk of 32: %v", err)
		}
		if err := d.fit(0); err != nil {
			t.Errorf("a disk without a limit: %v", err)
		}
		if err := d.unmount(); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatLiesBelowAFolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/tmp", "/tmp", true},
		{"/tmp/a", "/tmp", true},
		{"/tmpa", "/tmp", false},
		{"/", "/tmp", false},
		{"/a", "/", true},
	} {
		if got := below(c.path, c.dir); got != c.want {
			t.Errorf("%s below %s: %v", c.path, c.dir, got)
		}
	}
}
