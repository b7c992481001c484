//go:build linux

package output

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// keptHost is a host that logs what next gives, and may be succeeded by another.
type keptHost struct {
	streams [2][]byte
	events  [][]byte
	acked   protocol.Acknowledged
}

// take reads one frame as a host does; false: there was none.
func (h *keptHost) take(t *testing.T, k *Backlog) bool {
	t.Helper()
	raw := k.Next(nil)
	if len(raw) == 0 {
		return false
	}
	frames := protocol.NewReader(bytes.NewReader(raw))
	ft, n, err := frames.Header()
	if err != nil {
		t.Fatal(err)
	}
	p, err := frames.Payload(n)
	if err != nil {
		t.Fatal(err)
	}
	if ft == protocol.FrameDisplay {
		h.events = append(h.events, slices.Clone(p))
		h.acked.Events++
		return true
	}
	o, err := protocol.ParseOutput(p)
	if err != nil {
		t.Fatal(err)
	}
	i := protocol.StreamIndex(o.Stream)
	if o.Offset != int64(len(h.streams[i])) {
		t.Fatalf("%s at %d, and %d are in the log", o.Stream, o.Offset, len(h.streams[i]))
	}
	h.streams[i] = append(h.streams[i], o.Data...)
	h.acked.Streams[i] = int64(len(h.streams[i]))
	return true
}

func TestWhatIsKeptComesWholeHoweverHostsChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a sample that can be repeated
		k := NewBacklog(func() {})
		h := &keptHost{}
		var put keptHost
		room := func(i, n int) bool { return int64(len(put.streams[i])+n)-k.streams[i].acked <= protocol.OutputWindow }
		for range 400 {
			switch random.IntN(8) {
			case 0, 1, 2:
				i, n := random.IntN(2), 1+random.IntN(30_000)
				if !room(i, n) {
					continue
				}
				data := bytes.Repeat([]byte{byte(random.IntN(256))}, n)
				put.streams[i] = append(put.streams[i], data...)
				k.output(i, data)
			case 3:
				if k.events.bytes > eventWindow/2 {
					continue
				}
				payload := bytes.Repeat([]byte{byte(random.IntN(256))}, 1+random.IntN(1000))
				put.events = append(put.events, payload)
				frame := append(make([]byte, protocol.HeaderBytes), payload...)
				protocol.PutHeader(frame, protocol.FrameDisplay, len(payload))
				k.event(frame)
			case 4, 5:
				for range random.IntN(20) {
					h.take(t, k)
				}
			case 6:
				k.ack(h.acked)
			case 7: // another host, which has what this one had logged
				if err := k.Covers(h.acked.Streams[0], h.acked.Streams[1]); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				from := k.Rewind(h.acked.Streams[0], h.acked.Streams[1])
				h.events = h.events[:from] // those that were not acknowledged come again
				h.acked.Events = from
			}
		}
		for h.take(t, k) {
		}
		if !bytes.Equal(h.streams[0], put.streams[0]) || !bytes.Equal(h.streams[1], put.streams[1]) ||
			!slices.EqualFunc(h.events, put.events, bytes.Equal) {
			t.Fatalf("seed %d: %d+%d bytes and %d events, want %d+%d and %d", seed, len(h.streams[0]), len(h.streams[1]), len(h.events),
				len(put.streams[0]), len(put.streams[1]), len(put.events))
		}
	}
}

func TestOutputKeepsItsOrderAmongStreamsAndEvents(t *testing.T) {
	t.Parallel()
	k := NewBacklog(func() {})
	k.output(0, []byte("a"))
	k.output(0, []byte("b"))
	k.output(1, []byte("c"))
	frame := append(make([]byte, protocol.HeaderBytes), 'd')
	protocol.PutHeader(frame, protocol.FrameDisplay, 1)
	k.event(frame)
	k.output(0, []byte("e"))
	var got []string
	for raw := k.Next(nil); len(raw) > 0; raw = k.Next(nil) {
		p := raw[protocol.HeaderBytes:]
		if protocol.FrameType(raw[4]) == protocol.FrameOutput {
			o, err := protocol.ParseOutput(p)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(o.Stream)+" "+string(o.Data))
			continue
		}
		got = append(got, "event "+string(p))
	}
	want := []string{string(executor.Stdout) + " ab", string(executor.Stderr) + " c", "event d", string(executor.Stdout) + " e"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFullWindowWaitsForAnAcknowledgement(t *testing.T) {
	t.Parallel()
	k := NewBacklog(func() {})
	k.output(0, make([]byte, protocol.OutputWindow))
	for k.Unsent() {
		k.Next(nil)
	}
	waited := make(chan bool)
	put := func(data []byte) {
		_, ok := k.output(0, data)
		waited <- ok
	}
	go put([]byte("more"))
	k.ack(protocol.Acknowledged{Streams: [2]int64{1, 0}}) // not enough
	k.ack(protocol.Acknowledged{Streams: [2]int64{4, 0}})
	if !<-waited {
		t.Error("it was not taken")
	}
	go put(make([]byte, protocol.OutputWindow))
	k.close()
	if <-waited {
		t.Error("it was taken after the end")
	}
	if err := k.Covers(3, 0); err == nil {
		t.Error("what was acknowledged is gone, and yet it is promised")
	}
	for from, covered := range map[int64]bool{4: true, protocol.OutputWindow + 4: true, protocol.OutputWindow + 5: false} {
		if err := k.Covers(from, 0); (err == nil) != covered {
			t.Errorf("output from %d on: %v", from, err)
		}
	}
}

func TestWhatWasNotSentCannotBeAcknowledged(t *testing.T) {
	t.Parallel()
	k, h := NewBacklog(func() {}), &keptHost{}
	k.output(0, []byte("abcd"))
	k.event(protocol.AppendFrame(nil, protocol.FrameDisplay, []byte("{}")))
	k.ack(protocol.Acknowledged{Streams: [2]int64{4, 4}, Events: 1})
	for h.take(t, k) {
	}
	if string(h.streams[0]) != "abcd" || len(h.events) != 1 {
		t.Errorf("%q and %d events came", h.streams[0], len(h.events))
	}
}

func TestAFullWindowComesInFramesThatAreAllowed(t *testing.T) {
	t.Parallel()
	k, h := NewBacklog(func() {}), &keptHost{}
	k.output(1, make([]byte, protocol.OutputWindow))
	for h.take(t, k) { // it refuses a frame that is too long
	}
	if len(h.streams[1]) != protocol.OutputWindow {
		t.Errorf("%d bytes came", len(h.streams[1]))
	}
}

func TestStreamsThatAlternateAreKeptInABoundedOrder(t *testing.T) {
	t.Parallel()
	k, h := NewBacklog(func() {}), &keptHost{}
	for range maxSegments {
		k.output(0, []byte("o"))
		k.output(1, []byte("e"))
	}
	if len(k.order) > maxSegments {
		t.Errorf("%d segments are kept", len(k.order))
	}
	for h.take(t, k) {
	}
	if len(h.streams[0]) != maxSegments || len(h.streams[1]) != maxSegments {
		t.Errorf("%d and %d bytes came", len(h.streams[0]), len(h.streams[1]))
	}
}

func TestTheLargestEventFitsIntoItsWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := NewBacklog(func() {})
		if !k.event(make([]byte, protocol.HeaderBytes+protocol.MaxControl)) {
			t.Error("it was not taken")
		}
	})
}
