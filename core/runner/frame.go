package runner

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// Version is the protocol's version. Both sides refuse any other.
const Version = 1

// The frame types. A receiver ignores none: an unknown type ends the connection, because Version is equal on both sides.
const (
	// Host to runner.
	frameHello        frameType = 1
	frameStart        frameType = 2
	frameWorkspace    frameType = 3
	frameWorkspaceEnd frameType = 4
	frameStdin        frameType = 5
	frameStdinEnd     frameType = 6
	frameCancel       frameType = 7
	frameSignal       frameType = 8
	frameAck          frameType = 9
	framePing         frameType = 10
	frameFile         frameType = 11
	frameBye          frameType = 12
	// Host to runner, about a session: 20 to 39.
	frameSession     frameType = 20
	frameSessionData frameType = 21
	frameSessionEnd  frameType = 22
	// Runner to host.
	frameHelloReply   frameType = 64
	frameProgress     frameType = 65
	frameStarted      frameType = 66
	frameOutput       frameType = 67
	frameArtifact     frameType = 68
	frameArtifactData frameType = 69
	frameArtifactEnd  frameType = 70
	frameExited       frameType = 72
	// Runner to host, about a session: 80 to 95.
	frameSessionReply frameType = 80
	frameSessionFile  frameType = 81
	frameDisplay      frameType = 83
	frameLost         frameType = 76
	// Both ways.
	frameSessionCredit frameType = 40
	frameCredit        frameType = 96
)

// The windows: how many bytes of a channel may be on their way without having been consumed. They are fixed by Version,
// so both sides start an Execution with them and need not be told.
const (
	workspaceWindow = 4 << 20
	stdinWindow     = 256 << 10
	artifactWindow  = 1 << 20
	outputWindow    = 1 << 20
)

const (
	// frameHeader is a big-endian length of the payload and a type.
	frameHeader = 5
	// outputHeader is a stream and a big-endian offset, in front of an Output's data.
	outputHeader = 9
	// chunkBytes is the most data that one Workspace, Stdin or Artifact frame carries.
	chunkBytes = 256 << 10
	// maxStart bounds a Start frame, whose Code is as long as a user likes.
	maxStart = 16 << 20
	// maxControl bounds every other JSON frame.
	maxControl = 4 << 20
)

type frameType uint8

// maxPayload returns how long a frame of type t may be; -1 for a type that does not exist.
func maxPayload(t frameType) int {
	switch t {
	case frameStart, frameSession:
		return maxStart
	case frameHello, frameHelloReply, frameProgress, frameStarted, frameArtifact, frameExited,
		frameSessionReply, frameDisplay:
		return maxControl
	case frameWorkspace, frameStdin, frameArtifactData:
		return chunkBytes
	case frameOutput:
		return outputHeader + executor.MaxOutputData
	case frameSessionData, frameSessionFile:
		return callHeader + chunkBytes
	case frameSessionCredit:
		return callHeader + 4
	case frameSessionEnd:
		return callHeader + 1
	case frameAck:
		return ackBytes
	case frameCredit, frameSignal:
		return 5
	case frameWorkspaceEnd, frameStdinEnd, frameCancel, framePing, frameFile, frameBye, frameArtifactEnd, frameLost:
		return 0
	default:
		return -1
	}
}

// errFrame marks everything that a peer which keeps the protocol cannot send.
var errFrame = errors.New("broken runner protocol")

