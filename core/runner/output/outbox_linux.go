package output

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// Outbox sends output and holds the program back, as far as its Backlog says. Where hosts come and go, the Backlog's receiver
// sends instead.
type Outbox struct {
	Out     *protocol.Writer
	Backlog *Backlog

	// sending is held while a frame is sent, so that a stream's frames keep their order. It guards the fields below.
	sending sync.Mutex
	front   []byte // a whole frame that goes before all output; empty: none, or it went
	held    []byte // a frame of heldOf, whose header is not written yet; empty: none
	heldOf  executor.Stream
	timer   *time.Timer // sends what is held; nil until first needed
}

const (
	// holdTime is how long a small piece of output waits for more. Each event wakes every process on its way, which takes CPU
	// time from the program that is still writing. Users do not notice five milliseconds.
	holdTime = 5 * time.Millisecond
	// startTime is how long the message of a start waits for the output or the end of the program, and the first output with it.
	startTime = 20 * time.Millisecond
	// holdBytes is how much output waits. More is sent at once.
	holdBytes = 32 << 10
)

// NewOutbox returns an Outbox that sends by out. If wake is not nil, its Backlog keeps output instead, and wake is called when
// there is something to send.
func NewOutbox(out *protocol.Writer, wake func()) *Outbox {
	return &Outbox{Out: out, Backlog: NewBacklog(wake)}
}

// Put sends buf, whose data lies behind the two headers. It blocks while the window is full, and reports false when the Outbox
// is closed.
func (b *Outbox) Put(s executor.Stream, buf []byte) bool {
	data := buf[protocol.HeaderBytes+protocol.OutputHeaderBytes:]
	offset, ok := b.Backlog.output(protocol.StreamIndex(s), data)
	if !ok || b.Backlog.keeps() {
		return ok
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	if len(b.held) > 0 && b.heldOf == s && len(b.held)+len(data) <= protocol.HeaderBytes+protocol.OutputHeaderBytes+holdBytes {
		b.held = append(b.held, data...)
		return true
	}
	if len(b.held) > 0 || len(data) > holdBytes {
		ok = b.flush()
	}
	protocol.PutOutputHeader(buf[protocol.HeaderBytes:], s, offset)
	if len(data) > holdBytes {
		return b.Out.SendBuffer(protocol.FrameOutput, buf) == nil && ok
	}
	b.held, b.heldOf = append(b.held[:0], buf...), s
	if len(b.front) == 0 { // else the clock runs
		b.arm(holdTime)
	}
	return ok
}

// arm starts the timer that sends what is held. The caller holds sending.
func (b *Outbox) arm(wait time.Duration) {
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, b.Expire)
	} else {
		b.timer.Reset(wait)
	}
}

// First sends a frame before all output. The frame waits for startTime, so that a program that ends at once needs one message.
func (b *Outbox) First(t protocol.FrameType, payload []byte) error {
	if b.Backlog.keeps() || len(payload) > protocol.MaxPayload(t) {
		return b.Out.SendRaw(t, payload)
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	b.front = protocol.AppendFrame(nil, t, payload)
	b.arm(startTime)
	return nil
}

// Expire sends what is held. If the timer fires late, that may be something newer, which is then sent early.
func (b *Outbox) Expire() {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.flush()
}

// flush sends what is held. It reports whether the connection took it. The caller holds sending.
func (b *Outbox) flush() bool {
	frames := b.takeHeld()
	return len(frames) == 0 || b.Out.SendWhole(frames) == nil
}

// takeHeld returns the frames that are held. The caller holds sending until it has sent them.
func (b *Outbox) takeHeld() []byte {
	frames := b.front
	b.front = nil
	if len(b.held) > 0 {
		protocol.PutHeader(b.held, protocol.FrameOutput, len(b.held)-protocol.HeaderBytes)
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

// Last sends the frame that ends the Execution, together with what is held.
func (b *Outbox) Last(t protocol.FrameType, payload []byte) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	if len(payload) > protocol.MaxPayload(t) {
		b.flush() // if it fails, the next one does as well
		return b.Out.SendRaw(t, payload)
	}
	frames := b.takeHeld()
	if len(frames) == 0 {
		return b.Out.SendRaw(t, payload)
	}
	return b.Out.SendWhole(protocol.AppendFrame(frames, t, payload))
}

// Event sends a frame of type t in its place among the output. It reports false when the Outbox is closed. A host that resumes
// gets unacknowledged events again.
func (b *Outbox) Event(t protocol.FrameType, payload []byte) bool {
	frame := protocol.AppendFrame(nil, t, payload)
	if ok := b.Backlog.event(frame); !ok || b.Backlog.keeps() {
		return ok
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.flush() && b.Out.SendBuffer(t, frame) == nil
}

// Ack drops what the host has.
func (b *Outbox) Ack(a protocol.Acknowledged) { b.Backlog.ack(a) }

// Close makes Put return false: the program's output is dropped from then on.
func (b *Outbox) Close() { b.Backlog.close() }

// Tally counts what an Execution writes to one of its streams.
type Tally struct {
	Total     int64
	Truncated bool
	Limit     int64 // Unlimited = all
	deaf      bool  // the Outbox is closed
}

// Put gives box the n bytes of data in buf, which lie behind the two headers, as far as Limit allows.
func (t *Tally) Put(box *Outbox, s executor.Stream, buf []byte, n int) {
	keep := int64(n)
	if t.Limit != executor.Unlimited {
		keep = max(min(keep, t.Limit-t.Total), 0)
	}
	t.Total += int64(n)
	t.Truncated = t.Truncated || keep < int64(n)
	if keep > 0 && !t.deaf {
		t.deaf = !box.Put(s, buf[:protocol.HeaderBytes+protocol.OutputHeaderBytes+int(keep)])
	}
}

// source is the reading end of a pipe.
type source interface {
	io.ReadCloser
	syscall.Conn
	SetReadDeadline(at time.Time) error
}

// Pump reads one of the program's pipes to its end.
type Pump struct {
	stream executor.Stream
	pipe   source
	box    *Outbox
	done   chan struct{}
	// Before is sent ahead of what the pipe holds.
	Before string
	// Ended, if not nil, is called when the program has closed the pipe before Drain.
	Ended func()
	// Tally is valid once Drain has returned.
	Tally
}

// PumpBytes is what a pipe holds by default. One read cannot return more.
const PumpBytes = 64 << 10

// A program that has written more than PumpBytes is likely to write much more. Its pipe becomes larger, and is read in larger
// pieces: each piece costs every process on its way about the same.
const (
	// floodPipe is the size of such a pipe: the largest one that an unprivileged program can make.
	floodPipe = 1 << 20
	// floodBytes is what one read of it returns at most.
	floodBytes = executor.MaxOutputData
)

// The pauses between the reads of a flood, in which the program goes on writing into the pipe.
const (
	minFloodPause = time.Millisecond
	maxFloodPause = 16 * time.Millisecond
)

// floodPause returns the pause behind a read that has waited and returned n bytes. last is the pause before that read. Pauses grow
// while little comes, because on a busy machine more events would slow the program further. A program that lets its reader wait has
// no pauses.
func floodPause(last, waited time.Duration, n int) time.Duration {
	switch {
	case waited > holdTime || n >= floodBytes/2:
		return 0
	case n >= floodBytes/8:
		return minFloodPause
	default:
		return min(max(2*last, minFloodPause), maxFloodPause)
	}
}

func bufferPool(n int) *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, protocol.HeaderBytes+protocol.OutputHeaderBytes+n)
		return &b
	}}
}

