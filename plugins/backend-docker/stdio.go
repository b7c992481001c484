package dockerbackend

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/python-executor/python-executor/core/runner"
)

// stdio combines a container's standard input and output into one connection. The daemon multiplexes output and errors: each
// piece has a header of 8 bytes (stream, 3 zeros, length). What the runner writes to its standard error is logged.
type stdio struct {
	conn net.Conn
	in   *bufio.Reader
	// out receives written bytes: conn or direct.
	out    io.Writer
	direct *os.File // the container's standard input, without the daemon; nil: not available
	inside inside
	log    *slog.Logger
	// Only Read's goroutine uses left and said. left is the number of unread bytes of the present piece, said the last message
	// on standard error.
	left int
	said string
}

// notePrefix begins what a runner writes that asks nobody to act (sandbox.NotePrefix).
const notePrefix = "runner: note: "

// The daemon's streams.
const (
	streamStdout = 1
	streamStderr = 2
)

// maxLogged bounds the logged bytes of one piece.
const maxLogged = 4 << 10

var errMultiplex = errors.New("the daemon's stream is broken")

// inside opens a pipe of a container's first process. A nil inside means that this is not possible.
type inside func(fd int) (*os.File, error)

// newStdio returns the stdio of an attached connection. Without inside, all input goes through the daemon.
func newStdio(conn net.Conn, in *bufio.Reader, inside inside, log *slog.Logger) *stdio {
	if u, ok := conn.(*net.UnixConn); ok {
		// A chunk of a Workspace should fit at once. A smaller buffer only costs speed.
		_ = u.SetWriteBuffer(1 << 20)
		_ = u.SetReadBuffer(1 << 20)
	}
	s := &stdio{conn: conn, in: in, out: conn, inside: inside, log: log}
	if direct, err := s.OpenDescriptor(0); err == nil {
		s.out, s.direct = direct, direct
	} else if inside != nil {
		log.Debug("a container's input goes through the daemon", "error", err)
	}
	return s
}

var _ runner.DescriptorOpener = (*stdio)(nil)

// OpenDescriptor implements runner.DescriptorOpener.
func (s *stdio) OpenDescriptor(fd int) (*os.File, error) {
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

// next reads a header, and a whole piece of standard error.
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
		level := slog.LevelWarn
		if strings.HasPrefix(string(text), notePrefix) {
			level = slog.LevelDebug
		}
		s.log.Log(context.Background(), level, "output of the runner", "text", string(text))
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
		_ = s.direct.Close() // the container's own end stays open
	}
	return s.conn.Close()
}
