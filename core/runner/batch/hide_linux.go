package batch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
)

// hide keeps programs out of a folder. If keep lies below it, programs may pass through to keep, and every other file or folder
// on the way is hidden. A folder that does not exist is no error. No untrusted process runs meanwhile.
func hide(dir, keep string) error {
	fd, err := archive.OpenDir(unix.AT_FDCWD, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), dir) //nolint:gosec // a descriptor
	defer f.Close()                   //nolint:errcheck // read only
	rest, err := filepath.Rel(dir, keep)
	below := keep != "" && err == nil && rest != "." && rest != ".." && !strings.HasPrefix(rest, "../")
	mode := uint32(0o700)
	if below {
		mode = 0o711
	}
	// The owner first: another owner could undo the rest. The platform may have given the folder to nobody.
	if err := errors.Join(unix.Fchown(fd, os.Geteuid(), os.Getegid()), unix.Fchmod(fd, mode)); err != nil {
		return err
	}
	if !below {
		return nil
	}
	next, _, _ := strings.Cut(rest, "/")
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case path == filepath.Clean(keep):
		case e.IsDir() && e.Name() == next:
			err = errors.Join(err, hide(path, keep))
		case e.IsDir():
			err = errors.Join(err, hide(path, ""))
		case e.Type()&fs.ModeSymlink == 0:
			err = errors.Join(err, unix.Fchownat(fd, e.Name(), os.Geteuid(), os.Getegid(), unix.AT_SYMLINK_NOFOLLOW), unix.Fchmodat(fd, e.Name(), 0o600, 0))
		}
	}
	return err
}
