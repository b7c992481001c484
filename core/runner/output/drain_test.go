//go:build linux

package output

import (
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Another process may hold the pipe when all processes of the program are dead.
func TestAPumpThatIsDrainedTakesWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]int{"nothing": 0, "some bytes": 4, "more than one read": PumpBytes + 4, "a full pipe": floodPipe} {
		r, w, err := os.Pipe()
		must(t, err)
		defer w.Close() //nolint:errcheck // a test's own
		_, err = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, floodPipe)
		must(t, err)
		_, err = w.WriteString(strings.Repeat("x", written))
		must(t, err)
		must(t, r.SetReadDeadline(time.Unix(1, 0)))
		box := NewOutbox(protocol.NewWriter(io.Discard), nil)
		p := NewPump(executor.Stdout, r, box, executor.Unlimited)
		p.Ended = func() { t.Error("the program has closed the pipe, it is said") }
		p.Run()
		p.Drain()
		box.Expire()
		if p.Total != int64(written) {
			t.Errorf("%s: %d of %d bytes were taken", name, p.Total, written)
		}
	}
}

// another is a process that writes more into the pipe when something was taken from it, as often as left says.
type another struct {
	pipe *os.File
	left int
}

func (a *another) Write(p []byte) (int, error) {
	if a.left--; a.left >= 0 {
		_, _ = a.pipe.Write(make([]byte, PumpBytes))
	}
	return len(p), nil
}

func TestAPumpThatIsDrainedDoesNotFollowAnotherProcess(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close() //nolint:errcheck // a test's own
	_, err = w.Write(make([]byte, PumpBytes))
	must(t, err)
	must(t, r.SetReadDeadline(time.Unix(1, 0)))
	p := NewPump(executor.Stdout, r, NewOutbox(protocol.NewWriter(&another{w, protocol.OutputWindow/PumpBytes - 1}), nil), executor.Unlimited)
	p.Run()
	if p.Total != PumpBytes {
		t.Errorf("%d bytes were taken, and %d were there", p.Total, PumpBytes)
	}
}

// heldPipe is a pipe that another process holds, in virtual time.
type heldPipe struct{ net.Conn }

func (heldPipe) SyscallConn() (syscall.RawConn, error) { return nil, os.ErrInvalid }

func TestAPumpThatIsDrainedWaitsForNoOtherProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := net.Pipe()
		defer w.Close() //nolint:errcheck // a test's own
		p := NewPump(executor.Stdout, heldPipe{r}, NewOutbox(protocol.NewWriter(io.Discard), nil), executor.Unlimited)
		go p.Run()
		synctest.Wait()
		begin := time.Now()
		p.Drain()
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}
