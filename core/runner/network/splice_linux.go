package network

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// pipeBytes is how much a pipe holds. The kernel may give less.
const pipeBytes = 1 << 20

// pipe carries data from one socket to another inside of the kernel. Go's own io.Copy holds a pipe for as long as a connection
// lives, but pipes are bounded for each user. A link has one only while there is data.
type pipe struct{ out, in int }

// pipes keeps some pipes that are empty.
type pipes struct{ idle chan pipe }

func newPipes() pipes { return pipes{make(chan pipe, 4)} }

func (s pipes) take() (pipe, error) {
	select {
	case p := <-s.idle:
		return p, nil
	default:
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, err
	}
	_, _ = unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, pipeBytes) // a smaller pipe is slower
	return pipe{ends[0], ends[1]}, nil
}

// put takes back an empty pipe.
func (s pipes) put(p pipe) {
	select {
	case s.idle <- p:
	default:
		p.close()
	}
}

func (p pipe) close() {
	_ = unix.Close(p.out)
	_ = unix.Close(p.in)
}

// close closes the pipes that nobody has taken.
func (s pipes) close() {
	for {
		select {
		case p := <-s.idle:
			p.close()
		default:
			return
		}
	}
}

// move copies what has come from one connection to another, waiting for it. It returns 0 at the end of from.
func (s pipes) move(to, from *net.TCPConn) (moved int64, err error) {
	source, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	target, err := to.SyscallConn()
	if err != nil {
		return 0, err
	}
	var p pipe
	var n int64
	var failed error
	err = source.Read(func(fd uintptr) bool {
		if p, failed = s.take(); failed != nil {
			return true
		}
		if n, failed = unix.Splice(int(fd), nil, p.in, nil, pipeBytes, unix.SPLICE_F_NONBLOCK); waits(failed) {
			s.put(p)
			p = pipe{}
			return false
		}
		return true
	})
	if err != nil || p == (pipe{}) {
		return 0, errors.Join(err, failed)
	}
	for left := n; left > 0 && failed == nil; {
		var m int64
		err = target.Write(func(fd uintptr) bool {
			m, failed = unix.Splice(p.out, nil, int(fd), nil, int(left), unix.SPLICE_F_NONBLOCK)
			return !waits(failed)
		})
		if err != nil {
			failed = err
		}
		left -= m
	}
	if failed != nil {
		p.close()
		return 0, failed
	}
	s.put(p)
	return n, nil
}
