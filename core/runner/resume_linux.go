package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// errCut ends a Workspace whose host went away while it was sending it.
var errCut = failed(executor.Unavailable, executor.PhasePrepare, "the workspace is cut off: who was sending it went away")

// cut ends the input of the Execution at hand: who was sending it is gone. What has ended already is whole.
func (a *agent) cut() {
	if x := a.now(); x != nil {
		x.workspace.end(errCut)
		x.stdin.end(io.EOF)
	}
}

// resume turns to a host that came back, or that came in the place of another: it gets all that it missed. One that asks
// for something else than we have is refused, and nothing changes.
func (a *agent) resume(h hello) error {
	if !h.Resume || h.Epoch != 0 && h.Epoch != a.epoch || a.up == nil || h.Version != Version {
		return errors.Join(a.reply("this runner serves another host"), fmt.Errorf("%w: a second hello", errFrame))
	}
	if len(h.Nonce) > 0 && bytes.Equal(h.Nonce, a.nonce) {
		return nil // it has introduced itself twice; the answer to the first time is on its way
	}
	state := a.state("")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nonce = h.Nonce
	x := a.current
	if refusal := a.refusal(h); refusal != nil {
		state.Error, state.Code = refusal.Error(), executor.NotFound
		x = nil
	}
	if h.ExecutionID == "" {
		x = nil
	}
	var box *kept
	a.up.pause() // else the output from there on could be sent before the introduction
	if x != nil {
		box = x.box.kept
		state.Running, state.Events = a.running, box.rewind(h.Stdout, h.Stderr)
	}
	intro, err := introduction(h.Nonce, state)
	if err == nil && x != nil && a.startedEvent != nil {
		intro, err = appendJSON(intro, frameStarted, a.startedEvent)
	}
	if err != nil {
		return err
	}
	if x != nil {
		a.running = true
		x.artifacts.stop(errResumed)
		x.artifacts = newCredit(artifactWindow)
	}
	a.up.resume(intro, box)
	a.calls.forget()
	close(a.resumed)
	a.resumed = make(chan struct{})
	return nil
}

// refusal says why we have not what h asks for; nil: we have. The caller holds the lock.
func (a *agent) refusal(h hello) error {
	x := a.current
	switch {
	case h.ExecutionID == "":
		return nil
	case x == nil:
		return fmt.Errorf("execution %s is not here", h.ExecutionID)
	case x.start.ExecutionID != h.ExecutionID:
		return fmt.Errorf("execution %s is not here; %s is", h.ExecutionID, x.start.ExecutionID)
	default:
		return x.box.kept.covers(h.Stdout, h.Stderr)
	}
}

// introduction is what a host that came back looks for, and the answer to its hello.
func introduction(nonce []byte, state helloReply) ([]byte, error) {
	return appendJSON(bytes.Clone(nonce), frameHelloReply, state)
}

func appendJSON(buf []byte, t frameType, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	at := len(buf)
	buf = append(buf, make([]byte, frameHeader)...)
	putHeader(buf[at:], t, len(raw))
	return append(buf, raw...), nil
}

// delivery is what the Artifacts and the Result of x are sent with; resumed is closed when they are to be sent again. A nil
// out: nobody wants them any more, for another Execution has begun.
func (a *agent) delivery(x *execution) (out *frameWriter, artifacts *credit, resumed <-chan struct{}) {
	if a.up == nil {
		return a.out, x.artifacts, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != x {
		return nil, nil, nil
	}
	return a.up.writer(), x.artifacts, a.resumed
}

// deliver collects and answers: where hosts come back for each of them anew, until the Execution is let go.
func (x *execution) deliver(ran bool) {
	bare := x.res
	defer func() { x.answeredOnce() }()
	for {
		out, artifacts, resumed := x.agent.delivery(x)
		if out == nil {
			return
		}
		x.res = bare
		var err error
		if ran {
			err = x.collect(out, artifacts)
		}
		if !errors.Is(err, errResumed) {
			x.agent.answer(x, out)
		}
		if resumed == nil {
			return
		}
		x.answeredOnce()
		select {
		case <-resumed:
		case <-x.released:
			return
		case <-x.dropped:
			return
		}
	}
}
