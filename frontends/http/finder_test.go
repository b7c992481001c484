package httpfrontend

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestAFinderFindsWhatBytesIndexFinds(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	letters := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = "\n-a"[rng.IntN(3)]
		}
		return b
	}
	for n := 1; n < 80; n++ {
		text := letters(n)
		f := finder{text: text}
		for range 40 {
			b := letters(rng.IntN(400))
			if got, want := f.index(b), bytes.Index(b, text); got != want {
				t.Fatalf("%q in %q: got %d, want %d", text, b, got, want)
			}
			// Whole, cut off, and behind pieces of itself.
			for _, piece := range [][]byte{text, text[:rng.IntN(n)], text[rng.IntN(n):]} {
				b = append(b, piece...)
				if got, want := f.index(b), bytes.Index(b, text); got != want {
					t.Fatalf("%q in %q: got %d, want %d", text, b, got, want)
				}
			}
		}
	}
}
