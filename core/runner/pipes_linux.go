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

// makePipes makes the pipes as the program's own: through /dev/stdout it opens them anew. Without stdin its standard input
// is empty.
func makePipes(cfg Config, stdin bool) (*pipes, error) {
	p := &pipes{}
	pipe := func(oursIsRead bool) (*os.File, error) {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
		ours, theirs := fds[0], fds[1]
		if !oursIsRead {
			ours, theirs = fds[1], fds[0]
		}
		p.theirs = append(p.theirs, theirs)
		err := unix.SetNonblock(ours, true) // so that closing or a deadline ends a read
		if cfg.UID != 0 {
			err = errors.Join(err, unix.Fchown(theirs, cfg.UID, cfg.GID))
		}
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
