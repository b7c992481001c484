//go:build linux

package output

import (
	"bytes"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// outputOf is a buffer as outbox.put takes it, with n bytes of output.
func outputOf(n int) []byte { return make([]byte, protocol.HeaderBytes+protocol.OutputHeaderBytes+n) }

func TestAnAcknowledgementNeitherGoesBackNorBeyondWhatWasSent(t *testing.T) {
	t.Parallel()
	b := NewOutbox(protocol.NewWriter(io.Discard), nil)
	b.Put(executor.Stdout, outputOf(100))
	for _, upTo := range []int64{1 << 40, 50, 0} {
		b.Ack(protocol.Acknowledged{Streams: [2]int64{upTo, upTo}})
		if got := b.Backlog.streams; got[0].acked != 100 || got[1].acked != 0 {
			t.Errorf("after %d: %+v", upTo, got)
		}
	}
	b.Expire()
}

// blocked runs put and reports whether it waits until release.
func blocked(t *testing.T, put func() bool, release func()) (waited, listening bool) {
	t.Helper()
	done := make(chan bool, 1)
	go func() { done <- put() }()
	synctest.Wait()
	waited = len(done) == 0
	release()
	synctest.Wait()
	if len(done) == 0 {
		t.Fatal("it waits on")
	}
	return waited, <-done
}

func TestAnOutboxHoldsTheProgramBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewOutbox(protocol.NewWriter(io.Discard), nil)
		for range protocol.OutputWindow / PumpBytes {
			b.Put(executor.Stdout, outputOf(PumpBytes))
		}
		b.Put(executor.Stderr, outputOf(PumpBytes)) // which has a window of its own
		one := func() bool { return b.Put(executor.Stdout, outputOf(1)) }
		if waited, listening := blocked(t, one, func() { b.Ack(protocol.Acknowledged{Streams: [2]int64{1, 0}}) }); !waited || !listening {
			t.Errorf("a byte beyond the window: waited %v, listening %v", waited, listening)
		}
		display := func() bool { return b.Event(protocol.FrameDisplay, make([]byte, 3<<20)) }
		if !display() {
			t.Error("the first event was not taken")
		}
		if waited, listening := blocked(t, display, func() { b.Ack(protocol.Acknowledged{Events: 1}) }); !waited || !listening {
			t.Errorf("events beyond their window: waited %v, listening %v", waited, listening)
		}
		for name, put := range map[string]func() bool{"output": one, "an event": display} {
			if _, listening := blocked(t, put, b.Close); listening {
				t.Errorf("%s is taken from a program that nobody listens to", name)
			}
		}
	})
}

func TestABlockedProgramGoesOnWhenNobodyListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewOutbox(protocol.NewWriter(io.Discard), nil)
		for range protocol.OutputWindow / PumpBytes {
			b.Put(executor.Stdout, outputOf(PumpBytes))
		}
		one := func() bool { return b.Put(executor.Stdout, outputOf(1)) }
		if waited, listening := blocked(t, one, b.Close); !waited || listening {
			t.Errorf("waited %v, listening %v", waited, listening)
		}
	})
}

func TestAPumpClosesItsPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	must(t, w.Close())
	NewPump(executor.Stdout, r, NewOutbox(protocol.NewWriter(io.Discard), nil), executor.Unlimited).Run()
	if _, err := r.Stat(); err == nil {
		t.Error("the pipe is open")
	}
}

func TestATallyCountsAllAndKeepsTheLimit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit     int64
		puts      []int
		kept      int64
		truncated bool
	}{
		"without a limit":     {executor.Unlimited, []int{3, 4}, 7, false},
		"exactly the limit":   {7, []int{3, 4}, 7, false},
		"more than the limit": {5, []int{3, 4, 2}, 5, true},
		"no output at all":    {0, []int{3}, 0, true},
		"nothing was written": {0, []int{0}, 0, false},
	} {
		box, tally, total := NewOutbox(protocol.NewWriter(io.Discard), nil), Tally{Limit: test.limit}, int64(0)
		for _, n := range test.puts {
			tally.Put(box, executor.Stdout, outputOf(n), n)
			total += int64(n)
		}
		box.Expire()
		if kept := box.Backlog.streams[0].end; kept != test.kept || tally.Total != total || tally.Truncated != test.truncated {
			t.Errorf("%s: %d of %d bytes were kept, truncated: %t", name, kept, tally.Total, tally.Truncated)
		}
	}
}

