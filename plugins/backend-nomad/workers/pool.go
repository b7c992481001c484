package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/worker"
)

// Options are what New needs.
type Options struct {
	// Client is the client of Nomad's API. The backend does not close it. It is not used with the provider consul.
	Client *api.Client
	// Config is valid.
	Config Config
	// Configure is what the plugin was started with.
	Configure plugin.Configure
}

// Pool is the backend of the mode workers. It implements executor.Backend, executor.SessionBackend and io.Closer.
type Pool struct {
	name     string
	config   Config
	embedded bool
	log      *slog.Logger
	registry registry
	dialer   *worker.Dialer

	jobs   backend.Jobs
	places places

	life context.Context //nolint:containedctx // the backend's life
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// members are the workers by ID.
	members map[string]*member
	// sessions has the ID of the worker of each Session.
	sessions map[string]string
	// promised are the last capabilities that all workers had. They hold while there is no worker.
	promised executor.Capabilities
	// changed is closed, and replaced, when anything of the members has changed.
	changed chan struct{}
}

var (
	_ executor.Backend        = (*Pool)(nil)
	_ executor.SessionBackend = (*Pool)(nil)
	_ io.Closer               = (*Pool)(nil)
)

// New reads the certificates, asks the registry once, and waits for the first answer of each worker. Codes: invalid, unavailable (the
// registry does not answer).
func New(ctx context.Context, o Options) (executor.Backend, error) {
	r, err := o.registry()
	if err != nil {
		return nil, err
	}
	p, err := newPool(ctx, o.Config, o.Configure, r, nil)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// newPool makes a Pool. connect is that of worker.Dialer.
func newPool(ctx context.Context, config Config, c plugin.Configure, r registry, connect func(context.Context, string) (net.Conn, error)) (*Pool, error) {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dialer, err := worker.NewDialer(config.TLS, "backends."+c.Name+".workers.tls", c.Instance, log)
	if err != nil {
		return nil, err
	}
	dialer.Connect = connect
	all, index, err := r.list(ctx, 0)
	if err != nil {
		return nil, executor.Errorf(executor.Unavailable, "find the workers of service %s: %w", config.Service, err)
	}
	p := &Pool{
		name: c.Name, config: config, embedded: c.Embedded, log: log, registry: r, dialer: dialer,
		members: map[string]*member{}, sessions: map[string]string{}, changed: make(chan struct{}),
	}
	p.life, p.stop = context.WithCancelCause(context.Background())
	p.apply(all)
	p.wg.Go(func() { p.follow(p.life, index) })
	p.settle(ctx)
	return p, nil
}

// settle waits until every worker that is registered now has answered or failed to.
func (p *Pool) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, errUnasked)
	defer cancel()
	for {
		p.mu.Lock()
		waiting, changed := false, p.changed
		for _, m := range p.members {
			waiting = waiting || errors.Is(m.err, errUnasked)
		}
		p.mu.Unlock()
		if !waiting {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Run implements executor.Backend. It goes on to another worker only while nothing of the job has started.
func (p *Pool) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	ctx, leave, err := p.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	only := ""
	if id := job.Spec.Session; id != "" {
		if only, err = p.holder(ctx, id); err != nil {
			return executor.Result{}, err
		}
	}
	var opened atomic.Bool
	job.Workspace, job.Stdin = noted(job.Workspace, &opened), noted(job.Stdin, &opened)
	for {
		m, err := p.lease(ctx, only)
		if ctx.Err() != nil {
			if m != nil {
				p.release(m)
			}
			return unstarted(ctx)
		}
		if err != nil {
			if only != "" && executor.CodeOf(err) == executor.NotFound {
				err = backend.NotHeld(job.Spec.Session)
			}
			return executor.Result{}, err
		}
		p.places.add(job.ID, m.ID)
		out := &placedSink{Sink: sink, worker: m.ID}
		result, err := m.client.Run(ctx, job, out)
		if worker.Unstarted(err) && !out.touched && !opened.Load() { // a worker that runs it already says conflict
			p.block(m)
			p.release(m)
			p.log.Debug("a worker did not take an execution", "worker", m.name(), "execution", job.ID, "error", err)
			continue
		}
		p.release(m)
		p.answered(job.Spec.Session, err)
		return result, p.explained(m, out, err)
	}
}

// unstarted returns the outcome of a job whose ctx ended before it was sent.
func unstarted(ctx context.Context) (executor.Result, error) {
	if errors.Is(context.Cause(ctx), executor.ErrCallerGone) {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "the caller is gone: %w", context.Cause(ctx))
	}
	return executor.Result{Status: executor.StatusKilled, CPU: -1}, nil
}

