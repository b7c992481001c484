package runner

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
)

// hostCalls are the calls of the host that are at work.
type hostCalls struct {
	mu   sync.Mutex
	open map[uint32]*hostCall
}

// hostCall is one of them.
type hostCall struct {
	sessionCall
	calls  *hostCalls
	out    *frameWriter
	ctx    context.Context
	stop   context.CancelCauseFunc
	body   *inbox  // of a file that is written
	credit *credit // of a file that is read
}

var errStoppedCall = errors.New("the host has left")

// forget ends the calls of a host that is gone.
func (h *hostCalls) forget() {
	h.mu.Lock()
	open := h.open
	h.open = nil
	h.mu.Unlock()
	for _, k := range open {
		k.abort()
	}
}

func (h *hostCalls) find(n uint32) *hostCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[n]
}

func (k *hostCall) abort() {
	k.stop(errStoppedCall)
	k.body.abort(errStoppedCall)
	k.body.swallow()
	k.credit.stop(errStoppedCall)
}

// handleCall does what a frame about a session asks for. It never waits.
func (a *agent) handleCall(frames *frameReader, t frameType, n int) error {
	p, err := frames.payload(n)
	if err != nil {
		return err
	}
	if !a.ready {
		return fmt.Errorf("%w: frame type %d before a hello", errFrame, t)
	}
	if t == frameSession {
		var req sessionCall
		if err := json.Unmarshal(p, &req); err != nil {
			return fmt.Errorf("%w: a session's call: %w", errFrame, err)
		}
		return a.beginCall(req)
	}
	if len(p) < callHeader {
		return fmt.Errorf("%w: a call's frame of %d bytes", errFrame, len(p))
	}
	k := a.calls.find(binary.BigEndian.Uint32(p))
	p = p[callHeader:]
	switch {
	case k == nil:
		return nil // it has been answered
	case t == frameSessionData && len(p) > 0:
		buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
		return k.body.put(piece{buf, (*buf)[:copy(*buf, p)]})
	case t == frameSessionEnd && len(p) == 1:
		k.body.end(io.EOF)
		return nil
	case t == frameSessionCredit && len(p) == 4:
		k.credit.add(int64(binary.BigEndian.Uint32(p)))
		return nil
	default:
		return fmt.Errorf("%w: a call's frame type %d of %d bytes", errFrame, t, n)
	}
}

func (a *agent) beginCall(req sessionCall) error {
	if req.Op == callStop {
		if k := a.calls.find(req.N); k != nil {
			k.abort()
		}
		return nil
	}
	out := a.out
	if a.up != nil {
		out = a.up.hostWriter()
	}
	k := &hostCall{sessionCall: req, calls: &a.calls, out: out, credit: newCredit(fileWindow)}
	k.ctx, k.stop = context.WithCancelCause(context.Background())
	k.body = newInbox(fileWindow, func(n int) { _ = out.frame(frameSessionCredit, callCredit(req.N, n)...) }) // a broken connection shows in the reader
	a.calls.mu.Lock()
	defer a.calls.mu.Unlock()
	if a.calls.open[req.N] != nil {
		return fmt.Errorf("%w: two calls of number %d", errFrame, req.N)
	}
	if len(a.calls.open) >= maxCalls {
		k.stop(nil)
		return out.json(frameSessionReply, sessionReply{N: req.N, Code: executor.Exhausted, Message: fmt.Sprintf("more than %d calls at once", maxCalls)})
	}
	if a.calls.open == nil {
		a.calls.open = map[uint32]*hostCall{}
	}
	a.calls.open[req.N] = k
	a.goGuarded(func() { a.call(k) })
	return nil
}

// call does what k asks for and answers.
func (a *agent) call(k *hostCall) {
	reply, err := a.answerCall(k)
	a.calls.mu.Lock()
	if a.calls.open[k.N] == k {
		delete(a.calls.open, k.N)
	}
	a.calls.mu.Unlock()
	k.abort() // what comes yet is for nobody
	reply.N = k.N
	if err != nil {
		reply = sessionReply{N: k.N, Code: executor.CodeOf(err), Message: err.Error()}
		var e *executor.Error
		if errors.As(err, &e) && len(e.Fields) > 0 {
			reply.Field, reply.Message = e.Fields[0].Field, e.Fields[0].Message
		}
		if reply.Code == executor.Internal {
			a.logf("session: %s: %v", k.Op, err)
		}
	}
	_ = k.out.json(frameSessionReply, reply) // a broken connection shows in the reader
}

