//go:build unix

package dirblobs

import (
	"errors"
	"os"
	"syscall"
)

// lock marks a temporary file as being written, for as long as it is open.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // a descriptor is small
}

// removeAbandoned removes a temporary file unless a process still writes it.
func removeAbandoned(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // a name that ReadDir gave
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if lock(f) != nil {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
