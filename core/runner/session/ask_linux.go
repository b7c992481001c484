package session

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// How long an interpreter may take to answer between two cells. After askPatience it is interrupted, after interruptPatience
// more the request fails.
const (
	askPatience       = 5 * time.Second
	interruptPatience = 2 * time.Second
)

// ask sends an operation to the interpreter and waits for the answer of that kind.
func (s *Session) ask(ctx context.Context, o drivers.Operation, kind string) (drivers.Answer, error) {
	if err := s.Take(ctx.Done()); err != nil {
		return drivers.Answer{}, executor.Errorf(executor.Unavailable, "%w", err)
	}
	defer s.Give()
	i := s.Now()
	if i == nil {
		return drivers.Answer{}, executor.Errorf(executor.Conflict, "the interpreter has ended; restart the session")
	}
	o.N = i.Number()
	raw, err := s.Driver.Encode(o)
	if err != nil {
		return drivers.Answer{}, executor.Errorf(executor.Invalid, "%w", err)
	}
	answers, leave := i.Hear()
	defer leave()
	began := time.Now()
	i.Write(raw)
	patience := time.NewTimer(askPatience)
	defer patience.Stop()
	interrupted := false
	for {
		select {
		case a := <-answers:
			if a.N == o.N && a.Op == kind {
				return a, nil
			}
		case <-i.Exited:
			s.StopInterpreter()
			return drivers.Answer{}, executor.Errorf(executor.Conflict, "the interpreter ended: %s", describeEnd(i.End.Status))
		case <-i.Broken:
			s.StopInterpreter()
			return drivers.Answer{}, executor.Errorf(executor.Conflict, "the interpreter was killed: %w", i.Why)
		case <-patience.C:
			if interrupted {
				return drivers.Answer{}, executor.Errorf(executor.Unavailable, "the interpreter does not answer")
			}
			interrupted = true
			NewInterruption(i, o.N, began).Send()
			patience.Reset(interruptPatience)
		}
	}
}

func (s *Session) Variables(ctx context.Context) ([]executor.Variable, error) {
	if !s.Driver.Variables {
		return nil, executor.Errorf(executor.Unimplemented, "variables are not available in this language")
	}
	a, err := s.ask(ctx, drivers.Operation{Op: "variables"}, "variables")
	if err != nil {
		return nil, err
	}
	return parseVariables(a.Variables)
}

// parseVariables reads a driver's list of variables. The user's code can forge it, so it is bounded.
func parseVariables(raw json.RawMessage) ([]executor.Variable, error) {
	list := []executor.Variable{}
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return nil, executor.Errorf(executor.Unavailable, "the interpreter's answer is not a list")
	}
	for d.More() && len(list) < protocol.MaxVariables {
		var v executor.Variable
		if err := d.Decode(&v); err != nil {
			return nil, executor.Errorf(executor.Unavailable, "the interpreter's answer is broken: %w", err)
		}
		v.Name, v.Type, v.Preview = shortText(v.Name), shortText(v.Type), shortText(v.Preview)
		list = append(list, v)
	}
	return list, nil
}

// maxPreview bounds a variable's texts, in characters. The contract says so.
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

// reach makes a folder of the machine visible in the session's box.
func (s *Session) reach(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // the folder is being removed
		return ErrClosing
	}
	return s.Folder.ReachOne(dir)
}

func (s *Session) AddPath(ctx context.Context, dir string) error {
	if !s.Driver.Paths {
		return executor.Errorf(executor.Unimplemented, "this language has no module search path")
	}
	if err := s.reach(dir); err != nil {
		return executor.Errorf(executor.Internal, "path: %w", err)
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
