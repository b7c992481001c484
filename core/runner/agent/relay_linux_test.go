package agent

import (
	"errors"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// collected returns the types of the frames that r would write now.
func collected(t *testing.T, r *relay) []protocol.FrameType {
	t.Helper()
	g := &gate{}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = g.Write(r.collect(nil)) // it never fails
	return g.types(t)
}

func TestOneFrameAlwaysFitsIntoAQueue(t *testing.T) {
	t.Parallel()
	var q queue
	if q.full(make([]byte, queueBytes+1)) {
		t.Error("an empty queue has no room")
	}
	q.add(make([]byte, queueBytes-1))
	if q.full(make([]byte, 1)) || !q.full(make([]byte, 2)) {
		t.Errorf("a queue of %d bytes does not end at %d", q.bytes, queueBytes)
	}
}

func TestAHostThatComesGetsNothingOfTheHostBefore(t *testing.T) {
	t.Parallel()
	a, x := runningAgent(&gate{}, true)
	before := a.relay.hostWriter()
	for _, kind := range []protocol.FrameType{protocol.FrameProgress, protocol.FrameHelloReply, protocol.FrameSessionReply} {
		if err := before.Send(kind); err != nil {
			t.Fatal(err)
		}
	}
	a.relay.resume(protocol.AppendFrame(nil, protocol.FrameHelloReply, []byte("{}")), x.box.Backlog)
	if got := collected(t, a.relay); !slices.Equal(got, []protocol.FrameType{protocol.FrameHelloReply}) {
		t.Errorf("frames of types %v", got)
	}
	if err := before.Send(protocol.FrameSessionReply); !errors.Is(err, errResumed) {
		t.Errorf("an answer to the host before: %v", err)
	}
	if err := a.relay.hostWriter().Send(protocol.FrameSessionReply); err != nil {
		t.Errorf("an answer to the new host: %v", err)
	}
}

func TestAHostThatIntroducesItselfGetsNothingOfTheExecution(t *testing.T) {
	t.Parallel()
	a, x := runningAgent(&gate{}, true)
	out := a.relay.writer()
	x.box.Put(executor.Stdout, append(make([]byte, protocol.HeaderBytes+protocol.OutputHeaderBytes), "output"...))
	if err := out.Send(protocol.FrameExited); err != nil {
		t.Fatal(err)
	}
	a.relay.pause()
	if err := out.Send(protocol.FrameProgress); err != nil {
		t.Fatal(err)
	}
	if got := collected(t, a.relay); len(got) > 0 {
		t.Errorf("frames of types %v", got)
	}
	a.relay.mu.Lock()
	a.relay.follows = true
	a.relay.mu.Unlock()
	if got, want := collected(t, a.relay), []protocol.FrameType{protocol.FrameOutput, protocol.FrameExited}; !slices.Equal(got, want) {
		t.Errorf("frames of types %v, want %v", got, want)
	}
}

func TestOfSeveralRepliesToPingsTheLastIsSent(t *testing.T) {
	t.Parallel()
	r := newRelay(&gate{})
	out := r.writer()
	for _, payload := range []string{"first", "last"} {
		if err := out.SendRaw(protocol.FrameHelloReply, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if got, want := r.collect(nil), protocol.AppendFrame(nil, protocol.FrameHelloReply, []byte("last")); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
