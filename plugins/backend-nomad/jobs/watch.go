package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// allocation is what this backend needs to know of an allocation.
type allocation struct {
	ID, NodeName        string
	Client, ClientWords string // the client's status, and its description
	DesiredWords        string
	Tasks               map[string]*api.TaskState
	CreateIndex, Index  uint64
	ModifyTime          time.Time
}

func ofStub(a *api.AllocationListStub) allocation {
	return allocation{a.ID, a.NodeName, a.ClientStatus, a.ClientDescription, a.DesiredDescription, a.TaskStates, a.CreateIndex, a.ModifyIndex, time.Unix(0, a.ModifyTime)}
}

func ofEvent(a *api.Allocation) allocation {
	return allocation{a.ID, a.NodeName, a.ClientStatus, a.ClientDescription, a.DesiredDescription, a.TaskStates, a.CreateIndex, a.ModifyIndex, time.Unix(0, a.ModifyTime)}
}

// over reports whether nothing of the allocation runs any more, as far as Nomad knows.
func (a *allocation) over() bool {
	return a.Client == api.AllocClientStatusComplete || a.Client == api.AllocClientStatusFailed || a.Client == api.AllocClientStatusLost
}

// began reports whether a task was started.
func (a *allocation) began(task string) bool {
	s := a.Tasks[task]
	return s != nil && !s.StartedAt.IsZero()
}

// waited returns how long the allocation was on its node before the program started.
func (a *allocation) waited() time.Duration {
	s := a.Tasks[taskProgram]
	if s == nil || s.StartedAt.IsZero() {
		return 0
	}
	first := s.StartedAt
	for _, t := range a.Tasks {
		for _, e := range t.Events {
			if at := time.Unix(0, e.Time); e.Type == api.TaskReceived && at.Before(first) {
				first = at
			}
		}
	}
	return s.StartedAt.Sub(first)
}

// The causes of the end of an allocation's life.
var (
	errOver = errors.New("the allocation is over")
	errLost = errors.New("the allocation's node is lost")
)

// tracked is a job that the watcher follows. It is safe for concurrent use.
type tracked struct {
	id      string
	changed chan struct{} // has a token when the state has changed
	// life ends when the allocation is over.
	life context.Context //nolint:containedctx // it is the allocation's
	end  context.CancelCauseFunc

	mu    sync.Mutex
	since uint64 // the index at which the job was made; 0: not known yet, and nothing is taken
	alloc *allocation
	eval  *api.Evaluation
	words string // why the last evaluation that failed to place the job did so
	stale bool   // changes may have been missed
}

func (t *tracked) poke() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// begin sets the index at which the job was made.
func (t *tracked) begin(since uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since, t.stale = since, true
}

// take takes a state of the allocation, unless a later one is known. A job has one allocation; the first counts.
func (t *tracked) take(a allocation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since == 0 || a.CreateIndex < t.since || t.alloc != nil && (t.alloc.ID != a.ID || a.Index < t.alloc.Index) {
		return
	}
	t.alloc = &a
	switch {
	case a.Client == api.AllocClientStatusLost:
		t.end(errLost)
	case a.over():
		t.end(errOver)
	}
	t.poke()
}

// takeEval takes a state of an evaluation, unless a later one is known.
func (t *tracked) takeEval(e *api.Evaluation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since == 0 || e.CreateIndex < t.since || t.eval != nil && e.ModifyIndex < t.eval.ModifyIndex {
		return
	}
	t.eval = e
	if words := unplaced(e); words != "" {
		t.words = words
	}
	t.poke()
}

// unplaced returns why the job has no place, in Nomad's words; empty if that is not known.
func (t *tracked) unplaced() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.words
}

// now returns the present state, and whether changes may have been missed since the last call.
func (t *tracked) now() (a *allocation, e *api.Evaluation, stale bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stale, t.stale = t.stale, false
	return t.alloc, t.eval, stale
}

// watcher follows Nomad's event stream for all jobs of this backend: one connection, whatever their number. After each connection every
// job is stale, because the server's buffer of events is short.
type watcher struct {
	cluster *cluster
	log     *slog.Logger

	mu   sync.Mutex
	jobs map[string]*tracked // by the job's id
	err  error               // why there is no stream; nil: there is one
}

func newWatcher(c *cluster, log *slog.Logger) *watcher {
	return &watcher{cluster: c, log: log, jobs: map[string]*tracked{}}
}

// track follows a job until release is called.
func (w *watcher) track(id string) (t *tracked, release func()) {
	t = &tracked{id: id, changed: make(chan struct{}, 1)}
	t.life, t.end = context.WithCancelCause(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[id] = t
	return t, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.jobs[id] == t {
			delete(w.jobs, id)
		}
	}
}

func (w *watcher) find(id string) *tracked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[id]
}

// count returns the number of jobs that are followed.
func (w *watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs)
}

// state returns why Nomad's events do not come; nil means that they do.
func (w *watcher) state() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// connected notes whether there is a stream. A new one makes all jobs stale.
func (w *watcher) connected(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	if err != nil {
		return
	}
	for _, t := range w.jobs {
		t.mu.Lock()
		t.stale = true
		t.mu.Unlock()
		t.poke()
	}
}

// run follows the events until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		lived, err := w.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if lived {
			attempt = 0
		}
		w.log.Debug("Nomad's events ended", "error", err)
		w.connected(err)
		_ = w.cluster.pause(ctx, attempt) // ctx is checked
	}
}

// stream follows one stream to its end. lived reports whether it began.
func (w *watcher) stream(ctx context.Context) (lived bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	topics := map[api.Topic][]string{api.TopicAllocation: {"*"}, api.TopicEvaluation: {"*"}}
	events, err := w.cluster.client.EventStream().Stream(ctx, topics, 0, query(ctx))
	if err != nil {
		cancel(nil)
		return false, err
	}
	defer func() {
		cancel(nil)
		for range events { // the goroutine of the stream ends
		}
	}()
	w.connected(nil)
	for e := range events {
		if e.Err != nil {
			return true, e.Err
		}
		for i := range e.Events {
			w.event(&e.Events[i])
		}
	}
	return true, context.Cause(ctx)
}

// event passes an event on to its job.
func (w *watcher) event(e *api.Event) {
	at := slices.IndexFunc(append(e.FilterKeys, e.Key), func(key string) bool { return strings.HasPrefix(key, jobPrefix) })
	if at < 0 {
		return
	}
	t := w.find(append(e.FilterKeys, e.Key)[at])
	if t == nil {
		return
	}
	switch e.Topic {
	case api.TopicAllocation:
		a, err := e.Allocation()
		if err == nil && a != nil {
			t.take(ofEvent(a))
		}
	case api.TopicEvaluation:
		if v, err := e.Evaluation(); err == nil && v != nil {
			t.takeEval(v)
		}
	}
}
