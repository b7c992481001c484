package dockerbackend

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/python-executor/python-executor/core/runner"
)

// stdio is a container's standard input and output as one connection. The daemon multiplexes output and errors: a header
// of 8 bytes (stream, 3 zeros, length) before each piece. What the runner writes to its standard error is logged.
type stdio struct {
	conn net.Conn
	in   *bufio.Reader
	// out takes what is written: conn, or direct.
	out    io.Writer
	direct *os.File // nil: none
	inside inside
	log    *slog.Logger
	// Of Read's goroutine: what is left of the piece at hand, and the end of what the runner wrote to its standard error.
	left int
	said string
}

// The daemon's streams.
const (
	streamStdout = 1
	streamStderr = 2
)

// maxLogged bounds what is logged of one piece.
const maxLogged = 4 << 10

var errMultiplex = errors.New("the daemon's stream is broken")

// inside opens a pipe of a container's first process; nil: that cannot be done here.
type inside func(fd int) (*os.File, error)

// newStdio makes one of an attached connection. Without inside what is written goes through the daemon.
func newStdio(conn net.Conn, in *bufio.Reader, inside inside, log *slog.Logger) *stdio {
	if u, ok := conn.(*net.UnixConn); ok {
		// So that a chunk of a Workspace fits at once. What the kernel does not give costs only speed.
		_ = u.SetWriteBuffer(1 << 20)
		_ = u.SetReadBuffer(1 << 20)
	}
	s := &stdio{conn: conn, in: in, out: conn, inside: inside, log: log}
	if direct, err := s.OpenDoor(0); err == nil {
		s.out, s.direct = direct, direct
	} else if inside != nil {
		log.Debug("a container's input goes through the daemon", "error", err)
	}
	return s
}

var _ runner.DoorOpener = (*stdio)(nil)

// OpenDoor implements runner.DoorOpener.
func (s *stdio) OpenDoor(fd int) (*os.File, error) {
	if s.inside == nil {
		return nil, errors.ErrUnsupported
	}
	return s.inside(fd)
}

// Read implements io.Reader.
func (s *stdio) Read(p []byte) (int, error) {
	for s.left == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n, err := s.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	if errors.Is(err, io.EOF) && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next reads a header, and the whole of what is for the log.
func (s *stdio) next() error {
	var header [8]byte
	if _, err := io.ReadFull(s.in, header[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(header[4:]))
	switch header[0] {
	case streamStdout:
		s.left = n
		return nil
	case streamStderr:
		text := make([]byte, min(n, maxLogged))
		if _, err := io.ReadFull(s.in, text); err != nil {
			return err
		}
		s.log.Warn("the runner says", "text", string(text))
		s.said = string(text)
		_, err := io.CopyN(io.Discard, s.in, int64(n-len(text)))
		return err
	}
	return fmt.Errorf("%w: stream %d", errMultiplex, header[0])
}

// Write implements io.Writer.
func (s *stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// Close implements io.Closer.
func (s *stdio) Close() error {
	if s.direct != nil {
		_ = s.direct.Close() // the container keeps its end
	}
	return s.conn.Close()
}
