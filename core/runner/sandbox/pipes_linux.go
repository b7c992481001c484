package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Pipes are the program's standard streams: the runner's ends, and the descriptors that the program gets.
type Pipes struct {
	Stdin, Stdout, Stderr *os.File
	Theirs                []int
}

func (p *Pipes) CloseTheirs() {
	for _, fd := range p.Theirs {
		_ = unix.Close(fd)
	}
	p.Theirs = nil
}

func (p *Pipes) Close() {
	p.CloseTheirs()
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// ProgramPipe makes a pipe that belongs to the program's uid.
func ProgramPipe(cfg protocol.Config) (fds [2]int, err error) {
	if err = unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil || cfg.UID == 0 {
		return fds, err
	}
	if err = unix.Fchown(fds[0], cfg.UID, cfg.GID); err == nil {
		return fds, nil
	}
	_, _ = unix.Close(fds[0]), unix.Close(fds[1])
	if errors.Is(err, unix.EPERM) { // on gVisor a pipe belongs to the uid that makes it
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

// MakePipes makes pipes that belong to the program, so that it can open /dev/stdout. Without stdin its standard input is empty.
func MakePipes(cfg protocol.Config, stdin bool) (*Pipes, error) {
	p := &Pipes{}
	pipe := func(oursIsRead bool) (*os.File, error) {
		fds, err := ProgramPipe(cfg)
		if err != nil {
			return nil, err
		}
		ours, theirs := fds[0], fds[1]
		if !oursIsRead {
			ours, theirs = fds[1], fds[0]
		}
		p.Theirs = append(p.Theirs, theirs)
		err = unix.SetNonblock(ours, true)            // so that closing or a deadline ends a read
		return os.NewFile(uintptr(ours), "pipe"), err //nolint:gosec // a descriptor
	}
	var err error
	if stdin {
		p.Stdin, err = pipe(false)
	} else {
		var fd int
		fd, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		p.Theirs = append(p.Theirs, fd)
	}
	if err == nil {
		p.Stdout, err = pipe(true)
	}
	if err == nil {
		p.Stderr, err = pipe(true)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("pipes: %w", err)
	}
	return p, nil
}
