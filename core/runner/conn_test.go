//go:build linux

package runner

import (
	"net"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// TestAConnIsDoneBeforeItsRunReturns: whoever gets the error looks there for what it means.
func TestAConnIsDoneBeforeItsRunReturns(t *testing.T) {
	t.Parallel()
	for range 2000 {
		ours, theirs := net.Pipe()
		c := newConn(ours)
		c.turn <- struct{}{}
		go c.read(protocol.NewReader(ours))
		go func() {
			_, _ = theirs.Read(make([]byte, 1<<16)) // Start
			_ = theirs.Close()
		}()
		_, err := c.Run(t.Context(), Start{}, RunInput{}, &record{})
		if executor.CodeOf(err) != executor.Unavailable {
			t.Fatal(err)
		}
		select {
		case <-c.Done():
		default:
			t.Fatal("Run has returned, and the connection is not done")
		}
	}
}
