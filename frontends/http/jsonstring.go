package httpfrontend

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// textEscaper converts chunks of bytes to the inside of a JSON string. Each byte that is not UTF-8 becomes U+FFFD. A rune may be
// split between chunks.
type textEscaper struct {
	carry [utf8.UTFMax]byte
	held  int
	// broken reports whether a byte was not UTF-8.
	broken bool
}

// append appends the escaped form of p to dst.
func (e *textEscaper) append(dst, p []byte) []byte {
	for e.held > 0 && len(p) > 0 {
		// At most three bytes are held, so this loop is short.
		e.carry[e.held] = p[0]
		p = p[1:]
		e.held++
		if utf8.FullRune(e.carry[:e.held]) {
			// If the rune is broken, only its first byte is replaced. The other bytes may begin another rune.
			held := e.carry
			n := e.held
			e.held = 0
			dst = e.append(dst, held[:n])
		}
	}
	start := 0
	for i := plain(p); i < len(p); i += plain(p[i:]) {
		c := p[i]
		if c < utf8.RuneSelf {
			dst = append(dst, p[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		if !utf8.FullRune(p[i:]) {
			dst = append(dst, p[start:i]...)
			e.held = copy(e.carry[:], p[i:])
			return dst
		}
		r, size := utf8.DecodeRune(p[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, p[start:i]...)
			dst = append(dst, "\uFFFD"...)
			e.broken = true
			i++
			start = i
			continue
		}
		i += size
	}
	return append(dst, p[start:]...)
}

// plain returns how many bytes at the beginning of p stay as they are, which it finds for eight at a time.
func plain(p []byte) int {
	n := 0
	for ; len(p)-n >= 8; n += 8 {
		if found := special(p[n:]); found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for ; n < len(p); n++ {
		if c := p[n]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			break
		}
	}
	return n
}

// special looks at the first eight bytes of p. The result has the high bit of the first one that is not ASCII, is below a space, or is
// a quote or a backslash. It may also have that of bytes behind the first such one.
func special(p []byte) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	w := binary.LittleEndian.Uint64(p)
	return (w | (w - ones*' ') | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) & highs
}

// finish appends U+FFFD for each byte of a rune that was not completed.
func (e *textEscaper) finish(dst []byte) []byte {
	for range e.held {
		dst = append(dst, "\uFFFD"...)
		e.broken = true
	}
	e.held = 0
	return dst
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}
