package runner

import (
	"fmt"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// kept holds what an Execution has put out until the host has it in its log: of each output stream at most outputWindow,
// of events at most eventWindow. Who puts more waits. It gives what has not been sent yet in the order in which it came,
// and after a rewind everything again.
type kept struct {
	// wake is called when there is something to send. It may call next.
	wake func()

	mu      sync.Mutex
	cond    *sync.Cond
	streams [2]keptStream
	events  keptEvents
	order   []segment
	closed  bool
}

type keptStream struct {
	acked, sent, end int64
	data             []byte // from acked to end
}

// keptEvents are whole frames, counted from 0.
type keptEvents struct {
	acked, sent int64
	frames      [][]byte // from acked on
	bytes       int
}

// segment is a piece of what is to be sent: n bytes of a stream, or n events.
type segment struct {
	of int
	n  int64
}

const ofEvents = 2

// eventWindow bounds the events that are kept; one more is always taken.
const eventWindow = 4 << 20

// maxSegments bounds order. Streams that take turns more often than that within a window lose some of their order.
const maxSegments = 1024

func newKept(wake func()) *kept {
	k := &kept{wake: wake}
	k.cond = sync.NewCond(&k.mu)
	return k
}

// output takes output, waiting for room; false: nobody wants it any more.
func (k *kept) output(stream int, data []byte) bool {
	st := &k.streams[stream]
	k.mu.Lock()
	for !k.closed && st.end+int64(len(data))-st.acked > outputWindow {
		k.cond.Wait()
	}
	if k.closed {
		k.mu.Unlock()
		return false
	}
	st.data = append(st.data, data...)
	st.end += int64(len(data))
	k.add(stream, int64(len(data)))
	k.mu.Unlock()
	k.wake()
	return true
}

// event takes a whole frame, waiting for room; false: nobody wants it any more.
func (k *kept) event(frame []byte) bool {
	k.mu.Lock()
	for !k.closed && k.events.bytes > 0 && k.events.bytes+len(frame) > eventWindow {
		k.cond.Wait()
	}
	if k.closed {
		k.mu.Unlock()
		return false
	}
	k.events.frames = append(k.events.frames, frame)
	k.events.bytes += len(frame)
	k.add(ofEvents, 1)
	k.mu.Unlock()
	k.wake()
	return true
}

func (k *kept) add(of int, n int64) {
	for i := len(k.order) - 1; i >= 0; i-- {
		if k.order[i].of == of {
			k.order[i].n += n
			return
		}
		if len(k.order) < maxSegments {
			break
		}
	}
	k.order = append(k.order, segment{of, n})
}

// next appends the next frame to buf; the same buf if there is none.
func (k *kept) next(buf []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.order) == 0 {
		return buf
	}
	first := &k.order[0]
	if first.of == ofEvents {
		buf = append(buf, k.events.frames[k.events.sent-k.events.acked]...)
		k.events.sent++
		first.n--
	} else {
		st := &k.streams[first.of]
		n := min(first.n, pumpBytes)
		from := st.sent - st.acked
		buf = appendOutput(buf, first.of, st.sent, st.data[from:from+n])
		st.sent += n
		first.n -= n
	}
	if first.n == 0 {
		k.order = k.order[1:]
	}
	return buf
}

func appendOutput(buf []byte, stream int, offset int64, data []byte) []byte {
	at := len(buf)
	buf = append(buf, make([]byte, frameHeader+outputHeader)...)
	putHeader(buf[at:], frameOutput, outputHeader+len(data))
	putOutputHeader(buf[at+frameHeader:], [2]executor.Stream{executor.Stdout, executor.Stderr}[stream], offset)
	return append(buf, data...)
}

// unsent reports whether there is something to send.
func (k *kept) unsent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.order) > 0
}

// ack forgets what the host has.
func (k *kept) ack(a acked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, upTo := range a.streams {
		st := &k.streams[i]
		st.drop(min(upTo, st.sent))
	}
	k.events.drop(min(a.events, k.events.sent))
	k.cond.Broadcast()
}

func (st *keptStream) drop(upTo int64) {
	if upTo <= st.acked {
		return
	}
	n := copy(st.data, st.data[upTo-st.acked:])
	st.data = st.data[:n]
	st.acked = upTo
}

func (e *keptEvents) drop(upTo int64) {
	for ; e.acked < upTo; e.acked++ {
		e.bytes -= len(e.frames[0])
		e.frames[0] = nil
		e.frames = e.frames[1:]
	}
}

// covers says why a host that has the output up to these offsets cannot be served; nil: it can.
func (k *kept) covers(stdout, stderr int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, from := range []int64{stdout, stderr} {
		if st := &k.streams[i]; from < st.acked || from > st.end {
			return fmt.Errorf("the output from offset %d on was asked for, and what is left is from %d to %d", from, st.acked, st.end)
		}
	}
	return nil
}

// rewind makes next begin again: with the output from these offsets on, which covers has allowed, and with the events
// that were not acknowledged. It returns how many were.
func (k *kept) rewind(stdout, stderr int64) (events int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.order = nil
	for i, from := range []int64{stdout, stderr} {
		st := &k.streams[i]
		st.drop(from)
		if st.sent = st.acked; st.end > st.sent {
			k.order = append(k.order, segment{i, st.end - st.sent})
		}
	}
	if k.events.sent = k.events.acked; len(k.events.frames) > 0 {
		k.order = append(k.order, segment{ofEvents, int64(len(k.events.frames))})
	}
	k.cond.Broadcast()
	return k.events.acked
}

// close lets everybody who waits go on with false.
func (k *kept) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.cond.Broadcast()
}
