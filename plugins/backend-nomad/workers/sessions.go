package workers

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/worker"
)

// closeTime bounds the closing of the Sessions of an embedded backend.
const closeTime = 5 * time.Second

// workerOf returns the ID of the worker of a Session; empty if it is not known.
func (p *Pool) workerOf(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[id]
}

// holder returns the ID of the worker of a Session, and waits for the worker if it is away. Codes: not_found, unavailable.
func (p *Pool) holder(ctx context.Context, id string) (string, error) {
	at := p.workerOf(id)
	if at == "" {
		return "", backend.NotHeld(id)
	}
	_, err := p.find(ctx, at, p.config.returnTimeout())
	if executor.CodeOf(err) == executor.NotFound {
		p.displace(id)
		err = backend.NotHeld(id)
	}
	return at, err
}

// foreign returns the error of a handle that no Pool has made.
func (p *Pool) foreign(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.promised.Attach {
		return executor.Errorf(executor.Unimplemented, "%s: programs do not outlive these workers", what)
	}
	return executor.Errorf(executor.NotFound, "%s: the handle is not of this backend", what)
}

// place notes that a Session is on m.
func (p *Pool) place(id string, m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[id] = m.ID
	m.sessions[id] = true
}

// displace forgets where a Session is.
func (p *Pool) displace(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.members[p.sessions[id]]; m != nil {
		delete(m.sessions, id)
		p.pokeLocked(m)
	}
	delete(p.sessions, id)
}

// answered looks at the error of a call for a Session: a worker that does not know the Session has lost it.
func (p *Pool) answered(id string, err error) {
	e, ok := errors.AsType[*executor.Error](err)
	if id != "" && ok && e.Code == executor.NotFound && !slices.ContainsFunc(e.Fields, func(f executor.FieldError) bool { return f.Field == "path" }) {
		p.displace(id)
	}
}

// OpenSession implements executor.SessionBackend. The worker with the fewest Sessions gets it. Another one is tried if that worker has no
// place, or nothing has started there.
func (p *Pool) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	if p.workerOf(s.ID) != "" {
		return executor.OpenedSession{}, executor.Errorf(executor.Conflict, "session %s is open already", s.ID)
	}
	tried := map[*member]bool{}
	var last error
	for {
		p.mu.Lock()
		m := p.bestLocked(func(m *member) bool { return !tried[m] && m.info.Capabilities.Sessions }, bySessions)
		why := p.aloneLocked()
		p.mu.Unlock()
		if m == nil {
			if last == nil {
				last = p.noSessions(why)
			}
			return executor.OpenedSession{}, last
		}
		tried[m] = true
		p.place(s.ID, m) // before the call: what becomes of it is not known if the worker vanishes
		opened, err := m.client.OpenSession(ctx, s)
		switch {
		case err == nil:
			opened.Handle, err = handle{m.ID, opened.Handle}.encode()
			return opened, err
		case worker.Unstarted(err), executor.CodeOf(err) == executor.Exhausted:
			p.displace(s.ID)
			last = err
			if worker.Unstarted(err) {
				p.block(m)
			}
		case executor.CodeOf(err) == executor.Unavailable:
			return executor.OpenedSession{}, p.explained(m, nil, err)
		default:
			if executor.CodeOf(err) != executor.Conflict {
				p.displace(s.ID)
			}
			return executor.OpenedSession{}, err
		}
	}
}

// noSessions returns why no worker can open a Session.
func (p *Pool) noSessions(why string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.listed && m.err == nil && m.info.Healthy && m.info.Capabilities.Sessions {
			return &executor.Error{Code: executor.Unavailable, Message: "no worker takes a session now", RetryAfter: askPause}
		}
		if m.listed && m.err == nil && m.info.Healthy {
			why = ""
		}
	}
	if why == "" {
		return executor.FieldErrorf(executor.Unimplemented, "session", "no worker has sessions")
	}
	return &executor.Error{Code: executor.Unavailable, Message: why, RetryAfter: askPause}
}

