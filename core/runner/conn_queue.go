package runner

import (
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
)

// maxHeld bounds what a runner that keeps its windows can make a host hold.
const maxHeld = 2*outputWindow + artifactWindow + 2*maxControl

const (
	// manyQueued is how many frames wait before pieces of output are joined.
	manyQueued = 1024
	// maxQueued bounds them; most are of files that are empty.
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
		return fmt.Errorf("%w: the runner overran its windows", errFrame)
	}
	f.queue = append(f.queue, r)
	f.cond.Signal()
	return nil
}

// join puts a piece of output to the last one of its stream where many frames wait. A program that writes to both streams in
// turn, a byte at a time, would else fill a slow host's queue with headers; some of the order between the streams is lost
// instead. The caller holds the lock.
func (f *follower) join(r received) bool {
	if r.t != frameOutput || len(f.queue) < manyQueued {
		return false
	}
	o, err := parseOutput(r.data)
	if err != nil {
		return false // deliver says so
	}
	for i := len(f.queue) - 1; i >= len(f.queue)-2; i-- {
		last := &f.queue[i]
		if last.t != frameOutput {
			return false
		}
		before, err := parseOutput(last.data)
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
