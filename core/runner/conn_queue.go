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

// received is a frame that waits for the Sink.
type received struct {
	t    protocol.FrameType
	data []byte
	// buffer has data, and is used again; nil if data is small.
	buffer *[]byte
}

// minPooled is the least payload that gets a buffer of protocol.ChunkPool.
const minPooled = protocol.ChunkBytes / 2

// newReceived returns a frame with room for n bytes of payload.
func newReceived(t protocol.FrameType, n int) received {
	if t != protocol.FrameOutput || n < minPooled {
		return received{t: t, data: make([]byte, n)}
	}
	buffer := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	return received{t, (*buffer)[:n], buffer}
}

// release gives the buffer back. The data must not be used after it.
func (r *received) release() {
	if r.buffer != nil {
		protocol.ChunkPool.Put(r.buffer)
		r.buffer = nil
	}
}

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

// pop takes the first frame. If that is output, pop takes what follows in the same stream with it, because each event costs every
// process on its way a wake-up. The caller holds the lock.
func (f *follower) pop() received {
	first := f.queue[0]
	n, size := f.contiguous()
	f.held -= len(first.data)
	if n > 1 {
		whole := newReceived(first.t, size)
		at := copy(whole.data, first.data)
		first.release()
		for _, r := range f.queue[1:n] {
			f.held -= len(r.data)
			at += copy(whole.data[at:], r.data[protocol.OutputHeaderBytes:])
			r.release()
		}
		first = whole
	}
	clear(f.queue[:n])
	f.queue = f.queue[n:]
	return first
}

// contiguous returns how many frames at the beginning of the queue make one piece of output, and the size of a frame of that.
func (f *follower) contiguous() (frames, size int) {
	frames, size = 1, len(f.queue[0].data)
	if f.queue[0].t != protocol.FrameOutput {
		return frames, size
	}
	first, err := protocol.ParseOutput(f.queue[0].data)
	if err != nil {
		return frames, size // deliver says so
	}
	for _, r := range f.queue[1:] {
		if r.t != protocol.FrameOutput {
			break
		}
		next, err := protocol.ParseOutput(r.data)
		have := size - protocol.OutputHeaderBytes
		if err != nil || next.Stream != first.Stream || next.Offset != first.Offset+int64(have) || have+len(next.Data) > executor.MaxOutputData {
			break
		}
		frames, size = frames+1, size+len(next.Data)
	}
	return frames, size
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
