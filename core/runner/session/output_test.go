//go:build linux

package session

import (
	"bytes"
	"os"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// newStream is a stream of a pipe, and what it gives to the Execution at hand.
func newStream(t *testing.T) (*OutputStream, *os.File, *streamOutput) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	stream := newOutputStream(executor.Stdout, r)
	t.Cleanup(func() {
		stream.close()
		_ = w.Close() // a pipe of the test's
	})
	return stream, w, &streamOutput{}
}

// streamOutput is the output of one Execution.
type streamOutput struct {
	frames bytes.Buffer
	box    *output.Outbox
}

func (o *streamOutput) open() *output.Outbox {
	o.box = output.NewOutbox(protocol.NewWriter(&o.frames), nil)
	return o.box
}

// text returns what came.
func (o *streamOutput) text(t *testing.T) string {
	t.Helper()
	o.box.Expire()
	var text []byte
	for r := protocol.NewReader(bytes.NewReader(o.frames.Bytes())); ; {
		_, n, err := r.Header()
		if err != nil {
			return string(text)
		}
		p, err := r.Payload(n)
		must(t, err)
		out, err := protocol.ParseOutput(p)
		must(t, err)
		text = append(text, out.Data...)
	}
}

func TestWhatIsPrintedBetweenTwoExecutionsIsBounded(t *testing.T) {
	t.Parallel()
	stream, w, out := newStream(t)
	const more = 1000
	for left := earlierBytes + more; left > 0; {
		n := min(left, 32<<10)
		_, err := w.Write(bytes.Repeat([]byte("x"), n))
		must(t, err)
		stream.Drain()
		left -= n
	}
	_, err := w.WriteString("end")
	must(t, err)
	if n := stream.Earlier(); n != earlierBytes {
		t.Errorf("%d bytes are kept, want %d", n, earlierBytes)
	}
	stream.Attach(out.open(), earlierBytes)
	_, err = w.WriteString("!")
	must(t, err)
	got := stream.Detach()
	// What went before counts, is said to be cut, and takes nothing of the Execution's own room.
	if got.Total != earlierBytes+more+4 || !got.Truncated {
		t.Errorf("got %+v", got)
	}
	if text := out.text(t); len(text) != earlierBytes || text[len(text)-3:] != "end" {
		t.Errorf("%d bytes came, which end with %q", len(text), text[len(text)-min(len(text), 5):])
	}
	// Of the next Execution nothing of that is left.
	stream.Attach(out.open(), executor.Unlimited)
	if got := stream.Detach(); got.Total != 0 || got.Truncated {
		t.Errorf("the next got %+v", got)
	}
}

func TestWhatLiesInThePipeBelongsToWhoIsThere(t *testing.T) {
	t.Parallel()
	stream, w, out := newStream(t)
	print := func(text string) {
		t.Helper()
		_, err := w.WriteString(text)
		must(t, err)
	}
	print("greeting")
	stream.forget()
	if n := stream.Earlier(); n != 0 {
		t.Errorf("%d bytes of the greeting are kept", n)
	}
	print("early")
	if n := stream.Earlier(); n != 5 {
		t.Errorf("%d bytes are kept, want 5", n)
	}
	stream.Attach(out.open(), executor.Unlimited)
	print(", last")
	if got := stream.Detach(); got.Total != 11 || out.text(t) != "early, last" {
		t.Errorf("%+v, %q", got, out.text(t))
	}
	print("late")
	if n := stream.Earlier(); n != 4 || out.text(t) != "early, last" {
		t.Errorf("%d bytes are kept, want 4, and the Execution before has %q", n, out.text(t))
	}
}
