package httpfrontend

import (
	"bytes"
	"io"
	"mime/multipart"
	"mime/quotedprintable"
	"strings"
)

const (
	// scanBytes is how much a scanner reads at once for mime/multipart.
	scanBytes = 64 << 10
	// bulkBytes is the minimum size of a Read that bypasses mime/multipart.
	bulkBytes = 4 << 10
)

// scanner is the reader between a body and its multipart.Reader. mime/multipart returns at most 4 KiB of a part at a time, which
// makes a large tar slow. Therefore bytes that cannot belong to a boundary bypass mime/multipart. All other bytes, and all
// headers, go through mime/multipart, which alone finds the ends of parts.
type scanner struct {
	r io.Reader
	// mark finds the text that every boundary except the first one contains.
	mark finder
	// held has the bytes that were read but not passed on. It is a part of store.
	held, store []byte
	err         error
	// pending is the number of bytes of the part that mime/multipart has read but not returned.
	pending int64
	// minBulk is bulkBytes, except in tests.
	minBulk int
}

func newScanner(r io.Reader, boundary string, size int) *scanner {
	return &scanner{r: r, mark: finder{text: []byte("\n--" + boundary)}, store: make([]byte, min(size, scanBytes)), minBulk: bulkBytes}
}

// next returns the next part of m, which reads s. It is multipart.Reader's NextPart.
func (s *scanner) next(m *multipart.Reader) (*bulkPart, error) {
	part, err := m.NextRawPart()
	if err != nil {
		return nil, err
	}
	s.pending = 0 // the last line that m has read is the empty one that ends the headers
	p := &bulkPart{Part: part, scan: s}
	const encoding = "Content-Transfer-Encoding"
	if strings.EqualFold(part.Header.Get(encoding), "quoted-printable") {
		part.Header.Del(encoding)
		p.decoded = quotedprintable.NewReader(part)
	}
	return p, nil
}

// Read implements io.Reader for the multipart.Reader. It returns at most one line at a time, so that the multipart.Reader never
// buffers bytes after a part's headers.
func (s *scanner) Read(p []byte) (int, error) {
	if len(s.held) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		var n int
		n, s.err = s.r.Read(s.store)
		s.held = s.store[:n]
		if n == 0 {
			return 0, s.err
		}
	}
	give := s.held
	if i := bytes.IndexByte(give, '\n'); i >= 0 {
		give = give[:i+1]
	}
	n := copy(p, give)
	s.held = s.held[n:]
	s.pending += int64(n)
	return n, nil
}

// bulk reads bytes that certainly belong to the part. It returns 0 if mime/multipart must read the next bytes.
func (s *scanner) bulk(p []byte) int {
	if len(s.held) > len(s.mark.text) || s.err != nil {
		n := copy(p, s.held[:s.certain(s.held)])
		s.held = s.held[n:]
		return n
	}
	n := copy(p, s.held)
	s.held = nil
	var more int
	more, s.err = s.r.Read(p[n:])
	got := p[:n+more]
	n = s.certain(got)
	if rest := got[n:]; len(rest) > 0 {
		if len(rest) > len(s.store) {
			s.store = make([]byte, len(p))
		}
		s.held = s.store[:copy(s.store, rest)]
	}
	return n
}

// certain returns the number of bytes at the beginning of b that cannot belong to a boundary.
func (s *scanner) certain(b []byte) int {
	i := s.mark.index(b)
	if i < 0 {
		return max(0, len(b)-len(s.mark.text)) // a boundary that begins before these bytes would have its mark in b
	}
	if i > 0 && b[i-1] == '\r' {
		i--
	}
	return i
}

// bulkPart is a part whose bytes bypass mime/multipart where possible.
type bulkPart struct {
	*multipart.Part
	scan *scanner
	// decoded decodes the content if it has an encoding, else nil.
	decoded io.Reader
	// begun reports whether bytes of the part were read. Before them, a boundary needs no line break before it.
	begun bool
}

// Read implements io.Reader.
func (b *bulkPart) Read(p []byte) (int, error) {
	if b.decoded != nil {
		return b.decoded.Read(p)
	}
	if b.begun && b.scan.pending == 0 && len(p) >= b.scan.minBulk+len(b.scan.mark.text) {
		if n := b.scan.bulk(p); n > 0 {
			return n, nil
		}
	}
	n, err := b.Part.Read(p)
	b.scan.pending -= int64(n)
	b.begun = b.begun || n > 0
	return n, err
}
