package protocol

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// chopped gives its data in pieces of sizes that are drawn.
type chopped struct{ data []byte }

func (c *chopped) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data[:min(len(c.data), 1+rand.IntN(2*MarkerBytes))]) //nolint:gosec // a sample
	c.data = c.data[n:]
	return n, nil
}

// readMarked reads all of m and returns what came before, between and after the markers.
func readMarked(m *MarkerReader, size int) ([][]byte, error) {
	parts := [][]byte{nil}
	p := make([]byte, size)
	for {
		n, err := m.Read(p)
		last := len(parts) - 1
		parts[last] = append(parts[last], p[:n]...)
		switch {
		case err == nil:
		case errors.Is(err, ErrMarker):
			parts = append(parts, nil)
		case errors.Is(err, io.EOF):
			return parts, nil
		default:
			return nil, err
		}
	}
}

func FuzzAMarkReaderPassesOnAllButMarkers(f *testing.F) {
	m := Marker(0x1122334455667788)
	f.Add([]byte("before"), []byte("after"), uint8(1))
	f.Add([]byte{}, []byte{}, uint8(16))
	f.Add(m[:15], m[:15], uint8(3))
	f.Add(append(bytes.Clone(m[:7]), m[:9]...), append(bytes.Clone(m), m...), uint8(200))
	f.Fuzz(func(t *testing.T, before, after []byte, size uint8) {
		checkMarks(t, before, after, int(size)+1)
	})
}

func TestAMarkReaderLooksAcrossItsBuffers(t *testing.T) {
	t.Parallel()
	m := Marker(0x1122334455667788)
	checkMarks(t, bytes.Repeat([]byte{0xff}, 70_000), bytes.Repeat(m[:8], 9000), 4096)
	for n := 65_536 - 20; n < 65_536+20; n++ {
		checkMarks(t, make([]byte, n), m[:5], 70_000)
	}
}

// checkMarks compares with what a search in the whole stream finds.
func checkMarks(t *testing.T, before, after []byte, size int) {
	t.Helper()
	m := Marker(0x1122334455667788)
	stream := append(append(bytes.Clone(before), m...), after...)
	want := bytes.Split(stream, m)
	for _, src := range []io.Reader{bytes.NewReader(stream), &chopped{bytes.Clone(stream)}, iotest.OneByteReader(bytes.NewReader(stream))} {
		got, err := readMarked(&MarkerReader{Src: src, Marker: m}, size)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%v: %d parts, want %d", err, len(got), len(want))
		}
		for i := range want {
			w := want[i]
			if i == len(want)-1 {
				w = w[:len(w)-endsLikeMarker(w, m)] // what may be a beginning stays back
			}
			if !bytes.Equal(got[i], w) {
				t.Fatalf("part %d: %q, want %q", i, got[i], w)
			}
		}
	}
}

func TestAFrameThatEndsLikeAMarkerIsFollowedByAPing(t *testing.T) {
	t.Parallel()
	m := Marker(7)
	for n := range MarkerBytes {
		var buf bytes.Buffer
		w := NewWriter(&buf)
		w.Protect(m)
		payload := append([]byte("data"), m[:n]...)
		if err := w.SendBuffer(FrameStdin, append(make([]byte, HeaderBytes), payload...)); err != nil {
			t.Fatal(err)
		}
		// Nothing more comes, and still the whole frame must come out.
		frames := NewReader(&MarkerReader{Src: io.MultiReader(&buf, iotest.ErrReader(errors.New("no more"))), Marker: m})
		ft, size, err := frames.Header()
		if err != nil || ft != FrameStdin {
			t.Fatalf("with %d bytes of a marker: %d %v", n, ft, err)
		}
		if got, err := frames.Payload(size); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("with %d bytes of a marker: %q %v", n, got, err)
		}
	}
}

func TestSeekFindsAMarkAtEveryOffset(t *testing.T) {
	t.Parallel()
	mark := []byte("0123456789abcdef")
	for _, before := range []int{0, 1, 15, 16, 17, 65_519, 65_520, 65_521, 65_536, 70_000, 200_000} {
		stream := append(bytes.Repeat([]byte("0123456789abcde"), before/15+1)[:before], append(bytes.Clone(mark), "rest"...)...)
		frames := NewReader(&chopped{stream})
		if err := frames.Seek(mark); err != nil {
			t.Fatalf("after %d bytes: %v", before, err)
		}
		if rest, err := io.ReadAll(frames.r); err != nil || string(rest) != "rest" {
			t.Errorf("after %d bytes: %q %v", before, rest, err)
		}
	}
	if err := NewReader(bytes.NewReader(mark[:15])).Seek(mark); !errors.Is(err, io.EOF) {
		t.Errorf("without one: %v", err)
	}
}