var pumpBuffers, floodBuffers = bufferPool(PumpBytes), bufferPool(floodBytes)

func NewPump(s executor.Stream, pipe source, box *Outbox, limit int64) *Pump {
	return &Pump{stream: s, pipe: pipe, box: box, Tally: Tally{Limit: limit}, done: make(chan struct{})}
}

func (p *Pump) Run() {
	defer close(p.done)
	defer p.pipe.Close() //nolint:errcheck // read only
	if p.Before != "" {
		p.Put(p.box, p.stream, append(make([]byte, protocol.HeaderBytes+protocol.OutputHeaderBytes), p.Before...), len(p.Before))
	}
	err := p.read(pumpBuffers, func(int) bool { return p.Total <= PumpBytes })
	if err == nil && p.enlarge() {
		var pause time.Duration
		asked := time.Now()
		err = p.read(floodBuffers, func(n int) bool {
			pause = floodPause(pause, time.Since(asked), n)
			time.Sleep(pause)
			asked = time.Now()
			return true
		})
	} else if err == nil {
		err = p.read(pumpBuffers, func(int) bool { return true })
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) && p.Ended != nil {
		p.Ended()
	}
}

// read reads the pipe as long as more allows. more gets the size of what was read last. read returns why the pipe has ended.
func (p *Pump) read(buffers *sync.Pool, more func(n int) bool) error {
	pooled := buffers.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer buffers.Put(pooled)
	buf := *pooled
	for {
		n, err := p.pipe.Read(buf[protocol.HeaderBytes+protocol.OutputHeaderBytes:])
		p.Put(p.box, p.stream, buf, n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.rest(buf)
		}
		if err != nil || !more(n) {
			return err
		}
	}
}

// enlarge makes the pipe larger, and reports whether it could.
func (p *Pump) enlarge() bool {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return false
	}
	controlErr := raw.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, floodPipe) })
	return controlErr == nil && err == nil
}

// rest reads what is in the pipe now. All processes of the program are dead, but another process may hold the other end, and write for
// ever.
func (p *Pump) rest(buf []byte) {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return
	}
	data := buf[protocol.HeaderBytes+protocol.OutputHeaderBytes:]
	left := 0
	err = raw.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // 0 after an error
	for err == nil && left > 0 {
		n := 0
		controlErr := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), data[:min(left, len(data))]) })
		if controlErr != nil || n <= 0 {
			return
		}
		p.Put(p.box, p.stream, buf, n)
		left -= n
	}
}

// Drain takes what is left in the pipe, and ends Run. No process of the program is alive, so nothing of the program is still to come. Drain
// does not wait for the end of the stream, because another process may hold the pipe.
func (p *Pump) Drain() {
	_ = p.pipe.SetReadDeadline(time.Unix(1, 0)) // closed after the end
	<-p.done
}

// Feed copies in to the program's standard input. A program that does not read it blocks only this goroutine.
func Feed(in *protocol.Inbox, pipe *os.File) {
	_, err := io.Copy(struct{ io.Writer }{pipe}, struct{ io.Reader }{in})
	_ = pipe.Close() // the program sees EOF
	if err != nil {
		in.Swallow()
	}
}