// noted returns src, or nil for nil, as a Source that notes its opening.
func noted(src *executor.Source, opened *atomic.Bool) *executor.Source {
	if src == nil || src.Open == nil {
		return src
	}
	out := *src
	out.Open = func() (io.ReadCloser, error) {
		opened.Store(true)
		return src.Open()
	}
	return &out
}

// explained adds the worker to the error of a call that broke off. m is asked at once, so that nothing goes to a worker that has ended.
func (p *Pool) explained(m *member, out *placedSink, err error) error {
	if executor.CodeOf(err) != executor.Unavailable || out != nil && out.err != nil {
		return err
	}
	p.block(m)
	return fmt.Errorf("worker %s: %w", m.name(), err)
}

// Attach implements executor.Backend. The worker that has the program is waited for.
func (p *Pool) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	h, ok := decodeHandle(r.Handle)
	if !ok {
		return executor.Result{}, p.foreign("execution " + job.ID)
	}
	ctx, leave, err := p.jobs.Enter(ctx, job.ID)
	if err != nil {
		return executor.Result{}, err
	}
	defer leave()
	m, err := p.find(ctx, h.Worker, p.config.returnTimeout())
	if err != nil {
		return executor.Result{}, err
	}
	p.places.add(job.ID, m.ID)
	p.mu.Lock()
	m.running++
	m.peak = max(m.peak, m.running)
	p.mu.Unlock()
	defer p.release(m)
	r.Handle = h.Inner
	out := &placedSink{Sink: sink, worker: m.ID}
	result, err := m.client.Attach(ctx, job, r, out)
	p.answered(job.Spec.Session, err)
	return result, p.explained(m, out, err)
}

// Remove implements executor.Backend. It asks every worker to which the Execution was sent, or all if that is not known. A worker that is
// not registered any more has nothing to remove. Codes: unavailable (a worker that is registered does not answer).
func (p *Pool) Remove(ctx context.Context, id string) error {
	if err := p.jobs.Remove(ctx, id); err != nil {
		return err
	}
	ids, known := p.places.of(id)
	return p.everywhere(ids, known, func(c *worker.Client) error { return c.Remove(ctx, id) })
}

// everywhere makes a call to the workers with these IDs, all at once; to all workers if they are not known.
func (p *Pool) everywhere(ids []string, known bool, call func(*worker.Client) error) error {
	p.mu.Lock()
	targets := map[*member]bool{}
	for _, id := range ids {
		if m := p.members[id]; m != nil {
			targets[m] = true
		}
	}
	if !known {
		for _, m := range p.members {
			targets[m] = true
		}
	}
	p.mu.Unlock()
	var mu sync.Mutex
	var problems []error
	var wg sync.WaitGroup
	for m := range targets {
		wg.Go(func() {
			err := call(m.client)
			p.mu.Lock()
			gone := !m.listed
			p.mu.Unlock()
			if err == nil || gone && executor.CodeOf(err) == executor.Unavailable {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, fmt.Errorf("worker %s: %w", m.name(), err))
		})
	}
	wg.Wait()
	return errors.Join(problems...)
}

// Close lets what runs go on where a later backend can attach, and leaves Sessions to it; the workers end the rest. An embedded backend
// closes its Sessions. Idempotent; afterwards Run returns unavailable.
func (p *Pool) Close() error {
	cause := executor.ErrCallerGone
	if p.embedded {
		cause = backend.ErrClosed
	}
	if !p.jobs.Close(cause) {
		return nil
	}
	var err error
	if p.embedded {
		err = p.closeSessions()
	}
	p.mu.Lock()
	p.closed = true // apply starts no watch any more
	p.mu.Unlock()
	p.stop(backend.ErrClosed)
	p.wg.Wait()
	return err
}
