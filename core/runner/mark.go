package runner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// markerBytes is the length of a marker and of a nonce.
const markerBytes = 16

// marker is what a host sends before the hello of a resume. The runner looks for it in all that it reads, so it finds the
// hello also when the host before was cut off within a frame. Nobody can hide one in a Workspace: nobody else knows the
// epoch.
func marker(epoch uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("\xffresume\x00"), epoch)
}

// endsLikeMarker returns how many of p's last bytes could be the first ones of m, but not all of m.
func endsLikeMarker(p, m []byte) int {
	for n := min(len(p), len(m)-1); n > 0; n-- {
		if tail := p[len(p)-n:]; tail[0] == m[0] && bytes.HasPrefix(m, tail) {
			return n
		}
	}
	return 0
}

// errMarker: the marker came. What follows is a new host's.
var errMarker = errors.New("another host")

// markReader passes on what src gives. Once it has a marker it never passes on any of it, and no bytes that may turn out
// to be the beginning of one; where one was, Read returns errMarker, once, and goes on behind it.
type markReader struct {
	src    io.Reader
	marker []byte // nil: looked for by nobody
	buf    []byte
	// buf[at:safe] may be passed on, buf[at:filled] was read. A marker begins at safe if found.
	at, safe, filled int
	found            bool
	err              error
}

// Read implements io.Reader.
func (m *markReader) Read(p []byte) (int, error) {
	if m.marker == nil {
		return m.src.Read(p)
	}
	for {
		if m.safe > m.at {
			n := copy(p, m.buf[m.at:m.safe])
			m.at += n
			return n, nil
		}
		if m.found {
			m.at += markerBytes
			m.scan()
			return 0, errMarker
		}
		if m.err != nil {
			return 0, m.err
		}
		m.fill()
	}
}

func (m *markReader) fill() {
	if m.buf == nil {
		m.buf = make([]byte, 64<<10)
	}
	m.filled = copy(m.buf, m.buf[m.at:m.filled]) // less than a marker
	m.at = 0
	n, err := m.src.Read(m.buf[m.filled:])
	m.filled += n
	m.err = err
	m.scan()
}

// scan decides about buf[at:filled].
func (m *markReader) scan() {
	p := m.buf[m.at:m.filled]
	i := bytes.Index(p, m.marker)
	if m.found = i >= 0; !m.found {
		i = len(p) - endsLikeMarker(p, m.marker)
	}
	m.safe = m.at + i
}
