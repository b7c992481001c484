//go:build linux

package runner

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

func TestAHostKnowsWhetherALostRunnerHadReadTheStart(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string]bool{"it had": true, "it had not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			file, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "runner")
			ours, err := net.FileConn(file)
			if err = errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- errors.Join(endAtStart(theirs, fds[1], reads), theirs.Close()) }()
			conn, err := NewConn(ours, Config{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Run(t.Context(), Start{}, RunInput{}, struct{ executor.Sink }{})
			if executor.CodeOf(err) != executor.Unavailable || errors.Is(err, ErrTaken) != reads {
				t.Errorf("Run: %v", err)
			}
			if err := errors.Join(<-ended, conn.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// endAtStart is a runner that ends when a Start has come, and reads it before if reads is true.
func endAtStart(theirs *os.File, fd int, reads bool) error {
	frames := protocol.NewReader(theirs)
	next := func() error {
		_, n, err := frames.Header()
		if err == nil {
			_, err = frames.Payload(n)
		}
		return err
	}
	if err := next(); err != nil {
		return err
	}
	if err := protocol.NewWriter(theirs).SendJSON(protocol.FrameHelloReply, protocol.HelloReply{Version: protocol.Version}); err != nil {
		return err
	}
	if reads {
		return next()
	}
	_, _, err := syscall.Recvfrom(fd, make([]byte, 1), syscall.MSG_PEEK) // it blocks
	return err
}