// A program that closes its standard input while it runs must not hold up who sends it.
func TestInputThatTheProgramRefusesIsGranted(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	must(t, r.Close())
	granted := 0
	in := protocol.NewInbox(protocol.StdinWindow, func(n int) { granted += n })
	send := func(n int) {
		buf := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
		must(t, in.Put(protocol.Piece{Buffer: buf, Data: (*buf)[:n]}))
	}
	send(1000)
	Feed(in, w)
	send(2000)
	if granted != 3000 {
		t.Errorf("%d of 3000 bytes were granted", granted)
	}
}

// gate is a Writer that hands over each Write and waits until that is taken.
type gate chan []byte

func (g gate) Write(p []byte) (int, error) {
	g <- bytes.Clone(p)
	return len(p), nil
}

func TestThePipeOfAFloodBecomesLarger(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	sent := make(gate)
	pump := NewPump(executor.Stdout, r, NewOutbox(protocol.NewWriter(sent), nil), executor.Unlimited)
	go pump.Run()
	write := func(n int) {
		_, err := w.Write(bytes.Repeat([]byte{'x'}, n))
		must(t, err)
	}
	capacity := func() int {
		n, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
		must(t, err)
		return n
	}
	write(PumpBytes) // the kernel's default, so that nothing waits for a reader
	got := len(<-sent)
	if n := capacity(); n != PumpBytes {
		t.Errorf("the pipe of a program that has written %d bytes takes %d", PumpBytes, n)
	}
	write(holdBytes + 1)
	for got <= PumpBytes+holdBytes {
		got += len(<-sent) - protocol.HeaderBytes - protocol.OutputHeaderBytes
	}
	awaittest.Until(t, "the enlargement of the pipe", func() bool { return capacity() == floodPipe })
	const waiting = floodPipe / 2 // the window has room for it
	write(waiting)
	pieces := 0
	for want := waiting; want > 0; pieces++ {
		want -= len(<-sent) - protocol.HeaderBytes - protocol.OutputHeaderBytes
	}
	if pieces != waiting/floodBytes {
		t.Errorf("%d bytes that wait are sent in %d pieces", waiting, pieces)
	}
	must(t, w.Close())
	<-pump.done
	if want := int64(PumpBytes + holdBytes + 1 + waiting); pump.Total != want {
		t.Errorf("%d bytes were counted, want %d", pump.Total, want)
	}
}

func TestAFloodPausesForMoreAndInteractiveOutputDoesNot(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	type read struct {
		waited time.Duration
		n      int
		want   time.Duration
	}
	for name, reads := range map[string][]read{
		"a fast program":            {{0, floodBytes, 0}, {0, floodBytes / 2, 0}, {0, floodBytes / 8, ms}},
		"a program without a CPU":   {{0, 1, ms}, {0, 1, 2 * ms}, {0, 1, 4 * ms}, {0, 1, 8 * ms}, {0, 1, 16 * ms}, {0, 1, 16 * ms}},
		"a program that got faster": {{0, 1, ms}, {0, 1, 2 * ms}, {0, floodBytes / 4, ms}, {0, 1, 2 * ms}},
		"a program that thinks":     {{0, 1, ms}, {0, 1, 2 * ms}, {holdTime + 1, 1, 0}, {holdTime + 1, floodBytes / 4, 0}},
	} {
		var pause time.Duration
		for i, r := range reads {
			if pause = floodPause(pause, r.waited, r.n); pause != r.want {
				t.Errorf("%s: a pause of %v behind read %d, want %v", name, pause, i, r.want)
			}
		}
	}
}
