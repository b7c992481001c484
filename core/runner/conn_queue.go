package runner

import (
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// maxHeld bounds the bytes that a host holds of a runner that keeps to its windows.
const maxHeld = 2*protocol.OutputWindow + protocol.ArtifactWindow + 2*protocol.MaxControl

const (
	// manyQueued is how many frames wait before pieces of output are joined.
	manyQueued = 1024
	// maxQueued bounds the frames that wait. Most of so many are of empty files.
	maxQueued = 1 << 17
)

// put queues a frame for the Sink.
func (f *follower) put(r received) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.join(r) {
		return nil
	}
	f.held += len(r.data)
	if f.held > maxHeld || len(f.queue) >= maxQueued {
		return fmt.Errorf("%w: the runner overran its windows", protocol.ErrFrame)
	}
	f.queue = append(f.queue, r)
	f.cond.Signal()
	return nil
}

// join appends a piece of output to the last piece of its stream, if many frames wait. Otherwise a program that alternates
// between both streams, a byte at a time, would fill a slow host's queue with headers. Some of the order between the streams is
// lost. The caller holds the lock.
func (f *follower) join(r received) bool {
	if r.t != protocol.FrameOutput || len(f.queue) < manyQueued {
		return false
	}
	o, err := protocol.ParseOutput(r.data)
	if err != nil {
		return false // deliver says so
	}
	for i := len(f.queue) - 1; i >= len(f.queue)-2; i-- {
		last := &f.queue[i]
		if last.t != protocol.FrameOutput {
			return false
		}
		before, err := protocol.ParseOutput(last.data)
		if err != nil {
			return false
		}
		if before.Stream != o.Stream {
			continue
		}
		if before.Offset+int64(len(before.Data)) != o.Offset || len(before.Data)+len(o.Data) > executor.MaxOutputData {
			return false
		}
		last.data = append(last.data, o.Data...)
		f.held += len(o.Data)
		return true
	}
	return false
}
