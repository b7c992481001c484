package runner

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// outbox sends output and holds the program back: of each stream at most outputWindow bytes are on their way without an
// acknowledgement. With kept they are kept until then, so that a host that comes back gets them again.
type outbox struct {
	out  *frameWriter
	kept *kept // nil: the host that is there is the only one

	// sending is held while a frame is sent, so that a stream's frames keep their order. It guards what is held back.
	sending sync.Mutex
	front   []byte // a whole frame that goes before all output; empty: none, or it went
	held    []byte // a frame of heldOf, whose header is not written yet; empty: none
	heldOf  executor.Stream
	timer   *time.Timer // sends what is held; nil until first needed

	mu      sync.Mutex
	cond    *sync.Cond
	streams [2]outStream
	events  sentEvents
	closed  bool
}

// sentEvents are the sizes of the events that were not acknowledged.
type sentEvents struct {
	acked int64
	sizes []int
	bytes int
}

func (e *sentEvents) add(n int) {
	e.sizes = append(e.sizes, n)
	e.bytes += n
}

func (e *sentEvents) ack(upTo int64) {
	for ; e.acked < upTo && len(e.sizes) > 0; e.acked++ {
		e.bytes -= e.sizes[0]
		e.sizes = e.sizes[1:]
	}
}

type outStream struct {
	acked, end int64
}

const (
	// holdTime is how long a small piece of output waits for more. Each event costs every process on its way a wake-up, at
	// the expense of the program that is still writing; nobody sees five milliseconds.
	holdTime = 5 * time.Millisecond
	// holdBytes is how much waits; more is sent at once.
	holdBytes = 4 << 10
)

func newOutbox(out *frameWriter) *outbox {
	b := &outbox{out: out}
	b.cond = sync.NewCond(&b.mu)
	if out.relay != nil {
		b.kept = newKept(out.relay.wake)
	}
	return b
}

func streamIndex(s executor.Stream) int {
	return int(streamNumber(s)) - 1
}

// put sends buf, whose data lies behind the two headers. It blocks while the window is full; false: nobody listens any more.
func (b *outbox) put(s executor.Stream, buf []byte) bool {
	if b.kept != nil {
		return b.kept.output(streamIndex(s), buf[frameHeader+outputHeader:])
	}
	n := int64(len(buf) - frameHeader - outputHeader)
	st := &b.streams[streamIndex(s)]
	b.mu.Lock()
	for !b.closed && st.end+n-st.acked > outputWindow {
		b.cond.Wait()
	}
	if b.closed {
		b.mu.Unlock()
		return false
	}
	offset := st.end
	st.end += n
	b.mu.Unlock()
	b.sending.Lock()
	defer b.sending.Unlock()
	data := buf[frameHeader+outputHeader:]
	if len(b.held) > 0 && b.heldOf == s && len(b.held)+len(data) <= frameHeader+outputHeader+holdBytes {
		b.held = append(b.held, data...)
		return true
	}
	ok := true
	if len(b.held) > 0 || len(data) > holdBytes {
		ok = b.flush()
	}
	putOutputHeader(buf[frameHeader:], s, offset)
	if len(data) > holdBytes {
		return b.out.framed(frameOutput, buf) == nil && ok
	}
	b.held, b.heldOf = append(b.held[:0], buf...), s
	if len(b.front) == 0 { // else the clock runs
		b.arm()
	}
	return ok
}

// arm sees to it that what is held is sent. The caller holds sending.
func (b *outbox) arm() {
	if b.timer == nil {
		b.timer = time.AfterFunc(holdTime, b.expire)
	} else {
		b.timer.Reset(holdTime)
	}
}

// first sends a frame before all output. It is held as a small piece of output is: of a program that ends at once one message
// tells all.
func (b *outbox) first(t frameType, payload []byte) error {
	if b.kept != nil || b.out.marker != nil || len(payload) > maxPayload(t) {
		return b.out.raw(t, payload)
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	b.front = append(make([]byte, frameHeader, frameHeader+len(payload)), payload...)
	putHeader(b.front, t, len(payload))
	b.arm()
	return nil
}

// expire sends what has been held long enough. It may come late, when something else is held: that is then sent early.
func (b *outbox) expire() {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.flush()
}

// flush sends what is held; false: nobody listens any more. The caller holds sending.
func (b *outbox) flush() bool {
	frames := b.takeHeld()
	return len(frames) == 0 || b.out.frames(frames) == nil
}

// takeHeld returns the frames that are held. The caller holds sending, and is done with them before it gives that back.
func (b *outbox) takeHeld() []byte {
	frames := b.front
	b.front = nil
	if len(b.held) > 0 {
		putHeader(b.held, frameOutput, len(b.held)-frameHeader)
		if len(frames) == 0 {
			frames = b.held
		} else {
			frames = append(frames, b.held...)
		}
		b.held = b.held[:0]
	}
	if len(frames) > 0 {
		b.timer.Stop()
	}
	return frames
}

// last sends a frame that ends the Execution, together with what is held.
func (b *outbox) last(t frameType, payload []byte) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	if b.out.marker != nil || len(payload) > maxPayload(t) {
		b.flush() // if it fails, the next one does as well
		return b.out.raw(t, payload)
	}
	frames := b.takeHeld()
	if len(frames) == 0 {
		return b.out.raw(t, payload)
	}
	at := len(frames)
	frames = append(append(frames, make([]byte, frameHeader)...), payload...)
	putHeader(frames[at:], t, len(payload))
	return b.out.frames(frames)
}

