package runner

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// feedCell gives the Execution's standard input to the interpreter by a FIFO, which every language can open, and returns its
// name. It flows once the driver has opened that; stop ends it.
func (x *execution) feedCell(s *session, n int64) (name string, opened, stop func(), err error) {
	if !x.start.Stdin {
		return "", func() {}, func() {}, nil
	}
	dir := int(s.folder.tempRoot.Fd())
	base := fmt.Sprintf(".stdin-%d", n)
	_ = unix.Unlinkat(dir, base, 0) // of an interpreter that died
	fd, err := makeFIFO(dir, base, x.agent.cfg)
	if err != nil {
		return "", nil, nil, failed(executor.Internal, executor.PhaseStart, "stdin: %v", err)
	}
	pipe := os.NewFile(uintptr(fd), "stdin") //nolint:gosec // a descriptor
	fed, open := make(chan struct{}), make(chan struct{})
	opened = sync.OnceFunc(func() { close(open) })
	x.agent.goGuarded(func() {
		defer close(fed)
		<-open // a FIFO that nobody has open forgets, and one that nobody writes to keeps who opens it waiting
		feed(x.stdin, pipe)
	})
	return path.Join(s.folder.temp, base), opened, func() {
		opened()
		x.stdin.abort(errStopped)
		_ = pipe.Close() // feed may have closed it
		<-fed
		_ = unix.Unlinkat(dir, base, 0) // the driver has done so, mostly
	}, nil
}

// makeFIFO makes a FIFO of the program's in a folder of the program's, and opens it for both, so that it neither waits for the
// reader nor fails without one. The program may put anything in its place: what is not the only name of a FIFO is refused and
// keeps its owner.
func makeFIFO(dir int, base string, cfg Config) (int, error) {
	if err := unix.Mkfifoat(dir, base, 0o600); err != nil {
		return -1, err
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(dir, base, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
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
