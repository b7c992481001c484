package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	maxSessionName        = 200
	maxSessionDescription = 4 << 10
)

// checkSession finds everything that is wrong with an OpenSession on b, and returns what is asked for with its defaults. b is nil if there
// is no such backend.
func (e *Engine) checkSession(ctx context.Context, owner string, asked executor.Session, b *backend) (executor.Session, error) {
	now := e.now()
	var invalid, missing executor.Problems
	s := executor.Session{
		Owner: owner, Name: asked.Name, Description: asked.Description, Backend: cmp.Or(asked.Spec.Backend, now.defaultBackend),
		Language: cmp.Or(asked.Language, asked.Spec.Language, executor.LanguagePython),
		Spec:     asked.Spec.Clone(), IdleTimeout: asked.IdleTimeout, MaxLife: asked.MaxLife,
	}
	if asked.Language != "" && asked.Spec.Language != "" && asked.Language != asked.Spec.Language {
		invalid.Add("language", "must be given once (got %q and %q)", clip(string(asked.Language), 100), clip(string(asked.Spec.Language), 100))
	}
	s.Spec.Language = s.Language
	if s.Language == executor.LanguagePython {
		s.Preload = slices.Clone(now.sessions.Preload)
	}
	checkText(&invalid, "name", s.Name, maxSessionName)
	checkText(&invalid, "description", s.Description, maxSessionDescription)
	e.validateLife(&s, &invalid)
	validateSessionSpec(s.Spec, &invalid)
	s.Limits = e.resolveLimits(s.Spec.Limits, &invalid)
	if b == nil {
		invalid.Add("backend", "must be one of %v (got %q)", now.names, clip(s.Backend, 100))
	} else {
		s.Backend = b.name // the default may have changed since
	}
	if err := invalid.Err(executor.Invalid, "open a session", "; "); err != nil {
		return executor.Session{}, err
	}
	info, err := e.info(ctx, b)
	if err != nil {
		return executor.Session{}, err
	}
	capable(s.Spec, info, &invalid, &missing)
	if err := invalid.Err(executor.Invalid, "open a session", "; "); err != nil {
		return executor.Session{}, err
	}
	if !info.Capabilities.Sessions {
		missing.Add("session", "backend %s has no sessions", info.Name)
	}
	s.Generation = info.Generation
	return s, missing.Err(executor.Unimplemented, "open a session", "; ")
}

// validateLife sets the defaults of how long a Session may live, and checks them.
func (e *Engine) validateLife(s *executor.Session, p *executor.Problems) {
	rules := e.now().sessions
	idle, life := rules.IdleTimeout(), rules.MaxLife()
	within(p, "idle_timeout_seconds", s.IdleTimeout.Seconds(), idle.Seconds(), seconds)
	within(p, "max_life_seconds", s.MaxLife.Seconds(), life.Seconds(), seconds)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, idle)
	s.MaxLife = cmp.Or(s.MaxLife, life)
}

// validateSessionSpec checks the fields that a Session fixes for its Executions, and refuses the others.
func validateSessionSpec(s executor.Spec, p *executor.Problems) {
	for _, f := range s.Fields() {
		switch {
		case !f.Set || f.OfSession:
		case f.InSession:
			p.Add(f.Name, "must be given with an execution in the session")
		default:
			p.Add(f.Name, "must not be given for a session")
		}
	}
	checkText(p, "requirements_txt", s.Requirements, maxRequirements)
	checkList(p, "pre_commands", s.PreCommands, maxPatterns, maxArgument)
	checkText(p, "backend", s.Backend, maxKey)
	noPythonPackages(s, p)
	validateEnvironment(s.Env, p)
	validateWords(executor.Spec{Language: s.Language, Network: s.Network, PythonVersion: s.PythonVersion, Image: s.Image}, p)
}

// checkRunInSession finds what is wrong with a request to run in a Session, and takes over the Session's backend and limits.
func (e *Engine) checkRunInSession(ctx context.Context, req *request) error {
	var invalid, missing executor.Problems
	validate(req.spec, req.in, &invalid)
	ownOfSession(req.spec, req.in, &invalid)
	asked := e.resolveLimits(req.spec.Limits, &invalid)
	if err := invalid.Err(executor.Invalid, "submit", "; "); err != nil {
		return err
	}
	s, _, err := e.activeSession(ctx, opSubmitInSession, req.spec.Session)
	if err != nil {
		return err
	}
	req.session, req.backend, req.spec.Session = s, s.Backend, s.ID // it may have been named
	if b, ok := s.Home().(*backend); ok {                           // the open Session keeps it from being stopped, and ends what is in it before
		b.Join()
		req.on, req.leave = b, b.Leave
	}
	req.limits = e.limitsInSession(s.Limits, req.spec.Limits, asked)
	if req.info, err = e.info(ctx, req.on); err != nil {
		return err
	}
	capable(req.spec, req.info, &invalid, &missing)
	return missing.Err(executor.Unimplemented, "submit", "; ")
}

// limitsInSession returns l, the limits of a Session, with those in their place that the Execution itself asks for.
func (e *Engine) limitsInSession(l, asked, resolved executor.Limits) executor.Limits {
	if asked.CPUTime != 0 {
		l.CPUTime = resolved.CPUTime
		l.Timeout = e.timeFor(l)
	}
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

// ownOfSession records the fields of s that an Execution in a Session may not set.
func ownOfSession(s executor.Spec, in executor.Input, p *executor.Problems) {
	for _, f := range s.Fields() {
		if f.Set && !f.InSession {
			p.Add(f.Name, "must not be given in a session, which has its own")
		}
	}
	if in.Workspace != nil {
		p.Add(fieldTar, "must not be given in a session, which has its own files")
	}
	if len(s.Args) > 0 && len(s.Command) == 0 {
		p.Add("args", "must be given with a command in a session")
	}
}
