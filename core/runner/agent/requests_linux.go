package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
	"github.com/python-executor/python-executor/core/runner/session"
)

// hostCalls are the host's requests about the session that are served.
type hostCalls struct {
	mu   sync.Mutex
	open map[uint32]*session.Request
}

// forget ends the requests of a host that is gone.
func (h *hostCalls) forget() {
	h.mu.Lock()
	open := h.open
	h.open = nil
	h.mu.Unlock()
	for _, k := range open {
		k.Abort()
	}
}

func (h *hostCalls) find(n uint32) *session.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[n]
}

// handleCall handles a frame about a session. It never waits.
func (a *agent) handleCall(frames *protocol.Reader, t protocol.FrameType, n int) error {
	p, err := frames.Payload(n)
	if err != nil {
		return err
	}
	if !a.ready {
		return fmt.Errorf("%w: frame type %d before a hello", protocol.ErrFrame, t)
	}
	if t == protocol.FrameSession {
		var req protocol.SessionCall
		if err := json.Unmarshal(p, &req); err != nil {
			return fmt.Errorf("%w: a session's call: %w", protocol.ErrFrame, err)
		}
		return a.beginCall(req)
	}
	if len(p) < protocol.CallHeaderBytes {
		return fmt.Errorf("%w: a call's frame of %d bytes", protocol.ErrFrame, len(p))
	}
	k := a.calls.find(binary.BigEndian.Uint32(p))
	p = p[protocol.CallHeaderBytes:]
	switch {
	case k == nil:
		return nil // it has been answered
	case t == protocol.FrameSessionData && len(p) > 0:
		buf := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
		return k.Body.Put(protocol.Piece{Buffer: buf, Data: (*buf)[:copy(*buf, p)]})
	case t == protocol.FrameSessionEnd && len(p) == 1:
		k.Body.End(io.EOF)
		return nil
	case t == protocol.FrameSessionCredit && len(p) == 4:
		k.Credit.Add(int64(binary.BigEndian.Uint32(p)))
		return nil
	default:
		return fmt.Errorf("%w: a call's frame type %d of %d bytes", protocol.ErrFrame, t, n)
	}
}

func (a *agent) beginCall(req protocol.SessionCall) error {
	if req.Op == protocol.CallStop {
		if k := a.calls.find(req.N); k != nil {
			k.Abort()
		}
		return nil
	}
	out := a.out
	if a.relay != nil {
		out = a.relay.hostWriter()
	}
	k := &session.Request{SessionCall: req, Out: out, Credit: protocol.NewCredit(protocol.FileWindow)}
	k.Ctx, k.Stop = context.WithCancelCause(context.Background())
	k.Body = protocol.NewInbox(protocol.FileWindow, func(n int) { _ = out.Send(protocol.FrameSessionCredit, protocol.CallCredit(req.N, n)...) }) // a broken connection shows in the reader
	a.calls.mu.Lock()
	defer a.calls.mu.Unlock()
	if a.calls.open[req.N] != nil {
		return fmt.Errorf("%w: two calls of number %d", protocol.ErrFrame, req.N)
	}
	if len(a.calls.open) >= protocol.MaxCalls {
		k.Stop(nil)
		return out.SendJSON(protocol.FrameSessionReply, protocol.SessionReply{N: req.N, Code: executor.Exhausted, Message: fmt.Sprintf("more than %d calls at once", protocol.MaxCalls)})
	}
	if a.calls.open == nil {
		a.calls.open = map[uint32]*session.Request{}
	}
	a.calls.open[req.N] = k
	a.Go(func() { a.call(k) })
	return nil
}

// call serves k and answers it.
func (a *agent) call(k *session.Request) {
	reply, err := a.answerCall(k)
	a.calls.mu.Lock()
	if a.calls.open[k.N] == k {
		delete(a.calls.open, k.N)
	}
	a.calls.mu.Unlock()
	k.Abort() // drops what still comes
	reply.N = k.N
	if err != nil {
		reply = protocol.SessionReply{N: k.N, Code: executor.CodeOf(err), Message: err.Error()}
		var e *executor.Error
		if errors.As(err, &e) && len(e.Fields) > 0 {
			reply.Field, reply.Message = e.Fields[0].Field, e.Fields[0].Message
		}
		if reply.Code == executor.Internal {
			a.Logf("session: %s: %v", k.Op, err)
		}
	}
	_ = k.Out.SendJSON(protocol.FrameSessionReply, reply) // a broken connection shows in the reader
}

func (a *agent) answerCall(k *session.Request) (protocol.SessionReply, error) {
	var reply protocol.SessionReply
	if k.Op == protocol.CallOpen {
		if k.Start == nil {
			return reply, executor.Errorf(executor.Invalid, "start: must be given to open a session")
		}
		return reply, a.openSession(k.Ctx, *k.Start)
	}
	s := a.sessionNow()
	if k.Op == protocol.CallClose {
		a.endSession()
		return reply, nil
	}
	if s == nil {
		return reply, executor.Errorf(executor.NotFound, "no session is open")
	}
	var err error
	switch k.Op {
	case protocol.CallRestart:
		return reply, s.Restart(k.Ctx, k.Wipe)
	case protocol.CallVariables:
		reply.Variables, err = s.Variables(k.Ctx)
		return reply, err
	case protocol.CallPath:
		return reply, s.AddPath(k.Ctx, k.Path)
	case protocol.CallList:
		return reply, s.ListFiles(k)
	case protocol.CallRead:
		return reply, s.ReadFile(k)
	case protocol.CallWrite:
		reply.File, err = s.WriteFile(k)
		return reply, err
	case protocol.CallRemove:
		return reply, s.RemoveFile(k.Path)
	default:
		return reply, executor.Errorf(executor.Unimplemented, "unknown operation %q", k.Op)
	}
}

// openSession opens the one session of the runner. ctx bounds it.
func (a *agent) openSession(ctx context.Context, start protocol.SessionStart) error {
	a.life.Lock()
	defer a.life.Unlock()
	a.mu.Lock()
	before, running := a.current, a.running
	open := a.session != nil
	a.mu.Unlock()
	if open || running {
		return executor.Errorf(executor.Conflict, "the runner has an open session, or runs an Execution")
	}
	if start.Network && a.Config.InNetworkNamespace {
		return executor.FieldErrorf(executor.Unimplemented, "network", "not available in this sandbox")
	}
	var ready *sandbox.Prepared
	if before != nil {
		before.awaitCleaned()
		ready = before.takeNext()
	}
	if a.forks.close() { // its processes are not the session's, and could write to the folder
		if err := ready.RemoveFolder(); err != nil {
			a.Logf("clean up: %v", err)
		}
	}
	h := a.aheadFor(start)
	s, err := session.Open(ctx, a.Sandbox, start, ready, h.forSession())
	if err != nil {
		h.kill()
		return err
	}
	a.mu.Lock()
	a.session = s
	a.mu.Unlock()
	return nil
}

// endSession ends the open session, or the session that is being opened.
func (a *agent) endSession() {
	a.calls.forget() // what is at work is about that one, too
	a.life.Lock()
	defer a.life.Unlock()
	a.mu.Lock()
	s := a.session
	a.session = nil
	a.mu.Unlock()
	if s == nil {
		return
	}
	if err := s.Close(); err != nil {
		a.Logf("end of the session: %v", err)
	}
}

// sessionNow returns the open session, or nil.
func (a *agent) sessionNow() *session.Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session
}
