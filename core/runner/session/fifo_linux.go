package session

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/archive"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// MakeFIFO makes a FIFO in a folder of the program, gives it to the program, and opens it for reading and writing, so that it
// neither waits for a reader nor fails without one. The program may put anything in its place. MakeFIFO refuses what is not a
// FIFO with a single name, and does not change its owner.
func MakeFIFO(dir int, base string, cfg protocol.Config) (int, error) {
	if err := unix.Mkfifoat(dir, base, 0o600); err != nil {
		return -1, err
	}
	fd, err := archive.OpenAt(dir, base, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFIFO || st.Nlink != 1) {
		err = unix.EEXIST
	}
	if err == nil && cfg.UID != 0 {
		err = unix.Fchown(fd, cfg.UID, cfg.GID)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Again lets a program open a FIFO whose content has been written, as it can open a pipe again: by a name such as /dev/stdin. The open
// waits for a writer, because unlike a pipe a FIFO has a name, and nobody will come to write.
type Again struct{ fd int }

// The pauses between two looks for a program that waits.
const firstReopen, lastReopen = 5 * time.Millisecond, 100 * time.Millisecond

// OpenAgain returns the Again of a FIFO that is open as fd. It neither reads nor writes.
func OpenAgain(fd int) (Again, error) {
	handle, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	return Again{handle}, err
}

func (a Again) Close() error { return unix.Close(a.fd) }

// Release lets go those who wait in open until ended is closed. It is a writer for a moment, so that they read the end next.
func (a Again) Release(ended <-chan struct{}) {
	name := "/proc/self/fd/" + strconv.Itoa(a.fd)
	for pause := firstReopen; ; pause = min(2*pause, lastReopen) {
		select {
		case <-ended:
			return
		case <-time.After(pause):
		}
		if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd) // nothing was written
		}
	}
}