// AdoptSession implements executor.SessionBackend. The Session may have outlived this backend's former process, or its worker's.
func (p *Pool) AdoptSession(ctx context.Context, s executor.Session, raw []byte) (executor.OpenedSession, error) {
	h, ok := decodeHandle(raw)
	if !ok {
		return executor.OpenedSession{}, p.foreign("session " + s.ID)
	}
	m, err := p.find(ctx, h.Worker, p.config.returnTimeout())
	if executor.CodeOf(err) == executor.NotFound {
		err = backend.NotHeld(s.ID)
	}
	if err != nil {
		return executor.OpenedSession{}, err
	}
	opened, err := m.client.AdoptSession(ctx, s, h.Inner)
	if err != nil {
		return executor.OpenedSession{}, p.explained(m, nil, err)
	}
	p.place(s.ID, m)
	opened.Handle, err = handle{m.ID, opened.Handle}.encode()
	return opened, err
}

// CloseSession implements executor.SessionBackend. All workers are asked for a Session that is not known here.
func (p *Pool) CloseSession(ctx context.Context, id string) error {
	at := p.workerOf(id)
	err := p.everywhere([]string{at}, at != "", func(c *worker.Client) error { return c.CloseSession(ctx, id) })
	if err == nil {
		p.displace(id)
	}
	return err
}

// closeSessions closes all Sessions that are known here.
func (p *Pool) closeSessions() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTime, backend.ErrClosed)
	defer cancel()
	p.mu.Lock()
	var ids []string
	for id := range p.sessions {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	var problems []error
	for _, id := range ids {
		problems = append(problems, p.CloseSession(ctx, id))
	}
	return errors.Join(problems...)
}

// in makes one call to the worker of a Session.
func in[T any](ctx context.Context, p *Pool, id string, call func(*worker.Client) (T, error)) (result T, err error) {
	at := p.workerOf(id)
	if at == "" {
		return result, backend.NotHeld(id)
	}
	m, err := p.find(ctx, at, 0)
	if executor.CodeOf(err) == executor.NotFound {
		p.displace(id) // AdoptSession waits for the worker
		err = backend.NotHeld(id)
	}
	if err != nil {
		return result, err
	}
	result, err = call(m.client)
	p.answered(id, err)
	return result, p.explained(m, nil, err)
}

// RestartSession implements executor.SessionBackend.
func (p *Pool) RestartSession(ctx context.Context, id string, wipe bool) error {
	_, err := in(ctx, p, id, func(c *worker.Client) (struct{}, error) { return struct{}{}, c.RestartSession(ctx, id, wipe) })
	return err
}

// Variables implements executor.SessionTools.
func (p *Pool) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	return in(ctx, p, id, func(c *worker.Client) ([]executor.Variable, error) { return c.Variables(ctx, id) })
}

// AddRequirements implements executor.SessionTools.
func (p *Pool) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	return in(ctx, p, id, func(c *worker.Client) ([]string, error) { return c.AddRequirements(ctx, id, requirements) })
}

// ListFiles implements executor.SessionFiles.
func (p *Pool) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	return in(ctx, p, id, func(c *worker.Client) ([]executor.File, error) { return c.ListFiles(ctx, id, path, recursive) })
}

// ReadFile implements executor.SessionFiles.
func (p *Pool) ReadFile(ctx context.Context, id, path string) (f executor.File, content io.ReadCloser, err error) {
	content, err = in(ctx, p, id, func(c *worker.Client) (content io.ReadCloser, err error) {
		f, content, err = c.ReadFile(ctx, id, path)
		return content, err
	})
	return f, content, err
}

// WriteFile implements executor.SessionFiles.
func (p *Pool) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	return in(ctx, p, id, func(c *worker.Client) (executor.File, error) {
		return c.WriteFile(ctx, id, file, r)
	})
}

// RemoveFile implements executor.SessionFiles.
func (p *Pool) RemoveFile(ctx context.Context, id, path string) error {
	_, err := in(ctx, p, id, func(c *worker.Client) (struct{}, error) { return struct{}{}, c.RemoveFile(ctx, id, path) })
	return err
}
