//go:build linux

package runner

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// keptHost is a host that logs what next gives, and may be succeeded by another.
type keptHost struct {
	streams [2][]byte
	events  [][]byte
	acked   acked
}

// take reads one frame as a host does; false: there was none.
func (h *keptHost) take(t *testing.T, k *kept) bool {
	t.Helper()
	raw := k.next(nil)
	if len(raw) == 0 {
		return false
	}
	frames := newFrameReader(bytes.NewReader(raw))
	ft, n, err := frames.header()
	if err != nil {
		t.Fatal(err)
	}
	p, err := frames.payload(n)
	if err != nil {
		t.Fatal(err)
	}
	if ft == frameDisplay {
		h.events = append(h.events, slices.Clone(p))
		h.acked.events++
		return true
	}
	o, err := parseOutput(p)
	if err != nil {
		t.Fatal(err)
	}
	i := streamIndex(o.Stream)
	if o.Offset != int64(len(h.streams[i])) {
		t.Fatalf("%s at %d, and %d are in the log", o.Stream, o.Offset, len(h.streams[i]))
	}
	h.streams[i] = append(h.streams[i], o.Data...)
	h.acked.streams[i] = int64(len(h.streams[i]))
	return true
}

func TestWhatIsKeptComesWholeHoweverHostsChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a sample that can be repeated
		k := newKept(func() {})
		h := &keptHost{}
		var put keptHost
		room := func(i, n int) bool { return int64(len(put.streams[i])+n)-k.streams[i].acked <= outputWindow }
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
				frame := append(make([]byte, frameHeader), payload...)
				putHeader(frame, frameDisplay, len(payload))
				k.event(frame)
			case 4, 5:
				for range random.IntN(20) {
					h.take(t, k)
				}
			case 6:
				k.ack(h.acked)
			case 7: // another host, which has what this one had logged
				if err := k.covers(h.acked.streams[0], h.acked.streams[1]); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				from := k.rewind(h.acked.streams[0], h.acked.streams[1])
				h.events = h.events[:from] // those that were not acknowledged come again
				h.acked.events = from
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
	k := newKept(func() {})
	k.output(0, []byte("a"))
	k.output(0, []byte("b"))
	k.output(1, []byte("c"))
	frame := append(make([]byte, frameHeader), 'd')
	putHeader(frame, frameDisplay, 1)
	k.event(frame)
	k.output(0, []byte("e"))
	var got []string
	for raw := k.next(nil); len(raw) > 0; raw = k.next(nil) {
		p := raw[frameHeader:]
		if frameType(raw[4]) == frameOutput {
			o, err := parseOutput(p)
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
	k := newKept(func() {})
	k.output(0, make([]byte, outputWindow))
	for k.unsent() {
		k.next(nil)
	}
	waited := make(chan bool)
	go func() { waited <- k.output(0, []byte("more")) }()
	k.ack(acked{streams: [2]int64{1, 0}}) // not enough
	k.ack(acked{streams: [2]int64{4, 0}})
	if !<-waited {
		t.Error("it was not taken")
	}
	go func() { waited <- k.output(0, make([]byte, outputWindow)) }()
	k.close()
	if <-waited {
		t.Error("it was taken after the end")
	}
	if err := k.covers(3, 0); err == nil {
		t.Error("what was acknowledged is gone, and yet it is promised")
	}
}
