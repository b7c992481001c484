//go:build linux

package runner

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

func TestBothWindowsFullOfSingleBytesAreHeld(t *testing.T) {
	t.Parallel()
	f := newFollower(nil)
	for n := range protocol.OutputWindow {
		for stream := range 2 {
			frame := protocol.AppendOutput(nil, stream, int64(n), []byte{byte(n)})
			if err := f.put(received{t: protocol.FrameOutput, data: frame[protocol.HeaderBytes:]}); err != nil {
				t.Fatalf("after %d bytes of each stream: %v", n, err)
			}
		}
	}
	if len(f.queue) > 2*manyQueued {
		t.Errorf("%d frames wait", len(f.queue))
	}
	next := map[executor.Stream]int64{}
	for len(f.queue) > 0 {
		r, err := f.next()
		if err != nil {
			t.Fatal(err)
		}
		o, err := protocol.ParseOutput(r.data)
		if err != nil || o.Offset != next[o.Stream] || len(o.Data) > executor.MaxOutputData {
			t.Fatal(o.Stream, o.Offset, len(o.Data), err)
		}
		for i, b := range o.Data {
			if b != byte(o.Offset+int64(i)) {
				t.Fatal("another byte at", o.Offset+int64(i))
			}
		}
		next[o.Stream] += int64(len(o.Data))
	}
	if next[executor.Stdout] != protocol.OutputWindow || next[executor.Stderr] != protocol.OutputWindow || f.held != 0 {
		t.Error(next, f.held)
	}
}

func TestFramesWithoutAPayloadAreBounded(t *testing.T) {
	t.Parallel()
	f := newFollower(nil)
	var err error
	for n := 0; err == nil && n <= maxQueued; n++ {
		err = f.put(received{t: protocol.FrameArtifactEnd})
	}
	if !errors.Is(err, protocol.ErrFrame) {
		t.Error(err)
	}
}

func TestWaitingPiecesOfAStreamAreTakenTogether(t *testing.T) {
	t.Parallel()
	type piece struct{ stream, at, n int }
	const most = executor.MaxOutputData
	for name, c := range map[string]struct{ put, want []piece }{
		"one":                             {[]piece{{0, 0, 5}}, []piece{{0, 0, 5}}},
		"several":                         {[]piece{{1, 7, 5}, {1, 12, 1}, {1, 13, 2}}, []piece{{1, 7, 8}}},
		"the other stream keeps its turn": {[]piece{{0, 0, 5}, {1, 0, 1}, {0, 5, 2}, {0, 7, 2}}, []piece{{0, 0, 5}, {1, 0, 1}, {0, 5, 4}}},
		"no more than an event may have":  {[]piece{{0, 0, most - 2}, {0, most - 2, 2}, {0, most, 1}}, []piece{{0, 0, most}, {0, most, 1}}},
		"pieces with a gap stay apart":    {[]piece{{0, 0, 5}, {0, 6, 1}}, []piece{{0, 0, 5}, {0, 6, 1}}},
	} {
		f := newFollower(nil)
		put := func(t0 protocol.FrameType, data []byte) {
			if err := f.put(received{t: t0, data: data}); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range c.put {
			data := make([]byte, p.n)
			for i := range data {
				data[i] = byte(p.at + i)
			}
			put(protocol.FrameOutput, protocol.AppendOutput(nil, p.stream, int64(p.at), data)[protocol.HeaderBytes:])
		}
		put(protocol.FrameExited, []byte("{}"))
		for _, want := range c.want {
			r, err := f.next()
			if err != nil || r.t != protocol.FrameOutput {
				t.Fatalf("%s: frame type %d, error %v", name, r.t, err)
			}
			o, err := protocol.ParseOutput(r.data)
			if err != nil || protocol.StreamIndex(o.Stream) != want.stream || o.Offset != int64(want.at) || len(o.Data) != want.n {
				t.Fatalf("%s: %s at %d with %d bytes, error %v, want %+v", name, o.Stream, o.Offset, len(o.Data), err, want)
			}
			for i, b := range o.Data {
				if b != byte(want.at+i) {
					t.Fatalf("%s: another byte at %d", name, want.at+i)
				}
			}
		}
		if r, err := f.next(); err != nil || r.t != protocol.FrameExited || f.held != 0 {
			t.Errorf("%s: frame type %d follows, error %v, %d bytes are held", name, r.t, err, f.held)
		}
	}
}

func TestTheBytesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	f := newFollower(nil)
	if err := f.put(received{t: protocol.FrameDisplay, data: make([]byte, maxHeld)}); err != nil {
		t.Fatal(err)
	}
	if err := f.put(received{t: protocol.FrameDisplay, data: make([]byte, 1)}); !errors.Is(err, protocol.ErrFrame) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestPiecesWithAGapAreNotJoinedHoweverManyWait(t *testing.T) {
	t.Parallel()
	f := newFollower(nil)
	put := func(offset int) {
		frame := protocol.AppendOutput(nil, 0, int64(offset), []byte{'x'})
		if err := f.put(received{t: protocol.FrameOutput, data: frame[protocol.HeaderBytes:]}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range manyQueued + 1 {
		put(n)
	}
	if len(f.queue) != manyQueued {
		t.Fatalf("%d frames wait", len(f.queue))
	}
	if put(manyQueued + 2); len(f.queue) != manyQueued+1 {
		t.Errorf("%d frames wait", len(f.queue))
	}
}

// keeper is a TrailingSink that keeps the bytes of what trails, and copies those of what is emitted.
type keeper struct{ emitted, trailed [][]byte }

func (k *keeper) Emit(e executor.Event) error {
	k.emitted = append(k.emitted, bytes.Clone(e.Body.(executor.Output).Data)) //nolint:forcetypeassert // nothing else comes
	return nil
}

func (k *keeper) Trail(e executor.Event) error {
	k.trailed = append(k.trailed, e.Body.(executor.Output).Data) //nolint:forcetypeassert // likewise
	return nil
}

func (*keeper) Artifact(*tar.Header, io.Reader) error { return nil }

func TestOnlyTheBuffersOfAcknowledgedOutputAreUsedAgain(t *testing.T) {
	t.Parallel()
	f := newFollower(&Conn{out: protocol.NewWriter(io.Discard)})
	put := func(stream int, fill byte) {
		frame := protocol.AppendOutput(nil, stream, 0, bytes.Repeat([]byte{fill}, minPooled))[protocol.HeaderBytes:]
		r := newReceived(protocol.FrameOutput, len(frame))
		copy(r.data, frame)
		if err := f.put(r); err != nil {
			t.Fatal(err)
		}
	}
	sink := &keeper{}
	deliver := func() {
		r, err := f.next()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.hand(&r, sink, true); err != nil {
			t.Fatal(err)
		}
		if emits := len(sink.trailed) == 0; emits != (r.buffer == nil) {
			t.Errorf("emitted %t, and the buffer is given back %t", emits, r.buffer == nil)
		}
	}
	put(0, 'a')
	if err := f.put(received{t: protocol.FrameProgress, data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	deliver()
	f.queue = nil // the progress is of no interest
	put(1, 'b')
	if err := f.put(received{t: protocol.FrameExited, data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	deliver()
	if len(sink.emitted) != 1 || len(sink.trailed) != 1 || sink.emitted[0][0] != 'a' || sink.trailed[0][0] != 'b' {
		t.Errorf("%d emitted, %d trailed", len(sink.emitted), len(sink.trailed))
	}
}
