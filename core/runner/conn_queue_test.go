//go:build linux

package runner

import (
	"errors"
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
