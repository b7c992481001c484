package httpfrontend

import "bytes"

// skipFrom is the length from which a text is found faster by looking at every so many bytes than by bytes.Index, which
// stops at each of its first byte. Clients' boundaries are longer.
const skipFrom = 16

// finder finds a text in what mostly does not have it, gigabytes of it. Wherever the text is, one of its pairs of bytes
// lies at a multiple of its length less one: other pairs need not be looked at.
type finder struct {
	text []byte
	// pairs has a bit for each pair of bytes that is in text; nil: it was not needed yet.
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
		// What has this pair begins behind the pair that was looked at before.
		begin := i - step + 1
		if at := bytes.Index(b[begin:min(len(b), i+len(f.text))], f.text); at >= 0 {
			return begin + at
		}
	}
	return -1
}
