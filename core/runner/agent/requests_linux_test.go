package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/session"
)

// callingAgent is an agent that serves calls with the numbers from 1 to n, and writes to g.
func callingAgent(g *gate, n int) *agent {
	a := newAgent(nil)
	a.ready, a.out = true, protocol.NewWriter(g)
	a.calls.open = map[uint32]*session.Request{}
	for i := range n {
		a.calls.open[uint32(i+1)] = &session.Request{ //nolint:gosec // few
			Body: protocol.NewInbox(protocol.FileWindow, func(int) {}), Credit: protocol.NewCredit(0),
		}
	}
	return a
}

func TestAFrameOfACallThatCannotBeBreaksTheProtocol(t *testing.T) {
	t.Parallel()
	a := callingAgent(&gate{}, 1)
	for name, c := range map[string]struct {
		kind    protocol.FrameType
		payload []byte
		broken  bool
	}{
		"data":                     {protocol.FrameSessionData, protocol.CallPayload(1, 'x'), false},
		"no data":                  {protocol.FrameSessionData, protocol.CallPayload(1), true},
		"an end without its byte":  {protocol.FrameSessionEnd, protocol.CallPayload(1), true},
		"credit":                   {protocol.FrameSessionCredit, protocol.CallCredit(1, 5), false},
		"credit that is too short": {protocol.FrameSessionCredit, protocol.CallPayload(1, 5), true},
		"no number":                {protocol.FrameSessionData, []byte{1}, true},
		"a call that is over":      {protocol.FrameSessionData, protocol.CallPayload(2), false},
		"a call that is no JSON":   {protocol.FrameSession, []byte("{"), true},
		"a number that is in use":  {protocol.FrameSession, []byte(`{"n":1,"op":"list"}`), true},
	} {
		err := a.handleCall(protocol.NewReader(bytes.NewReader(c.payload)), c.kind, len(c.payload))
		if errors.Is(err, protocol.ErrFrame) != c.broken || !c.broken && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallsAreBoundedInNumber(t *testing.T) {
	t.Parallel()
	g := &gate{}
	a := callingAgent(g, protocol.MaxCalls)
	if err := a.beginCall(protocol.SessionCall{N: protocol.MaxCalls + 1, Op: protocol.CallList}); err != nil {
		t.Fatal(err)
	}
	a.calls.mu.Lock()
	n := len(a.calls.open)
	a.calls.mu.Unlock()
	frames := protocol.NewReader(bytes.NewReader(g.written.Bytes()))
	_, size, err := frames.Header()
	if err != nil {
		t.Fatal(err)
	}
	var r protocol.SessionReply
	p, err := frames.Payload(size)
	if err = errors.Join(err, json.Unmarshal(p, &r)); err != nil || r.N != protocol.MaxCalls+1 || r.Code != executor.Exhausted || n != protocol.MaxCalls {
		t.Errorf("%d calls are open, the reply is %+v, %v", n, r, err)
	}
}

func TestAFrameEndsASilence(t *testing.T) {
	t.Parallel()
	a := newAgent(nil)
	a.silence.watched = true
	a.silence.missed.Store(silenceLooks)
	if a.heard(); a.silence.missed.Load() != 0 {
		t.Errorf("%d looks have missed a frame", a.silence.missed.Load())
	}
}
