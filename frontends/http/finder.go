package httpfrontend

import "bytes"

// skipFrom is the minimum length of a text that finder searches faster than bytes.Index. bytes.Index stops at each first byte of the
// text. The boundaries of clients are longer than skipFrom.
const skipFrom = 16

// finder searches for a text in data that mostly does not have it. Wherever the text is, one of its pairs of bytes is at a multiple
// of its length less one. finder looks at the pairs at these places only.
type finder struct {
	text []byte
	// pairs has a bit for each pair of bytes that is in text; nil before the first search.
	pairs *[1 << 16 / 64]uint64
}

func pair(b []byte, i int) uint16 { return uint16(b[i]) | uint16(b[i+1])<<8 }

func (f *finder) prepare() {
	f.pairs = new([1 << 16 / 64]uint64)
	for i := range len(f.text) - 1 {
		p := pair(f.text, i)
		f.pairs[p/64] |= 1 << (p % 64)
	}
}

// index is bytes.Index(b, f.text).
func (f *finder) index(b []byte) int {
	if len(f.text) < skipFrom {
		return bytes.Index(b, f.text)
	}
	if f.pairs == nil {
		f.prepare()
	}
	step := len(f.text) - 1
	for i := step - 1; i+1 < len(b); i += step {
		p := pair(b, i)
		if f.pairs[p/64]&(1<<(p%64)) == 0 {
			continue
		}
		// A text with this pair begins after the pair before.
		begin := i - step + 1
		if at := bytes.Index(b[begin:min(len(b), i+len(f.text))], f.text); at >= 0 {
			return begin + at
		}
	}
	return -1
}
