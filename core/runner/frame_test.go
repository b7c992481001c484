package runner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// FuzzFrames: whatever arrives, the reader neither panics nor takes more memory than the frame types allow, and it
// returns exactly what was sent.
func FuzzFrames(f *testing.F) {
	var good bytes.Buffer
	w := &frameWriter{w: &good}
	for _, err := range []error{
		w.json(frameHello, hello{Version: Version}), w.json(frameStart, Start{Code: "print(1)"}),
		w.frame(frameWorkspace, 1, 2, 3), w.frame(frameCancel), w.frame(frameCredit, creditPayload(channelStdin, 9)...),
		w.frame(frameAck, acked{streams: [2]int64{1, 2}, events: 3}.payload()...), w.frame(frameOutput, 2, 0, 0, 0, 0, 0, 0, 0, 7, 'x'),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Add(good.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, byte(frameStart)})
	f.Add([]byte{0, 0xff, 0, 0, byte(frameStart), 1, 2})
	f.Add([]byte{0, 0, 0, 1, 200, 0})
	f.Add([]byte{0, 0, 0, 9, byte(frameOutput), 3, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newFrameReader(bytes.NewReader(in))
		at := 0
		for {
			ft, n, err := r.header()
			if err != nil {
				return
			}
			if n > maxPayload(ft) {
				t.Fatalf("type %d with %d bytes", ft, n)
			}
			p, err := r.payload(n)
			if cap(r.scratch) > 2*len(in)+(128<<10) {
				t.Fatalf("%d bytes taken for an input of %d", cap(r.scratch), len(in))
			}
			if err != nil {
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(p, in[at+frameHeader:at+frameHeader+n]) || binary.BigEndian.Uint32(in[at:]) != uint32(n) {
				t.Fatal("another payload than was sent")
			}
			at += frameHeader + n
			parseAll(t, p)
		}
	})
}

// parseAll gives p to every parser of small frames: each returns errFrame or something sound.
func parseAll(t *testing.T, p []byte) {
	t.Helper()
	if o, err := parseOutput(p); err == nil && (o.Offset < 0 || len(o.Data) == 0) || err != nil && !errors.Is(err, errFrame) {
		t.Fatal(o, err)
	}
	if a, err := parseAck(p); err == nil && min(a.streams[0], a.streams[1], a.events) < 0 || err != nil && !errors.Is(err, errFrame) {
		t.Fatal(a, err)
	}
	if c, n, err := parseCredit(p); err == nil && (c == 0 || n < 0) || err != nil && !errors.Is(err, errFrame) {
		t.Fatal(c, n, err)
	}
}

func TestAFrameComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := &frameWriter{w: &buf}
	big := make([]byte, frameHeader+chunkBytes)
	for i := range big {
		big[i] = byte(i)
	}
	want := bytes.Clone(big[frameHeader:])
	long := Start{Code: string(bytes.Repeat([]byte("x"), 3<<20))}
	if err := errors.Join(w.framed(frameWorkspace, big), w.json(frameStart, long), w.frame(framePing)); err != nil {
		t.Fatal(err)
	}
	r := newFrameReader(&buf)
	ft, n, err := r.header()
	if err != nil || ft != frameWorkspace || n != chunkBytes {
		t.Fatal(ft, n, err)
	}
	got := make([]byte, n)
	if err := r.into(got); err != nil || !bytes.Equal(got, want) {
		t.Fatal("another chunk", err)
	}
	if ft, n, err = r.header(); err != nil || ft != frameStart {
		t.Fatal(ft, n, err)
	}
	var start Start
	if err := readJSON(r, n, &start); err != nil || start.Code != long.Code {
		t.Fatal("another start", err)
	}
	if ft, n, err = r.header(); err != nil || ft != framePing || n != 0 {
		t.Fatal(ft, n, err)
	}
	if _, _, err = r.header(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestAnInboxHoldsTheSenderToItsCredit(t *testing.T) {
	t.Parallel()
	granted := 0
	box := newInbox(100, func(n int) { granted += n })
	put := func(n int) error {
		buf := chunks.Get().(*[]byte)
		return box.put(piece{buf, (*buf)[:n]})
	}
	if err := errors.Join(put(60), put(40)); err != nil {
		t.Fatal(err)
	}
	if err := put(1); !errors.Is(err, errFrame) {
		t.Errorf("got %v", err)
	}
	p := make([]byte, 30)
	if n, err := box.Read(p); n != 30 || err != nil || granted != 30 {
		t.Errorf("%d %v, granted %d", n, err, granted)
	}
	box.end(io.EOF)
	if rest, err := io.ReadAll(box); err != nil || len(rest) < 70 {
		t.Errorf("%d %v", len(rest), err)
	}
}

func TestAnInboxThatNobodyReadsGrantsAllTheSame(t *testing.T) {
	t.Parallel()
	granted := 0
	box := newInbox(100, func(n int) { granted += n })
	buf := chunks.Get().(*[]byte)
	if err := box.put(piece{buf, (*buf)[:60]}); err != nil {
		t.Fatal(err)
	}
	box.swallow()
	buf = chunks.Get().(*[]byte)
	if err := box.put(piece{buf, (*buf)[:100]}); err != nil || granted != 160 {
		t.Errorf("%v, granted %d", err, granted)
	}
}
