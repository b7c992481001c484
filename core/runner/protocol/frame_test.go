package protocol

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
	w := NewWriter(&good)
	for _, err := range []error{
		w.SendJSON(FrameHello, Hello{Version: Version}), w.SendJSON(FrameStart, Start{Code: "print(1)"}),
		w.Send(FrameWorkspace, 1, 2, 3), w.Send(FrameCancel), w.Send(FrameCredit, CreditPayload(ChannelStdin, 9)...),
		w.Send(FrameAck, Acknowledged{Streams: [2]int64{1, 2}, Events: 3}.Payload()...), w.Send(FrameOutput, 2, 0, 0, 0, 0, 0, 0, 0, 7, 'x'),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Add(good.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, byte(FrameStart)})
	f.Add([]byte{0, 0xff, 0, 0, byte(FrameStart), 1, 2})
	f.Add([]byte{0, 0, 0, 1, 200, 0})
	f.Add([]byte{0, 0, 0, 9, byte(FrameOutput), 3, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		at := 0
		for {
			ft, n, err := r.Header()
			if err != nil {
				return
			}
			if n > MaxPayload(ft) {
				t.Fatalf("type %d with %d bytes", ft, n)
			}
			p, err := r.Payload(n)
			if cap(r.scratch) > 2*len(in)+(128<<10) {
				t.Fatalf("%d bytes taken for an input of %d", cap(r.scratch), len(in))
			}
			if err != nil {
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(p, in[at+HeaderBytes:at+HeaderBytes+n]) || binary.BigEndian.Uint32(in[at:]) != uint32(n) {
				t.Fatal("another payload than was sent")
			}
			at += HeaderBytes + n
			parseAll(t, p)
		}
	})
}

// parseAll gives p to every parser of small frames: each returns errFrame or something sound.
func parseAll(t *testing.T, p []byte) {
	t.Helper()
	if o, err := ParseOutput(p); err == nil && (o.Offset < 0 || len(o.Data) == 0) || err != nil && !errors.Is(err, ErrFrame) {
		t.Fatal(o, err)
	}
	if a, err := ParseAck(p); err == nil && min(a.Streams[0], a.Streams[1], a.Events) < 0 || err != nil && !errors.Is(err, ErrFrame) {
		t.Fatal(a, err)
	}
	if c, n, err := ParseCredit(p); err == nil && (c == 0 || n < 0) || err != nil && !errors.Is(err, ErrFrame) {
		t.Fatal(c, n, err)
	}
}

func TestAFrameComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := NewWriter(&buf)
	big := make([]byte, HeaderBytes+ChunkBytes)
	for i := range big {
		big[i] = byte(i)
	}
	want := bytes.Clone(big[HeaderBytes:])
	long := Start{Code: string(bytes.Repeat([]byte("x"), 3<<20))}
	if err := errors.Join(w.SendBuffer(FrameWorkspace, big), w.SendJSON(FrameStart, long), w.Send(FramePing)); err != nil {
		t.Fatal(err)
	}
	r := NewReader(&buf)
	ft, n, err := r.Header()
	if err != nil || ft != FrameWorkspace || n != ChunkBytes {
		t.Fatal(ft, n, err)
	}
	got := make([]byte, n)
	if err := r.Into(got); err != nil || !bytes.Equal(got, want) {
		t.Fatal("another chunk", err)
	}
	if ft, n, err = r.Header(); err != nil || ft != FrameStart {
		t.Fatal(ft, n, err)
	}
	var start Start
	if err := ReadJSON(r, n, &start); err != nil || start.Code != long.Code {
		t.Fatal("another start", err)
	}
	if ft, n, err = r.Header(); err != nil || ft != FramePing || n != 0 {
		t.Fatal(ft, n, err)
	}
	if _, _, err = r.Header(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestAnInboxHoldsTheSenderToItsCredit(t *testing.T) {
	t.Parallel()
	granted := 0
	box := NewInbox(100, func(n int) { granted += n })
	put := func(n int) error {
		buf := ChunkPool.Get().(*[]byte)
		return box.Put(Piece{Buffer: buf, Data: (*buf)[:n]})
	}
	if err := errors.Join(put(60), put(40)); err != nil {
		t.Fatal(err)
	}
	if err := put(1); !errors.Is(err, ErrFrame) {
		t.Errorf("got %v", err)
	}
	p := make([]byte, 30)
	if n, err := box.Read(p); n != 30 || err != nil || granted != 30 {
		t.Errorf("%d %v, granted %d", n, err, granted)
	}
	box.End(io.EOF)
	if rest, err := io.ReadAll(box); err != nil || len(rest) < 70 {
		t.Errorf("%d %v", len(rest), err)
	}
}

func TestAnInboxThatNobodyReadsGrantsAllTheSame(t *testing.T) {
	t.Parallel()
	granted := 0
	box := NewInbox(100, func(n int) { granted += n })
	buf := ChunkPool.Get().(*[]byte)
	if err := box.Put(Piece{Buffer: buf, Data: (*buf)[:60]}); err != nil {
		t.Fatal(err)
	}
	box.Swallow()
	buf = ChunkPool.Get().(*[]byte)
	if err := box.Put(Piece{Buffer: buf, Data: (*buf)[:100]}); err != nil || granted != 160 {
		t.Errorf("%v, granted %d", err, granted)
	}
}

func TestAFrameIsAsLongAsItsTypeAllows(t *testing.T) {
	t.Parallel()
	for kind, limit := range map[FrameType]int{
		FrameStart: MaxStart, FrameHello: MaxControl, FrameStdin: ChunkBytes, FrameSessionEnd: CallHeaderBytes + 1, FrameSessionCredit: 8,
		FrameCredit: 5, FrameAck: 24, FramePing: 0, FrameType(200): -1,
	} {
		head := make([]byte, HeaderBytes)
		if PutHeader(head, kind, limit); limit >= 0 {
			if got, n, err := NewReader(bytes.NewReader(head)).Header(); got != kind || n != limit || err != nil {
				t.Errorf("type %d of %d bytes: got type %d of %d bytes, %v", kind, limit, got, n, err)
			}
		}
		PutHeader(head, kind, limit+1)
		if _, _, err := NewReader(bytes.NewReader(head)).Header(); !errors.Is(err, ErrFrame) {
			t.Errorf("type %d of %d bytes: %v", kind, limit+1, err)
		}
	}
	var sent bytes.Buffer
	if err := NewWriter(&sent).SendRaw(FrameStdin, make([]byte, ChunkBytes)); err != nil || sent.Len() != HeaderBytes+ChunkBytes {
		t.Errorf("a frame of the full length: %d bytes were sent, %v", sent.Len(), err)
	}
	if err := NewWriter(&sent).SendRaw(FrameStdin, make([]byte, ChunkBytes+1)); err == nil || sent.Len() != HeaderBytes+ChunkBytes {
		t.Errorf("a frame that is too long: %d bytes were sent, %v", sent.Len(), err)
	}
}

func TestAFrameThatIsCutOffIsNoEnd(t *testing.T) {
	t.Parallel()
	r := NewReader(bytes.NewReader(AppendFrame(nil, FrameStdin, []byte("data"))[:HeaderBytes]))
	_, n, err := r.Header()
	must(t, err)
	if _, err := r.Payload(n); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestAReaderDoesNotKeepALongPayload(t *testing.T) {
	t.Parallel()
	r := NewReader(io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), bytes.NewReader([]byte("short"))))
	_, err := r.Payload(1 << 20)
	must(t, err)
	p, err := r.Payload(5)
	if string(p) != "short" || err != nil || cap(p) > 64<<10 {
		t.Errorf("%q in a buffer of %d bytes, %v", p, cap(p), err)
	}
}

// relayed keeps the frames that it is sent.
type relayed [][]byte

func (r *relayed) Send(_ uint64, _ FrameType, frame []byte) error {
	*r = append(*r, frame)
	return nil
}

func TestABufferIsFreeWhenItsFrameWasGivenToARelay(t *testing.T) {
	t.Parallel()
	var frames relayed
	w := NewRelayWriter(&frames, 1)
	buf := append(make([]byte, HeaderBytes), "one"...)
	must(t, w.SendBuffer(FrameStdin, buf))
	copy(buf[HeaderBytes:], "two")
	if want := AppendFrame(nil, FrameStdin, []byte("one")); len(frames) != 1 || !bytes.Equal(frames[0], want) {
		t.Errorf("the relay has %q, want %q", frames, want)
	}
}

func TestAWriterFailsWithTheFirstReason(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	w := NewWriter(&sent)
	w.Stop(ErrCancelled)
	w.Stop(ErrStopped)
	if err := w.Send(FramePing); !errors.Is(err, ErrCancelled) || sent.Len() > 0 {
		t.Errorf("%d bytes were sent, %v", sent.Len(), err)
	}
}