func (a *agent) answerCall(k *hostCall) (sessionReply, error) {
	var reply sessionReply
	if k.Op == callOpen {
		if k.Start == nil {
			return reply, executor.Errorf(executor.Invalid, "open without a start")
		}
		return reply, a.openSession(k.ctx, *k.Start)
	}
	s := a.sessionNow()
	if k.Op == callClose {
		a.endSession()
		return reply, nil
	}
	if s == nil {
		return reply, executor.Errorf(executor.NotFound, "no session is open")
	}
	var err error
	switch k.Op {
	case callRestart:
		return reply, s.restart(k.ctx, k.Wipe)
	case callVariables:
		reply.Variables, err = s.variables(k.ctx)
		return reply, err
	case callPath:
		return reply, s.addPath(k.ctx, k.Path)
	case callList:
		return reply, s.listFiles(k)
	case callRead:
		return reply, s.readFile(k)
	case callWrite:
		reply.File, err = s.writeFile(k)
		return reply, err
	case callRemove:
		return reply, s.removeFile(k.Path)
	default:
		return reply, executor.Errorf(executor.Unimplemented, "%q is not known here", k.Op)
	}
}

// The patience with an interpreter that is asked for something between two cells: then it is interrupted, and given up.
const (
	askPatience       = 5 * time.Second
	interruptPatience = 2 * time.Second
)

// ask asks the interpreter for something and waits for the answer of that kind.
func (s *session) ask(ctx context.Context, o drivers.Operation, kind string) (drivers.Answer, error) {
	if err := s.take(ctx.Done()); err != nil {
		return drivers.Answer{}, executor.Errorf(executor.Unavailable, "%w", err)
	}
	defer s.give()
	i := s.now()
	if i == nil {
		return drivers.Answer{}, executor.Errorf(executor.Conflict, "the interpreter is gone; restart the session")
	}
	o.N = i.number()
	raw, err := s.driver.Encode(o)
	if err != nil {
		return drivers.Answer{}, executor.Errorf(executor.Invalid, "%w", err)
	}
	answers, leave := i.hear()
	defer leave()
	began := time.Now()
	i.write(raw)
	patience := time.NewTimer(askPatience)
	defer patience.Stop()
	interrupted := false
	for {
		select {
		case a := <-answers:
			if a.N == o.N && a.Op == kind {
				return a, nil
			}
		case <-i.exited:
			s.stopInterpreter()
			return drivers.Answer{}, executor.Errorf(executor.Conflict, "the interpreter ended: %s", describeEnd(i.end.status))
		case <-i.broken:
			s.stopInterpreter()
			return drivers.Answer{}, executor.Errorf(executor.Conflict, "the interpreter was killed: %w", i.why)
		case <-patience.C:
			if interrupted {
				return drivers.Answer{}, executor.Errorf(executor.Unavailable, "the interpreter does not answer")
			}
			interrupted = true
			newInterruption(i, o.N, began).send()
			patience.Reset(interruptPatience)
		}
	}
}

func (s *session) variables(ctx context.Context) ([]executor.Variable, error) {
	if !s.driver.Variables {
		return nil, executor.Errorf(executor.Unimplemented, "variables cannot be listed in this language")
	}
	a, err := s.ask(ctx, drivers.Operation{Op: "variables"}, "variables")
	if err != nil {
		return nil, err
	}
	return parseVariables(a.Variables)
}

// parseVariables reads what a driver, or who poses as one, calls its variables, within bounds.
func parseVariables(raw json.RawMessage) ([]executor.Variable, error) {
	list := []executor.Variable{}
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return nil, executor.Errorf(executor.Unavailable, "the interpreter's answer is no list")
	}
	for d.More() && len(list) < maxVariables {
		var v executor.Variable
		if err := d.Decode(&v); err != nil {
			return nil, executor.Errorf(executor.Unavailable, "the interpreter's answer is broken: %w", err)
		}
		v.Name, v.Type, v.Preview = shortText(v.Name), shortText(v.Type), shortText(v.Preview)
		list = append(list, v)
	}
	return list, nil
}

// maxPreview is the contract's, in characters.
const maxPreview = 200

func shortText(s string) string {
	n := 0
	for i := range s {
		if n++; n > maxPreview {
			return s[:i]
		}
	}
	return s
}

func (s *session) addPath(ctx context.Context, dir string) error {
	if !s.driver.Paths {
		return executor.Errorf(executor.Unimplemented, "this language has no path to add to")
	}
	if _, err := s.ask(ctx, drivers.Operation{Op: "path", Dir: dir}, "added"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = append(s.paths, dir)
	env := map[string]string{}
	for k, v := range s.env {
		env[k] = v
	}
	env["PYTHONPATH"] = dir
	if old := s.env["PYTHONPATH"]; old != "" {
		env["PYTHONPATH"] = dir + ":" + old
	}
	s.env = env
	return nil
}
