package wire

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// full is a socket that takes nothing.
type full struct{ err error }

func (f full) Write([]byte) (int, error) { return 0, f.err }

// The reader of a socket takes its end for the end of the source if the source has no error.
func TestBytesThatASocketDoesNotTakeAreAnErrorUnlessItsReaderIsGone(t *testing.T) {
	t.Parallel()
	for _, gone := range []error{syscall.EPIPE, syscall.ECONNRESET, net.ErrClosed} {
		if err := pourInto(full{&net.OpError{Op: "write", Err: os.NewSyscallError("write", gone)}}, strings.NewReader("x")); err != nil {
			t.Errorf("%v: %v", gone, err)
		}
	}
	for _, refused := range []error{syscall.ENOBUFS, syscall.ENOMEM} {
		err := pourInto(full{os.NewSyscallError("write", refused)}, strings.NewReader("x"))
		if executor.CodeOf(err) != executor.Unavailable || !errors.Is(err, refused) {
			t.Errorf("%v: %v", refused, err)
		}
	}
}
