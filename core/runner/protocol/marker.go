package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// MarkerBytes is the length of a marker and of a nonce.
const MarkerBytes = 16

// Marker returns what a host sends in front of a Hello that resumes. The runner looks for it in all that it reads, so it finds
// the Hello also when the host before was cut off within a frame. No Workspace can contain it, because only hosts know the
// epoch.
func Marker(epoch uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("\xffresume\x00"), epoch)
}

// endsLikeMarker returns how many of the last bytes of p are the first bytes of m. It does not count a whole m.
func endsLikeMarker(p, m []byte) int {
	for n := min(len(p), len(m)-1); n > 0; n-- {
		if tail := p[len(p)-n:]; tail[0] == m[0] && bytes.HasPrefix(m, tail) {
			return n
		}
	}
	return 0
}

// ErrMarker means that the marker came. A new host sends what follows.
var ErrMarker = errors.New("another host")

// MarkerReader reads src. With a Marker, Read returns no byte of a marker, and holds back bytes that may begin one. In the place
// of a marker it returns ErrMarker, once, and goes on behind it.
type MarkerReader struct {
	Src    io.Reader
	Marker []byte // nil: none is looked for
	buf    []byte
	// buf[at:filled] was read from src, and Read may return buf[at:safe]. If found, a marker begins at safe.
	at, safe, filled int
	found            bool
	err              error
}

// Read implements io.Reader.
func (m *MarkerReader) Read(p []byte) (int, error) {
	if m.Marker == nil {
		return m.Src.Read(p)
	}
	for {
		if m.safe > m.at {
			n := copy(p, m.buf[m.at:m.safe])
			m.at += n
			return n, nil
		}
		if m.found {
			m.at += MarkerBytes
			m.scan()
			return 0, ErrMarker
		}
		if m.err != nil {
			return 0, m.err
		}
		m.fill()
	}
}

func (m *MarkerReader) fill() {
	if m.buf == nil {
		m.buf = make([]byte, 64<<10)
	}
	m.filled = copy(m.buf, m.buf[m.at:m.filled]) // less than a marker
	m.at = 0
	n, err := m.Src.Read(m.buf[m.filled:])
	m.filled += n
	m.err = err
	m.scan()
}

// scan looks for a marker in buf[at:filled].
func (m *MarkerReader) scan() {
	p := m.buf[m.at:m.filled]
	i := bytes.Index(p, m.Marker)
	if m.found = i >= 0; !m.found {
		i = len(p) - endsLikeMarker(p, m.Marker)
	}
	m.safe = m.at + i
}
