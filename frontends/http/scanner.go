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
	// bulkBytes is the least that is worth reading past mime/multipart.
	bulkBytes = 4 << 10
)

// scanner lies between a body and the multipart.Reader that takes it apart. mime/multipart gives at most 4 KiB of a part
// at a time, which for a large tar costs more than everything else here; so what cannot be a boundary is read past it.
// Whatever may be one, and all headers, it still gets, and it alone decides.
type scanner struct {
	r io.Reader
	// mark is what every boundary but the first one has in it.
	mark finder
	// held was read and not given out; it lies in store.
	held, store []byte
	err         error
	// ahead is how much mime/multipart was given of the part and has not returned.
	ahead int64
	// least is bulkBytes; only tests set it.
	least int
}

func newScanner(r io.Reader, boundary string, size int) *scanner {
	return &scanner{r: r, mark: finder{text: []byte("\n--" + boundary)}, store: make([]byte, min(size, scanBytes)), least: bulkBytes}
}

// next returns the next part of m, which reads s. It is multipart.Reader's NextPart.
func (s *scanner) next(m *multipart.Reader) (*bulkPart, error) {
	part, err := m.NextRawPart()
	if err != nil {
		return nil, err
	}
	s.ahead = 0 // the last line that m was given is the empty one that ends the headers
	p := &bulkPart{Part: part, scan: s}
	const encoding = "Content-Transfer-Encoding"
	if strings.EqualFold(part.Header.Get(encoding), "quoted-printable") {
		part.Header.Del(encoding)
		p.decoded = quotedprintable.NewReader(part)
	}
	return p, nil
}

// Read implements io.Reader, for the multipart.Reader. It gives out no more than a line at once: so that one never holds
// anything behind a part's headers.
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
	s.ahead += int64(n)
	return n, nil
}

// bulk reads what is certainly the part's. 0 bytes: mime/multipart must look at what comes.
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

// certain is the length of b without what may be, or become, a boundary.
func (s *scanner) certain(b []byte) int {
	i := s.mark.index(b)
	if i < 0 {
		return max(0, len(b)-len(s.mark.text)) // a boundary that begins before has its mark in b
	}
	if i > 0 && b[i-1] == '\r' {
		i--
	}
	return i
}

// bulkPart is a part that is read past mime/multipart where that can be.
type bulkPart struct {
	*multipart.Part
	scan *scanner
	// decoded has the content where it has an encoding, else nil.
	decoded io.Reader
	// begun: at its very beginning a boundary needs no line break before it.
	begun bool
}

// Read implements io.Reader.
func (b *bulkPart) Read(p []byte) (int, error) {
	if b.decoded != nil {
		return b.decoded.Read(p)
	}
	if b.begun && b.scan.ahead == 0 && len(p) >= b.scan.least+len(b.scan.mark.text) {
		if n := b.scan.bulk(p); n > 0 {
			return n, nil
		}
	}
	n, err := b.Part.Read(p)
	b.scan.ahead -= int64(n)
	b.begun = b.begun || n > 0
	return n, err
}
