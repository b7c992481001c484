package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// Version is the protocol's version. Both ends refuse any other.
const Version = 1

// The frame types. A receiver ignores none of them. An unknown type ends the connection, because both ends have the same Version.
const (
	// Host to runner.
	FrameHello        FrameType = 1
	FrameStart        FrameType = 2
	FrameWorkspace    FrameType = 3
	FrameWorkspaceEnd FrameType = 4
	FrameStdin        FrameType = 5
	FrameStdinEnd     FrameType = 6
	FrameCancel       FrameType = 7
	FrameAck          FrameType = 9
	FramePing         FrameType = 10
	FrameFile         FrameType = 11
	FrameBye          FrameType = 12
	// Host to runner, about a session: 20 to 39.
	FrameSession     FrameType = 20
	FrameSessionData FrameType = 21
	FrameSessionEnd  FrameType = 22
	// Runner to host.
	FrameHelloReply   FrameType = 64
	FrameProgress     FrameType = 65
	FrameStarted      FrameType = 66
	FrameOutput       FrameType = 67
	FrameArtifact     FrameType = 68
	FrameArtifactData FrameType = 69
	FrameArtifactEnd  FrameType = 70
	FrameExited       FrameType = 72
	// Runner to host, about a session: 80 to 95.
	FrameSessionReply FrameType = 80
	FrameSessionFile  FrameType = 81
	FrameDisplay      FrameType = 83
	FrameLost         FrameType = 76
	// Both ways.
	FrameSessionCredit FrameType = 40
	FrameCredit        FrameType = 96
)

// The windows are how many bytes of a channel may be on their way and not consumed yet. Version fixes them, so both ends start
// an Execution with them.
const (
	WorkspaceWindow = 4 << 20
	StdinWindow     = 256 << 10
	ArtifactWindow  = 1 << 20
	OutputWindow    = 1 << 20
)

const (
	// HeaderBytes is the size of a frame's header: the payload's length, big-endian, and the type.
	HeaderBytes = 5
	// OutputHeaderBytes is the size of what precedes the data of an Output: a stream and a big-endian offset.
	OutputHeaderBytes = 9
	// ChunkBytes is how much data one Workspace, Stdin or ArtifactData frame can carry.
	ChunkBytes = 256 << 10
	// MaxStart bounds a Start frame, which carries the user's code.
	MaxStart = 16 << 20
	// MaxControl bounds every other JSON frame.
	MaxControl = 4 << 20
)

// FrameType says what a frame is.
type FrameType uint8

// MaxPayload returns how long the payload of a frame of type t may be. It returns -1 for an unknown type.
func MaxPayload(t FrameType) int {
	switch t {
	case FrameStart, FrameSession:
		return MaxStart
	case FrameHello, FrameHelloReply, FrameProgress, FrameStarted, FrameArtifact, FrameExited,
		FrameSessionReply, FrameDisplay:
		return MaxControl
	case FrameWorkspace, FrameStdin, FrameArtifactData:
		return ChunkBytes
	case FrameOutput:
		return OutputHeaderBytes + executor.MaxOutputData
	case FrameSessionData, FrameSessionFile:
		return CallHeaderBytes + ChunkBytes
	case FrameSessionCredit:
		return CallHeaderBytes + 4
	case FrameSessionEnd:
		return CallHeaderBytes + 1
	case FrameAck:
		return ackBytes
	case FrameCredit:
		return 5
	case FrameWorkspaceEnd, FrameStdinEnd, FrameCancel, FramePing, FrameFile, FrameBye, FrameArtifactEnd, FrameLost:
		return 0
	default:
		return -1
	}
}

// ErrNotPassed means that a descriptor was not sent, and that the Writer works on.
var ErrNotPassed = errors.New("the descriptor cannot be passed on")

// ErrFrame marks what a peer cannot send if it keeps the protocol.
var ErrFrame = errors.New("broken runner protocol")

// Reader reads frames. It allocates at most what MaxPayload allows, and only for bytes that have arrived.
type Reader struct {
	r       *bufio.Reader
	scratch []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10)}
}

// Header reads the type and the payload's length of the next frame. It returns io.EOF only between two frames.
func (f *Reader) Header() (FrameType, int, error) {
	var h [HeaderBytes]byte
	if _, err := io.ReadFull(f.r, h[:]); err != nil {
		return 0, 0, err
	}
	t := FrameType(h[4])
	n := binary.BigEndian.Uint32(h[:4])
	limit := MaxPayload(t)
	if limit < 0 {
		return 0, 0, fmt.Errorf("%w: unknown frame type %d", ErrFrame, t)
	}
	if int64(n) > int64(limit) {
		return 0, 0, fmt.Errorf("%w: frame type %d of %d bytes, at most %d", ErrFrame, t, n, limit)
	}
	return t, int(n), nil
}

// Skip drops all that follows, until the stream fails.
func (f *Reader) Skip() error {
	for {
		if _, err := f.r.Discard(max(f.r.Buffered(), 1)); err != nil {
			return err
		}
	}
}

// Seek drops everything up to and including mark.
func (f *Reader) Seek(mark []byte) error {
	for {
		if _, err := f.r.Peek(len(mark)); err != nil {
			return err
		}
		p, _ := f.r.Peek(f.r.Buffered()) // cannot fail: it is there
		if at := bytes.Index(p, mark); at >= 0 {
			_, err := f.r.Discard(at + len(mark))
			return err
		}
		if _, err := f.r.Discard(len(p) - len(mark) + 1); err != nil {
			return err
		}
	}
}

// Into reads a payload of len(p) bytes.
func (f *Reader) Into(p []byte) error {
	if _, err := io.ReadFull(f.r, p); err != nil {
		return unexpected(err)
	}
	return nil
}