// frameReader reads frames. It believes no length: what it allocates is bounded by maxPayload and by what has arrived.
type frameReader struct {
	r       *bufio.Reader
	scratch []byte
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// header reads the next frame's type and payload length. io.EOF only between two frames.
func (f *frameReader) header() (frameType, int, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(f.r, h[:]); err != nil {
		return 0, 0, err
	}
	t := frameType(h[4])
	n := binary.BigEndian.Uint32(h[:4])
	limit := maxPayload(t)
	if limit < 0 {
		return 0, 0, fmt.Errorf("%w: unknown frame type %d", errFrame, t)
	}
	if int64(n) > int64(limit) {
		return 0, 0, fmt.Errorf("%w: frame type %d of %d bytes, at most %d", errFrame, t, n, limit)
	}
	return t, int(n), nil
}

// skip drops everything until an error.
func (f *frameReader) skip() error {
	for {
		if _, err := f.r.Discard(max(f.r.Buffered(), 1)); err != nil {
			return err
		}
	}
}

// seek drops everything up to and including mark.
func (f *frameReader) seek(mark []byte) error {
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

// into reads a payload of len(p) bytes.
func (f *frameReader) into(p []byte) error {
	if _, err := io.ReadFull(f.r, p); err != nil {
		return unexpected(err)
	}
	return nil
}

// payload reads n bytes; the slice is valid until the next call.
func (f *frameReader) payload(n int) ([]byte, error) {
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
		if err := f.into(buf[len(buf) : len(buf)+m]); err != nil {
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

// frameWriter writes frames whole, from any goroutine. After an error every write fails with it.
type frameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
	err error
	// marker is what the receiver looks for in all that it reads; nil: it looks for nothing.
	marker []byte
	// relay takes the frames in place of w; nil: they are written.
	relay relay
	// generation is that of the host whom the frames are for.
	generation uint64
}

// relay sends frames by and by.
type relay interface {
	// send takes a whole frame, which is the relay's from now on.
	send(generation uint64, t frameType, frame []byte) error
	// wake tells that a kept has something to send.
	wake()
}

// protect makes f speak to a receiver that looks for marker. It holds back what may be the beginning of one, so a frame
// that ends like that is followed by a Ping.
func (f *frameWriter) protect(marker []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marker = marker
}

// framed sends a frame whose payload is already in buf behind frameHeader free bytes.
func (f *frameWriter) framed(t frameType, buf []byte) error {
	if f.relay != nil {
		return f.pass(t, bytes.Clone(buf)) // the caller may use it again
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.send(t, buf)
}

func (f *frameWriter) send(t frameType, buf []byte) error {
	putHeader(buf, t, len(buf)-frameHeader)
	return f.write(buf)
}

// write writes whole frames. The caller holds the lock.
func (f *frameWriter) write(buf []byte) error {
	if f.err != nil {
		return f.err
	}
	_, f.err = f.w.Write(buf)
	if f.err == nil && f.marker != nil && endsLikeMarker(buf, f.marker) > 0 {
		_, f.err = f.w.Write([]byte{frameHeader - 1: byte(framePing)})
	}
	return f.err
}

func (f *frameWriter) pass(t frameType, frame []byte) error {
	putHeader(frame, t, len(frame)-frameHeader)
	return f.relay.send(f.generation, t, frame)
}

func putHeader(p []byte, t frameType, n int) {
	binary.BigEndian.PutUint32(p, uint32(n)) //nolint:gosec // at most maxStart
	p[4] = byte(t)
}

// frames sends whole frames in one write. There is no relay; and with a marker it is one frame.
func (f *frameWriter) frames(whole []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(whole)
}

// frame sends a frame with a small payload.
func (f *frameWriter) frame(t frameType, payload ...byte) error {
	if f.relay != nil {
		return f.pass(t, append(make([]byte, frameHeader, frameHeader+len(payload)), payload...))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(append(f.buf[:0], make([]byte, frameHeader)...), payload...)
	return f.send(t, f.buf)
}

// frameIf sends a frame with a small payload if wanted reports true. It asks while it holds the lock: no other frame is
// written between the answer and this one. There is no relay.
func (f *frameWriter) frameIf(wanted func() bool, t frameType, payload ...byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !wanted() {
		return nil
	}
	f.buf = append(append(f.buf[:0], make([]byte, frameHeader)...), payload...)
	return f.send(t, f.buf)
}

// stop makes every write fail with err from now on.
func (f *frameWriter) stop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// json sends a frame whose payload is v.
func (f *frameWriter) json(t frameType, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.raw(t, raw)
}

// raw sends a frame whose payload is long.
func (f *frameWriter) raw(t frameType, raw []byte) error {
	if len(raw) > maxPayload(t) {
		return fmt.Errorf("frame type %d of %d bytes, at most %d", t, len(raw), maxPayload(t))
	}
	return f.framed(t, append(make([]byte, frameHeader, frameHeader+len(raw)), raw...))
}
