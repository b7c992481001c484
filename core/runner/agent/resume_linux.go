package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// errCut ends a Workspace whose host has gone before it had sent all.
var errCut = sandbox.Failed(executor.Unavailable, executor.PhasePrepare, "the workspace was not sent to its end: the sender is gone")

// cut ends the input of the current Execution, because its host is gone. Input that has ended already stays whole.
func (a *agent) cut() {
	if x := a.now(); x != nil {
		x.workspace.End(errCut)
		x.stdin.End(io.EOF)
	}
}

// resume serves a host that takes over: it gets all that it missed. A host that asks for what the runner does not have is
// refused, and nothing changes.
func (a *agent) resume(h protocol.Hello) error {
	if !h.Resume || a.relay == nil || h.Version != protocol.Version {
		return errors.Join(a.reply("this runner serves another host"), fmt.Errorf("%w: a second hello", protocol.ErrFrame))
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
	var box *output.Backlog
	a.relay.pause() // else the output from there on could be sent before the introduction
	if x != nil {
		box = x.box.Backlog
		state.Running, state.Events = a.running, box.Rewind(h.Stdout, h.Stderr)
	}
	intro, err := introduction(h.Nonce, state)
	if err == nil && x != nil && a.startedEvent != nil {
		intro, err = protocol.AppendJSON(intro, protocol.FrameStarted, a.startedEvent)
	}
	if err != nil {
		return err
	}
	if x != nil {
		a.running = true
		x.artifacts.Stop(errResumed)
		x.artifacts = protocol.NewCredit(protocol.ArtifactWindow)
	}
	a.relay.resume(intro, box)
	a.calls.forget()
	close(a.resumed)
	a.resumed = make(chan struct{})
	return nil
}

// refusal returns why the runner does not have what h asks for, or nil. The caller holds the lock.
func (a *agent) refusal(h protocol.Hello) error {
	x := a.current
	switch {
	case h.ExecutionID == "":
		return nil
	case x == nil:
		return fmt.Errorf("execution %s is not in this runner", h.ExecutionID)
	case x.start.ExecutionID != h.ExecutionID:
		return fmt.Errorf("execution %s is not in this runner, which has %s", h.ExecutionID, x.start.ExecutionID)
	default:
		return x.box.Backlog.Covers(h.Stdout, h.Stderr)
	}
}

// introduction returns the nonce that a host that resumes looks for, and the reply to its Hello.
func introduction(nonce []byte, state protocol.HelloReply) ([]byte, error) {
	return protocol.AppendJSON(bytes.Clone(nonce), protocol.FrameHelloReply, state)
}

// delivery returns what to send the Artifacts and the Result of x with. resumed is closed when they have to be sent again. out
// is nil if another Execution has begun, and they are not wanted any more.
func (a *agent) delivery(x *execution) (out *protocol.Writer, artifacts *protocol.Credit, resumed <-chan struct{}) {
	if a.relay == nil {
		return a.out, x.artifacts, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != x {
		return nil, nil, nil
	}
	return a.relay.writer(), x.artifacts, a.resumed
}

// deliver collects the artifacts and answers. Where hosts come and go, it does so again for each of them until x is released.
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
