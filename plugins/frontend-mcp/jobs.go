package mcpfrontend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// maxJobs bounds the jobs of one owner in the list. A further job replaces the owner's oldest finished job. The output of a
// replaced job stays readable by id as long as the server keeps it.
const maxJobs = 1000

// jobs is the list of the scripts that the async tools have started.
type jobs struct {
	t    *tools
	life context.Context //nolint:containedctx // bounds the followers
	end  context.CancelCauseFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	list []*job // oldest first
}

// job is a script that an async tool has started. Its id is that of its Execution.
type job struct {
	id       string
	owner    string
	stream   bool
	strategy string
	created  time.Time
	mu       sync.Mutex
	state    jobState
}

// jobState is the state of a job, as far as its Events tell.
type jobState struct {
	started      *executor.Started
	result       *executor.Result
	stdoutChunks int
	stderrChunks int
	ended        time.Time
}

func newJobs(ctx context.Context, t *tools) *jobs {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	return &jobs{t: t, life: life, end: end}
}

// start submits s, adds the job to the list and follows it.
func (p *python) start(ctx context.Context, s *script, stream bool) (*job, error) {
	s.spec.Durable = true
	// A call that is cancelled during Submit must not leave a job that is missing from the list.
	x, err := p.svc.Submit(context.WithoutCancel(ctx), s.spec, s.input)
	if err != nil {
		return nil, err
	}
	p.log.Info("async job started", "execution", x.ID)
	return p.jobs.begin(ctx, &job{id: x.ID, stream: stream, strategy: s.strategy, created: time.Now()}), nil
}

// begin adds j to the list of ctx's owner and follows it.
func (js *jobs) begin(ctx context.Context, j *job) *job {
	principal := executor.PrincipalFrom(ctx)
	j.owner = principal.Owner
	js.add(j)
	js.wg.Go(func() { js.follow(executor.WithPrincipal(js.life, principal), j) })
	return j
}

// adopt adds the owner's scripts that run and that another process of this frontend has started, for example before a changed
// configuration.
func (p *python) adopt(ctx context.Context) {
	page, err := p.svc.List(ctx, executor.Filter{Statuses: []executor.Status{executor.StatusQueued, executor.StatusRunning}, Limit: 500})
	if err != nil {
		p.log.Warn("look for jobs that run", "error", err)
		return
	}
	owner, known := executor.PrincipalFrom(ctx).Owner, map[string]bool{}
	for _, j := range p.jobs.of(owner) {
		known[j.id] = true
	}
	for _, x := range slices.Backward(page) { // the newest comes first
		if x.Owner == owner && x.Spec.Durable && x.Spec.Session == "" && x.Spec.Script == "" && !known[x.ID] {
			j := &job{id: x.ID, created: x.CreatedAt}
			j.state.started = x.Started
			p.jobs.begin(ctx, j)
		}
	}
}

// add puts j into the list. If its owner has maxJobs jobs, j replaces the owner's oldest finished job, or the oldest job if
// none has finished.
func (js *jobs) add(j *job) {
	own := js.of(j.owner)
	if len(own) >= maxJobs {
		finished := slices.IndexFunc(own, func(j *job) bool { return j.now().result != nil })
		js.remove(own[max(finished, 0)].id)
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	js.list = slices.DeleteFunc(js.list, func(other *job) bool { return other.id == j.id }) // adopt may have seen it before start
	js.list = append(js.list, j)
}

// follow updates the state of j until j or ctx ends. It counts the output of j but does not keep it.
func (js *jobs) follow(ctx context.Context, j *job) {
	for e, err := range js.t.svc.Events(ctx, j.id, 0) {
		if err != nil {
			if ctx.Err() == nil {
				js.t.log.Warn("follow a job", "execution", j.id, "error", err)
			}
			return
		}
		if j.take(e) {
			js.t.log.Info("job finalized", "execution", j.id, "status", j.now().result.Status)
		}
	}
}

// take applies e to the state and reports whether the Execution has ended.
func (j *job) take(e executor.Event) (ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch b := e.Body.(type) {
	case executor.Started:
		j.state.started = &b
	case executor.Output:
		if b.Stream == executor.Stderr {
			j.state.stderrChunks++
		} else {
			j.state.stdoutChunks++
		}
	case executor.Finished:
		j.state.result = &b.Result
		j.state.ended = time.Now()
		return true
	case executor.Queued, executor.Progress, executor.Display, executor.Unknown:
	}
	return false
}

// now returns a copy of the current state.
func (j *job) now() jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

// elapsed returns how long the job has existed, or how long it took if it has ended.
func (j *job) elapsed() time.Duration {
	if s := j.now(); !s.ended.IsZero() {
		return s.ended.Sub(j.created)
	}
	return time.Since(j.created)
}

// of returns the owner's jobs, oldest first.
func (js *jobs) of(owner string) []*job {
	js.mu.Lock()
	defer js.mu.Unlock()
	var list []*job
	for _, j := range js.list {
		if j.owner == owner {
			list = append(list, j)
		}
	}
	return list
}

func (js *jobs) remove(id string) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.list = slices.DeleteFunc(js.list, func(j *job) bool { return j.id == id })
}

// close stops following the jobs. The jobs themselves go on.
func (js *jobs) close(context.Context) {
	js.end(errStopping)
	js.wg.Wait()
}
