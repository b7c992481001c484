package hostpath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openRoot opens a folder without following links. It is ErrUnsupported where the kernel, or a filter of system calls, has no openat2.
func openRoot(path string) (*os.Root, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return nil, errors.ErrUnsupported
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("open %s: %w", path, ErrLink)
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}
