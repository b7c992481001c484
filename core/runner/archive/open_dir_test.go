//go:build linux

package archive

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFolderIsOpenedThroughNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o700), os.Symlink("folder", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	for way, open := range map[string]func(int, string) (int, error){"on Linux": OpenDir, "on gVisor": openDirOnGVisor} {
		fd, err := open(at, "folder")
		if err != nil {
			t.Errorf("%s: %v", way, err)
		} else {
			_ = unix.Close(fd)
		}
		for _, name := range []string{"link", "file", "fifo", "gone"} {
			if fd, err := open(at, name); err == nil {
				t.Errorf("%s: %s is opened as a folder", way, name)
				_ = unix.Close(fd)
			}
		}
	}
}
