//go:build unix

package cmd

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// hasInput reports whether r is a pipe or a file with bytes that nobody has read. It does not wait.
func hasInput(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	if info.Mode().IsRegular() {
		at, err := f.Seek(0, io.SeekCurrent)
		return err == nil && at < info.Size()
	}
	if info.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for {
		n, err := unix.Poll(poll, 0)
		if errors.Is(err, unix.EINTR) { // a signal was pending
			continue
		}
		return err == nil && n == 1 && poll[0].Revents&unix.POLLIN != 0
	}
}