// event sends a frame of type t in its place among the output. false: nobody listens any more. Who comes back gets again
// what was not acknowledged.
func (b *outbox) event(t frameType, payload []byte) bool {
	frame := append(make([]byte, frameHeader, frameHeader+len(payload)), payload...)
	if b.kept == nil {
		b.mu.Lock()
		for !b.closed && b.events.bytes > 0 && b.events.bytes+len(frame) > eventWindow {
			b.cond.Wait()
		}
		closed := b.closed
		b.events.add(len(frame))
		b.mu.Unlock()
		if closed {
			return false
		}
		b.sending.Lock()
		defer b.sending.Unlock()
		return b.flush() && b.out.framed(t, frame) == nil
	}
	putHeader(frame, t, len(payload))
	return b.kept.event(frame)
}

// ack forgets what the host has.
func (b *outbox) ack(a acked) {
	if b.kept != nil {
		b.kept.ack(a)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, upTo := range a.streams {
		st := &b.streams[i]
		st.acked = max(st.acked, min(upTo, st.end))
	}
	b.events.ack(a.events)
	b.cond.Broadcast()
}

// close lets put fail: the program's output goes nowhere from now on.
func (b *outbox) close() {
	if b.kept != nil {
		b.kept.close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cond.Broadcast()
}

// pump reads one of the program's pipes to its end.
type pump struct {
	stream executor.Stream
	pipe   *os.File
	box    *outbox
	limit  int64 // Unlimited = all
	done   chan struct{}
	// ended is called when the program has closed the pipe; nil: nobody wants to know.
	ended func()

	// Read these after done.
	total     int64
	truncated bool
}

// pumpBytes is what a pipe holds by default; more cannot come at once.
const pumpBytes = 64 << 10

var pumpBuffers = sync.Pool{New: func() any {
	b := make([]byte, frameHeader+outputHeader+pumpBytes)
	return &b
}}

func newPump(s executor.Stream, pipe *os.File, box *outbox, limit int64) *pump {
	return &pump{stream: s, pipe: pipe, box: box, limit: limit, done: make(chan struct{})}
}

func (p *pump) run() {
	defer close(p.done)
	defer p.pipe.Close()                  //nolint:errcheck // read only
	pooled := pumpBuffers.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer pumpBuffers.Put(pooled)
	buf := *pooled
	data := buf[frameHeader+outputHeader:]
	listening := true
	for {
		n, err := p.pipe.Read(data)
		p.take(buf, n, &listening)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.rest(buf, &listening)
			return
		}
		if err != nil {
			if p.ended != nil {
				p.ended()
			}
			return
		}
	}
}

func (p *pump) take(buf []byte, n int, listening *bool) {
	keep := int64(n)
	if p.limit != executor.Unlimited {
		keep = max(min(keep, p.limit-p.total), 0)
	}
	p.total += int64(n)
	p.truncated = p.truncated || keep < int64(n)
	if keep > 0 && *listening {
		*listening = p.box.put(p.stream, buf[:frameHeader+outputHeader+int(keep)])
	}
}

// rest takes what lies in the pipe without waiting for more: everything that could end the stream is dead, but someone
// else holds its other end. A pipe is bounded, so this is.
func (p *pump) rest(buf []byte, listening *bool) {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return
	}
	data := buf[frameHeader+outputHeader:]
	const most = 1 << 20 // the largest pipe an unprivileged program can make
	for got := 0; got < most; {
		n := 0
		err := raw.Control(func(fd uintptr) {
			n, _ = unix.Read(int(fd), data) //nolint:errcheck,gosec // 0 and -1 both mean: that was all
		})
		if err != nil || n <= 0 {
			return
		}
		p.take(buf, n, listening)
		got += n
	}
}

// drain waits for the end of the stream once nothing of the program is alive. It comes at once unless a stranger holds
// the pipe; then what is in it now is all.
func (p *pump) drain() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.pipe.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // a pipe always has deadlines
	<-p.done
}

// feed copies the host's stdin into the program's. A program that does not read it blocks nobody but this goroutine.
func feed(in *inbox, pipe *os.File) {
	_, err := io.Copy(struct{ io.Writer }{pipe}, struct{ io.Reader }{in})
	_ = pipe.Close() // the program sees EOF
	if err != nil {
		in.swallow()
	}
}
