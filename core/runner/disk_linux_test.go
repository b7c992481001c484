package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// inOwnMounts runs f on a thread with a mount namespace of its own. Mounts that f makes end with the thread.
func inOwnMounts(t *testing.T, f func()) {
	t.Helper()
	needs(t, isRoot() && ProbeTmpfs() == nil, "a root that may mount")
	done := make(chan error, 1)
	go func() {
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
	}()
	if err := <-done; err != nil {
		t.Fatalf("a mount namespace: %v", err)
	}
}

// newTestDisk returns a mounted disk of 16 MiB whose work root lies below a public folder, as it does with a TMPDIR in /tmp.
func newTestDisk(t *testing.T, reach ...string) *disk {
	t.Helper()
	d, err := newDisk(Config{WorkRoot: t.TempDir(), Reach: reach})
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
		if err := d.clean(); err != nil {
			t.Error(err)
		}
		if d.tmpfs == nil {
			t.Error("a disk with a few files is not used again")
		}
		for _, c := range d.hidden {
			if slices.Contains(names(t, c.path), "left") {
				t.Errorf("%s keeps a file", c.path)
			}
		}
		if got := names(t, d.root); len(got) != 0 {
			t.Errorf("the work root keeps %q", got)
		}
		if got := names(t, reached); !slices.Equal(got, []string{"host"}) {
			t.Errorf("after the clean-up a reached folder holds %q", got)
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

func TestADiskIsMadeAnewAfterManyFilesOrALoan(t *testing.T) {
	directory := t.TempDir()
	write(t, filepath.Join(directory, "host"))
	inOwnMounts(t, func() {
		d := newTestDisk(t)
		for i := range maxReused + 1 {
			write(t, filepath.Join(d.temp(), strconv.Itoa(i)))
		}
		if err := d.clean(); err != nil || d.tmpfs != nil {
			t.Errorf("after many files the disk is mounted: %v, error %v", d.tmpfs != nil, err)
		}
		if err := d.clean(); err != nil {
			t.Errorf("a disk that is not mounted: %v", err)
		}
		if err := d.fit(16 << 20); err != nil {
			t.Error(err)
		}
		if err := d.reachAll(Start{Directory: directory, Path: "/usr/bin:relative"}); err != nil {
			t.Error(err)
		}
		if got := names(t, directory); !slices.Equal(got, []string{"host"}) {
			t.Errorf("the program's directory holds %q", got)
		}
		if err := d.clean(); err != nil || d.tmpfs != nil {
			t.Errorf("a disk that showed one Execution's directory is mounted: %v, error %v", d.tmpfs != nil, err)
		}
		if got := names(t, directory); !slices.Equal(got, []string{"host"}) {
			t.Errorf("behind the disk the directory holds %q", got)
		}
	})
}

func TestADiskHasTheSizeOfItsLimit(t *testing.T) {
	inOwnMounts(t, func() {
		d := newTestDisk(t)
		big := make([]byte, 20<<20)
		if err := os.WriteFile(filepath.Join(d.temp(), "big"), big, 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("20 MiB on a disk of 16: %v", err)
		}
		if err := d.clean(); err != nil {
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
