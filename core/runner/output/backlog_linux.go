package output

import (
	"fmt"
	"sync"

	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Backlog counts what an Execution has put out and the host has not in its log: at most protocol.OutputWindow of each output
// stream, and eventWindow of events. A writer waits for room. Where hosts come and go, the Backlog also keeps all that. Next then
// returns what was not sent in the order in which it came, and after Rewind everything again.
type Backlog struct {
	// wake is called when there is something to send. It may call Next. It is nil if nothing is kept: what is put out is then sent
	// by its writer.
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
	data             []byte // from acked to end, if it is kept
}

// keptEvents are whole frames. Their numbers start at 0.
type keptEvents struct {
	acked, sent int64
	sizes       []int    // from acked on
	frames      [][]byte // likewise, if they are kept
	bytes       int
}

// segment is a piece of what is to be sent: n bytes of a stream, or n events.
type segment struct {
	of int
	n  int64
}

const ofEvents = 2

// eventWindow bounds the events that are kept. One event always fits.
const eventWindow = 4 << 20

// maxSegments bounds order. Streams that alternate more often than that within a window lose some of their order.
const maxSegments = 1024

func NewBacklog(wake func()) *Backlog {
	k := &Backlog{wake: wake}
	k.cond = sync.NewCond(&k.mu)
	return k
}

// keeps reports whether what is put out is kept, and sent by Next.
func (k *Backlog) keeps() bool { return k.wake != nil }

// output adds output and returns its offset. It waits for room, and reports false when the Backlog is closed.
func (k *Backlog) output(stream int, data []byte) (offset int64, ok bool) {
	st := &k.streams[stream]
	n := int64(len(data))
	k.mu.Lock()
	for !k.closed && st.end+n-st.acked > protocol.OutputWindow {
		k.cond.Wait()
	}
	if k.closed {
		k.mu.Unlock()
		return 0, false
	}
	offset = st.end
	st.end += n
	if !k.keeps() {
		st.sent = st.end
		k.mu.Unlock()
		return offset, true
	}
	st.data = append(st.data, data...)
	k.add(stream, n)
	k.mu.Unlock()
	k.wake()
	return offset, true
}

// event adds a whole frame. It waits for room, and reports false when the Backlog is closed.
func (k *Backlog) event(frame []byte) bool {
	k.mu.Lock()
	for !k.closed && k.events.bytes > 0 && k.events.bytes+len(frame) > eventWindow {
		k.cond.Wait()
	}
	if k.closed {
		k.mu.Unlock()
		return false
	}
	k.events.sizes = append(k.events.sizes, len(frame))
	k.events.bytes += len(frame)
	if !k.keeps() {
		k.events.sent++
		k.mu.Unlock()
		return true
	}
	k.events.frames = append(k.events.frames, frame)
	k.add(ofEvents, 1)
	k.mu.Unlock()
	k.wake()
	return true
}

func (k *Backlog) add(of int, n int64) {
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

// Next appends the next frame to buf. It returns buf as it is if there is none.
func (k *Backlog) Next(buf []byte) []byte {
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
		n := min(first.n, PumpBytes)
		from := st.sent - st.acked
		buf = protocol.AppendOutput(buf, first.of, st.sent, st.data[from:from+n])
		st.sent += n
		first.n -= n
	}
	if first.n == 0 {
		k.order = k.order[1:]
	}
	return buf
}

// Unsent reports whether there is something to send.
func (k *Backlog) Unsent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.order) > 0
}

// ack drops what the host has.
func (k *Backlog) ack(a protocol.Acknowledged) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, upTo := range a.Streams {
		st := &k.streams[i]
		st.drop(min(upTo, st.sent))
	}
	k.events.drop(min(a.Events, k.events.sent))
	k.cond.Broadcast()
}

func (st *keptStream) drop(upTo int64) {
	if upTo <= st.acked {
		return
	}
	if len(st.data) > 0 {
		n := copy(st.data, st.data[upTo-st.acked:])
		st.data = st.data[:n]
	}
	st.acked = upTo
}

func (e *keptEvents) drop(upTo int64) {
	for ; e.acked < upTo; e.acked++ {
		e.bytes -= e.sizes[0]
		e.sizes = e.sizes[1:]
		if len(e.frames) > 0 {
			e.frames[0] = nil
			e.frames = e.frames[1:]
		}
	}
}

// Covers returns why the Backlog cannot serve a host that has the output up to these offsets, or nil.
func (k *Backlog) Covers(stdout, stderr int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, from := range []int64{stdout, stderr} {
		if st := &k.streams[i]; from < st.acked || from > st.end {
			return fmt.Errorf("output from offset %d on is not kept: there is output from %d to %d", from, st.acked, st.end)
		}
	}
	return nil
}

// Rewind makes Next begin again: with the output from these offsets on, which Covers has allowed, and with the events that are
// not acknowledged. It returns how many are.
func (k *Backlog) Rewind(stdout, stderr int64) (events int64) {
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

// close makes all that wait return false.
func (k *Backlog) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.cond.Broadcast()
}
