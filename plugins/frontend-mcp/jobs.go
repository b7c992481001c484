package mcpfrontend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// maxJobs bounds the jobs that are remembered; beyond it those that ended longest ago are forgotten (their output stays
// readable by id as long as the server keeps it).
const maxJobs = 1000

// jobs are the scripts that were started and not waited for.
type jobs struct {
	t    *tools
	life context.Context //nolint:containedctx // the life of the followers
	end  context.CancelCauseFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	list []*job // oldest first
}

// job is one of them. It is an Execution; its id is the Execution's.
type job struct {
	id       string
	owner    string
	stream   bool
	strategy string
	created  time.Time
	// begun is closed when the program runs, or never will.
	begun chan struct{}

	mu    sync.Mutex
	state jobState
}

// jobState is what is known of it.
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

// start submits s and follows it.
func (p *python) start(ctx context.Context, s *script, stream bool) (*job, error) {
	s.spec.Durable = true
	// A call that is cancelled meanwhile must not leave a job that is in no list.
	x, err := p.svc.Submit(context.WithoutCancel(s.ctx(ctx)), s.spec, s.input)
	if err != nil {
		return nil, err
	}
	principal := executor.PrincipalFrom(ctx)
	j := &job{id: x.ID, owner: principal.Owner, stream: stream, strategy: s.strategy, created: time.Now(), begun: make(chan struct{})}
	p.jobs.add(j)
	p.jobs.wg.Go(func() { p.jobs.follow(executor.WithPrincipal(p.jobs.life, principal), j) })
	return j, nil
}

func (js *jobs) add(j *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if len(js.list) >= maxJobs {
		oldest := slices.IndexFunc(js.list, func(j *job) bool { return j.now().result != nil })
		js.list = slices.Delete(js.list, max(oldest, 0), max(oldest, 0)+1)
	}
	js.list = append(js.list, j)
}

// follow counts what j writes, until it ends. Of what it writes nothing is kept here.
func (js *jobs) follow(ctx context.Context, j *job) {
	begun := sync.OnceFunc(func() { close(j.begun) })
	defer begun()
	for e, err := range js.t.svc.Events(ctx, j.id, 0) {
		if err != nil {
			if ctx.Err() == nil {
				js.t.log.Warn("follow a job", "execution", j.id, "error", err)
			}
			return
		}
		if j.take(e) {
			begun()
		}
	}
}

// take folds e in and reports whether the program runs, or never will.
func (j *job) take(e executor.Event) (begun bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch b := e.Body.(type) {
	case executor.Started:
		j.state.started = &b
		return true
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

func (j *job) now() jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

// elapsed is how long it has been running, or ran.
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

// close ends the following; the jobs themselves are the engine's.
func (js *jobs) close(context.Context) {
	js.end(errStopping)
	js.wg.Wait()
}
