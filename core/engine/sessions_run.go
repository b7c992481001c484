package engine

import (
	"context"
	"fmt"

	"github.com/python-executor/python-executor/core/executor"
)

// checkRunInSession finds what is wrong with a request to run in a Session, and gives it what is the Session's.
func (e *Engine) checkRunInSession(ctx context.Context, req *request) error {
	var invalid, missing problems
	validate(req.spec, req.in, &invalid)
	ownOfSession(req.spec, req.in, &invalid)
	asked := e.resolveLimits(req.spec.Limits, &invalid)
	if err := invalid.err(executor.Invalid); err != nil {
		return err
	}
	s, view, err := e.activeSession(ctx, req.spec.Session)
	if err != nil {
		return err
	}
	req.session, req.backend = s, s.backend
	req.limits = limitsInSession(view, req.spec.Limits, asked)
	if req.info, err = e.info(ctx, req.backend); err != nil {
		return err
	}
	c := req.info.Capabilities
	ask := func(asked, able bool, field string) {
		if asked && !able {
			missing.add(field, "backend %s cannot do this", req.info.Name)
		}
	}
	ask(true, c.Sessions, "session")
	ask(len(req.spec.Command) > 0, c.Commands, "command")
	ask(len(req.spec.Outputs) > 0, c.Artifacts, "outputs")
	ask(req.spec.OutputsChanged, c.Artifacts, "outputs_changed")
	ask(req.spec.SampleInterval > 0, c.MemorySamples, "sample_interval_seconds")
	return missing.err(executor.Unimplemented)
}

// limitsInSession are a Session's, but for what the Execution itself asked for.
func limitsInSession(s executor.Session, asked, resolved executor.Limits) executor.Limits {
	l := s.Limits
	if asked.Timeout != 0 {
		l.Timeout = resolved.Timeout
	}
	if asked.OutputBytes != 0 {
		l.OutputBytes = resolved.OutputBytes
	}
	if asked.KillGrace != 0 {
		l.KillGrace = resolved.KillGrace
	}
	return l
}

// ownOfSession records every field that a Session fixes for its Executions.
func ownOfSession(s executor.Spec, in executor.Input, p *problems) {
	fixed := func(set bool, field string) {
		if set {
			p.add(field, "is the session's, not the execution's")
		}
	}
	fixed(s.Language != "", "language")
	fixed(s.Entrypoint != "", "entrypoint")
	fixed(len(s.Env) > 0, "env")
	fixed(s.PythonVersion != "", "python_version")
	fixed(s.Interpreter != "", "interpreter")
	fixed(s.Image != "", "docker_image")
	fixed(s.Requirements != "", "requirements_txt")
	fixed(len(s.PreCommands) > 0, "pre_commands")
	fixed(s.Detect != nil, "detect")
	fixed(s.Network != "", "config.network_disabled")
	fixed(s.Backend != "", "backend")
	fixed(s.Script != "", "script")
	fixed(s.HostDirectory != "", "host_directory")
	fixed(s.Limits.MemoryBytes != 0, "config.memory_mb")
	fixed(s.Limits.DiskBytes != 0, "config.disk_mb")
	fixed(s.Limits.CPUShares != 0, "config.cpu_shares")
	fixed(s.Limits.PIDs != 0, "config.pids")
	if in.Workspace != nil {
		p.add(fieldTar, "a session has its own files")
	}
	if len(s.Args) > 0 && len(s.Command) == 0 {
		p.add("args", "belong to a command here")
	}
}

// ranInSession notes what an attempt at x, which was handed to its backend, did to its Session. It comes before the end of
// x's turn.
func (e *Engine) ranInSession(x *execution, r executor.Result) {
	s := x.session
	if s == nil || x.granted.IsZero() {
		return
	}
	e.mu.Lock()
	s.usedLocked()
	restarted := r.SessionState == executor.SessionStateRestarted
	if restarted {
		s.rec.Restarts++
	}
	e.mu.Unlock()
	switch {
	case restarted:
		s.save()
	case r.SessionState == executor.SessionStateLost:
		e.lose(s, interpreterEnd(r), false)
	case r.Status == executor.StatusLost:
		e.lookSoon()
	}
}

func interpreterEnd(r executor.Result) string {
	switch {
	case r.Status == executor.StatusLost && r.Failure != nil:
		return r.Failure.Message
	case r.Status == executor.StatusOutOfMemory:
		return "its interpreter ran out of memory"
	case r.Signal != "":
		return "its interpreter was ended by " + r.Signal
	case r.ExitCode != nil:
		return fmt.Sprintf("its interpreter ended with exit code %d", *r.ExitCode)
	}
	return "its interpreter died"
}

// recoverInSession finds the Session of an Execution of an earlier life. ok is false, and the reason given, if it can run
// no more.
func (e *Engine) recoverInSession(rec executor.Record) (s *session, reason string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s = e.sessions[rec.Spec.Session]
	switch {
	case s == nil:
		return nil, "its session is gone", false
	case s.rec.Status != executor.SessionActive:
		return s, fmt.Sprintf("its session is %s: %s", s.rec.Status, s.rec.Reason), false
	}
	return s, "", true
}