// Payload reads n bytes. The slice is valid until the next call.
func (f *Reader) Payload(n int) ([]byte, error) {
	const step = 64 << 10
	if cap(f.scratch) > step && n <= step {
		f.scratch = nil // one long Start must not be kept for a resident runner's life
	}
	buf := f.scratch[:0]
	for len(buf) < n {
		m := min(n-len(buf), step)
		if cap(buf)-len(buf) < m {
			grown := make([]byte, len(buf), min(n, 2*cap(buf)+m))
			copy(grown, buf)
			buf = grown
		}
		m = min(n-len(buf), cap(buf)-len(buf))
		if err := f.Into(buf[len(buf) : len(buf)+m]); err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+m]
	}
	f.scratch = buf
	return buf, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Writer writes frames whole, from any goroutine. After an error every write fails with it.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
	err error
	// marker is what the receiver looks for in all that it reads. It is nil if the receiver looks for none.
	marker []byte
	// OnError, if not nil, is called with the error of the first write that fails, before that write returns. It must not use the
	// Writer. A reader of the same connection may never see that error, so the owner of the connection must end it.
	OnError func(error)
	// relay takes the frames instead of w. It is nil if they are written to w.
	relay Relay
	// Generation is the generation of the host that the frames are for. See Relay.
	Generation uint64
}

// Relay sends frames in a goroutine of its own. Hosts come and go; each has a generation of its own.
type Relay interface {
	// Send takes a whole frame and keeps it. It fails when another host has come since generation.
	Send(generation uint64, t FrameType, frame []byte) error
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// NewRelayWriter returns a Writer that gives its frames to r, for the host of that generation.
func NewRelayWriter(r Relay, generation uint64) *Writer {
	return &Writer{relay: r, Generation: generation}
}

// Protect is called if the receiver looks for marker. The receiver holds back bytes that may begin a marker, so f sends a Ping
// behind a frame that ends with such bytes.
func (f *Writer) Protect(marker []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marker = marker
}

// SendBuffer sends a frame. The payload is in buf, behind HeaderBytes free bytes.
func (f *Writer) SendBuffer(t FrameType, buf []byte) error {
	if f.relay != nil {
		return f.pass(t, bytes.Clone(buf)) // the caller may use it again
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.send(t, buf)
}

func (f *Writer) send(t FrameType, buf []byte) error {
	PutHeader(buf, t, len(buf)-HeaderBytes)
	return f.write(buf)
}

// write writes whole frames. The caller holds the lock.
func (f *Writer) write(buf []byte) error {
	if f.err != nil {
		return f.err
	}
	_, err := f.w.Write(buf)
	if err == nil && f.marker != nil && endsLikeMarker(buf, f.marker) > 0 {
		_, err = f.w.Write([]byte{HeaderBytes - 1: byte(FramePing)})
	}
	return f.broke(err)
}

// broke keeps the error of a write, if it is one, and returns it. The caller holds the lock.
func (f *Writer) broke(err error) error {
	if f.err = err; err != nil && f.OnError != nil {
		f.OnError(err)
	}
	return err
}

func (f *Writer) pass(t FrameType, frame []byte) error {
	PutHeader(frame, t, len(frame)-HeaderBytes)
	return f.relay.Send(f.Generation, t, frame)
}

// PutHeader writes the header of a frame with n bytes of payload into p.
func PutHeader(p []byte, t FrameType, n int) {
	binary.BigEndian.PutUint32(p, uint32(n)) //nolint:gosec // at most maxStart
	p[4] = byte(t)
}

// AppendFrame appends a whole frame to buf.
func AppendFrame(buf []byte, t FrameType, payload []byte) []byte {
	at := len(buf)
	buf = append(slices.Grow(buf, HeaderBytes+len(payload)), make([]byte, HeaderBytes)...)
	PutHeader(buf[at:], t, len(payload))
	return append(buf, payload...)
}

// AppendJSON appends a whole frame with v as its payload to buf.
func AppendJSON(buf []byte, t FrameType, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	return AppendFrame(buf, t, raw), err
}

// SendWhole sends whole frames in one write. f has no relay and no marker.
func (f *Writer) SendWhole(whole []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(whole)
}

// Send sends a frame with a small payload.
func (f *Writer) Send(t FrameType, payload ...byte) error {
	if f.relay != nil {
		return f.pass(t, append(make([]byte, HeaderBytes, HeaderBytes+len(payload)), payload...))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(append(f.buf[:0], make([]byte, HeaderBytes)...), payload...)
	return f.send(t, f.buf)
}

// SendIf sends a frame with a small payload if wanted returns true. No other frame is written between the call of wanted and
// this frame. f has no relay.
func (f *Writer) SendIf(wanted func() bool, t FrameType, payload ...byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !wanted() {
		return nil
	}
	f.buf = append(append(f.buf[:0], make([]byte, HeaderBytes)...), payload...)
	return f.send(t, f.buf)
}

// Stop makes every write fail with err from now on.
func (f *Writer) Stop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// SendJSON sends a frame with v as its payload.
func (f *Writer) SendJSON(t FrameType, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.SendRaw(t, raw)
}

// SendRaw sends a frame with a long payload.
func (f *Writer) SendRaw(t FrameType, raw []byte) error {
	if len(raw) > MaxPayload(t) {
		return fmt.Errorf("frame type %d of %d bytes, at most %d", t, len(raw), MaxPayload(t))
	}
	return f.SendBuffer(t, append(make([]byte, HeaderBytes, HeaderBytes+len(raw)), raw...))
}

// ReadJSON reads n bytes of payload into v.
func ReadJSON(frames *Reader, n int, v any) error {
	raw, err := frames.Payload(n)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}
