package runner

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pipes are the program's standard streams: ours, and the ends it gets.
type pipes struct {
	stdin, stdout, stderr *os.File
	theirs                []int
}

func (p *pipes) closeTheirs() {
	for _, fd := range p.theirs {
		_ = unix.Close(fd)
	}
	p.theirs = nil
}

func (p *pipes) close() {
	p.closeTheirs()
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// programPipe makes a pipe that belongs to the program's user.
func programPipe(cfg Config) (fds [2]int, err error) {
	if err = unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil || cfg.UID == 0 {
		return fds, err
	}
	if err = unix.Fchown(fds[0], cfg.UID, cfg.GID); err == nil {
		return fds, nil
	}
	_, _ = unix.Close(fds[0]), unix.Close(fds[1])
	if errors.Is(err, unix.EPERM) { // on gVisor a pipe belongs to who makes it
		err = onThread(func() error {
			const keep = ^uintptr(0)
			//nolint:gosec // ids are positive
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(cfg.GID), keep); errno != 0 {
				return errno
			}
			//nolint:gosec // likewise
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(cfg.UID), keep); errno != 0 {
				return errno
			}
			return unix.Pipe2(fds[:], unix.O_CLOEXEC)
		})
	}
	return fds, err
}

// makePipes makes the pipes as the program's own: through /dev/stdout it opens them anew. Without stdin its standard input
// is empty.
func makePipes(cfg Config, stdin bool) (*pipes, error) {
	p := &pipes{}
	pipe := func(oursIsRead bool) (*os.File, error) {
		fds, err := programPipe(cfg)
		if err != nil {
			return nil, err
		}
		ours, theirs := fds[0], fds[1]
		if !oursIsRead {
			ours, theirs = fds[1], fds[0]
		}
		p.theirs = append(p.theirs, theirs)
		err = unix.SetNonblock(ours, true)            // so that closing or a deadline ends a read
		return os.NewFile(uintptr(ours), "pipe"), err //nolint:gosec // a descriptor
	}
	var err error
	if stdin {
		p.stdin, err = pipe(false)
	} else {
		var fd int
		fd, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		p.theirs = append(p.theirs, fd)
	}
	if err == nil {
		p.stdout, err = pipe(true)
	}
	if err == nil {
		p.stderr, err = pipe(true)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("pipes: %w", err)
	}
	return p, nil
}
