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
			if err := f.put(received{protocol.FrameOutput, frame[protocol.HeaderBytes:]}); err != nil {
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
