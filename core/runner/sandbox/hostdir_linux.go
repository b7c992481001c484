package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// openReal opens a path of the machine as a name (O_PATH). It follows no link, so a user of the machine who puts one there after the path
// was resolved gets an error.
func openReal(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// openDirectory opens Start.Directory, which was checked under this name, as a name (O_PATH). It returns a Failure of the field
// host_directory if there is no folder, or a link on the way to it.
func openDirectory(path string) (int, error) {
	fd, err := openReal(path)
	switch {
	case errors.Is(err, unix.ELOOP):
		return -1, InvalidField("host_directory", "must not lead over a link: %q does now, and was a folder when it was checked. Name the folder itself", path)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
		return -1, InvalidField("host_directory", "must be a folder that exists and that the server can use (got %q)", path)
	case err != nil:
		return -1, fmt.Errorf("host_directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		_ = unix.Close(fd) // nothing was written
		return -1, InvalidField("host_directory", "must be a folder (got %q)", path)
	}
	return fd, nil
}

// checkDirectory is openDirectory for a sandbox in which programs see the machine's files anyway, so that nothing is bound. Where the kernel,
// or a filter of system calls, has no openat2, any folder will do.
func checkDirectory(path string) error {
	fd, err := openDirectory(path)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
