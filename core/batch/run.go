package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// cancelTime bounds the cancellation of a case. It is more than the longest grace.
	cancelTime = 90 * time.Second
	// maxRepeats bounds how often a case of a repeated Batch is run again because it had not ended by itself.
	maxRepeats = 20
	// minWait is how long a case waits at least before it asks for a place again.
	minWait = 100 * time.Millisecond
	// maxDown bounds how long a case waits for a backend that is down. A plugin that has ended is restarted within seconds.
	maxDown = 30 * time.Second
)

// errStopped ends the cases that run when another one has failed.
var errStopped = errors.New("another case has not passed")

// Watcher sees one case. Its calls follow each other.
type Watcher interface {
	// Event takes the next Event of the case's log.
	Event(e executor.Event)
	// Ended takes what has become of the case. It is called once, and for one case at a time. Its error ends the Batch.
	Ended(o Outcome) error
}

// Run runs the cases of b, which Check has found right, and returns when all have ended. watch returns the Watcher of a case; it may be
// called more than once for a case, and then the last one counts. accepted is called when the first case is accepted. svc must call
// Input.Accepted.
//
// An error of the first Submit is that of the Batch, and no case has run. The end of ctx, or an error of a Watcher, cancels the cases that
// run; Run then returns the cause. Where the server has no place for another case, the case waits until one of the Batch has ended, or for
// the time that the server asks for.
func Run(ctx context.Context, svc executor.Executions, b Batch, accepted func(), watch func(index int) Watcher) (Summary, error) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{
		svc: svc, batch: b, watch: watch, ctx: ctx, cancel: cancel,
		freed: make(chan struct{}, 1), ended: make([]bool, len(b.Cases)),
		summary: Summary{Cases: len(b.Cases), Verdicts: map[Verdict]int{}},
	}
	// A caller that may submit and not read may follow what it has submitted with the ctx of a request. Each case is a request.
	asking := executor.WithRequest(ctx)
	first, err := r.submit(asking, 0, 1)
	if err != nil {
		return Summary{}, err
	}
	accepted()
	parallel := b.Parallel
	if parallel == 0 {
		parallel = DefaultParallel
	}
	r.next = 1
	var wg sync.WaitGroup
	wg.Go(func() {
		r.one(asking, 0, &first)
		r.more()
	})
	for range min(parallel, len(b.Cases)) - 1 {
		wg.Go(r.more)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errStopped) {
		return Summary{}, err
	}
	for i, ended := range r.ended {
		if ended {
			continue
		}
		if err := r.end(watch(i), Outcome{Index: i, Verdict: Skipped}); err != nil {
			return Summary{}, err
		}
	}
	r.summary.Wall = time.Since(began)
	return r.summary, nil
}

// run is a Batch that runs.
type run struct {
	svc   executor.Executions
	batch Batch
	watch func(index int) Watcher
	// ctx ends, with the cause, when no other case is to run and those that run are to be cancelled.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// freed tells one of those who wait that a place was given back.
	freed chan struct{}

	mu   sync.Mutex
	next int
	// telling is held while a Watcher is told the end of its case. It guards ended and summary.
	telling sync.Mutex
	ended   []bool
	summary Summary
}

// more runs one case after another, until there is none left.
func (r *run) more() {
	for {
		r.mu.Lock()
		i := r.next
		r.next++
		r.mu.Unlock()
		if i >= len(r.batch.Cases) || r.ctx.Err() != nil {
			return
		}
		r.one(executor.WithRequest(r.ctx), i, nil)
	}
}

// one runs case i. ctx is r.ctx for the case. x is nil if the case was not submitted yet.
func (r *run) one(ctx context.Context, i int, x *submitted) {
	for attempt := 1; ; attempt++ {
		w, j := r.watch(i), newJudge(r.batch.Cases[i].Expect)
		if x == nil {
			accepted, err := r.submitWaiting(ctx, i, attempt)
			if err != nil {
				if r.ctx.Err() == nil {
					_ = r.end(w, Outcome{Index: i, Verdict: Refused, Detail: message(err), Err: err})
				}
				return
			}
			x = &accepted
		}
		found := x.found
		finished, err := r.follow(ctx, x.Execution, func(e executor.Event) {
			j.see(e)
			w.Event(e)
		}, !found)
		select {
		case r.freed <- struct{}{}:
		default:
		}
		if err != nil {
			// A case that runs for an earlier request of the same key goes on when this Batch stops, and is Skipped here.
			if cause := context.Cause(r.ctx); cause == nil || errors.Is(cause, errStopped) && !found {
				_ = r.end(w, Outcome{Index: i, Verdict: Refused, Detail: message(err), Execution: &x.Execution, Err: err})
			}
			return
		}
		o := Outcome{Index: i, Execution: &finished}
		o.Verdict, o.Detail = j.verdict(finished)
		if found && (o.Verdict == Killed || o.Verdict == Lost) && r.ctx.Err() == nil {
			if attempt < maxRepeats {
				x = nil
				continue
			}
			o.Detail = fmt.Sprintf("not run again: %d runs of this case have not ended by themselves under the key of this batch", maxRepeats)
		}
		_ = r.end(w, o)
		return
	}
}

// message is the text of an error without the operation that failed.
func message(err error) string {
	if e, ok := errors.AsType[*executor.Error](err); ok {
		plain := *e
		plain.Op = ""
		return plain.Error()
	}
	return err.Error()
}

// end tells w what has become of its case. Its error, which is that of w, ends the Batch.
func (r *run) end(w Watcher, o Outcome) error {
	r.telling.Lock()
	defer r.telling.Unlock()
	if cause := context.Cause(r.ctx); cause != nil && !errors.Is(cause, errStopped) {
		return cause
	}
	r.ended[o.Index] = true
	r.summary.Verdicts[o.Verdict]++
	if err := w.Ended(o); err != nil {
		r.cancel(err)
		return err
	}
	if r.batch.StopAtFirstFailure && o.Verdict != Passed {
		r.cancel(errStopped)
	}
	return nil
}

// submitted is the Execution of a case. found reports whether an earlier call with the same key has made it.
type submitted struct {
	executor.Execution
	found bool
}

func (r *run) submit(ctx context.Context, i, attempt int) (submitted, error) {
	stdin := r.batch.Cases[i].Stdin
	if stdin == nil {
		stdin = r.batch.Stdin
	}
	x := submitted{found: r.batch.Spec.IdempotencyKey != ""}
	var err error
	x.Execution, err = r.svc.Submit(ctx, r.batch.specOf(i, attempt), executor.Input{
		Workspace: r.batch.Workspace, Stdin: stdin, Lasting: true, Accepted: func(executor.Execution) { x.found = false },
	})
	return x, err
}

// submitWaiting submits case i when there is a place for it and its backend is there.
func (r *run) submitWaiting(ctx context.Context, i, attempt int) (submitted, error) {
	began := time.Now()
	for {
		x, err := r.submit(ctx, i, attempt)
		later, ok := errors.AsType[*executor.Error](err)
		if !ok || later.RetryAfter <= 0 {
			return x, err
		}
		if down := later.Code == executor.Unavailable && time.Since(began) < maxDown; later.Code != executor.Exhausted && !down {
			return x, err
		}
		timer := time.NewTimer(max(later.RetryAfter, minWait))
		select {
		case <-timer.C:
		case <-r.freed:
		case <-r.ctx.Done():
		}
		timer.Stop()
		if r.ctx.Err() != nil {
			return x, context.Cause(r.ctx)
		}
	}
}

// follow passes the Events of x on to its end and returns x as it has ended. When ctx ends, an Execution of this Batch (ours) is cancelled
// first.
func (r *run) follow(ctx context.Context, x executor.Execution, see func(executor.Event), ours bool) (executor.Execution, error) {
	last := uint64(0)
	pass := func(ctx context.Context) error {
		for e, err := range r.svc.Events(ctx, x.ID, last) {
			if err != nil {
				return err
			}
			last = e.Seq
			see(e)
		}
		return context.Cause(ctx)
	}
	err := pass(ctx)
	if err == nil {
		return r.finished(ctx, x.ID)
	}
	keep, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	if ours {
		if _, killErr := r.svc.Cancel(keep, x.ID); killErr != nil {
			return x, errors.Join(err, killErr)
		}
	}
	if r.ctx.Err() == nil || !errors.Is(context.Cause(r.ctx), errStopped) || !ours {
		return x, err
	}
	if err := pass(keep); err != nil {
		return x, err
	}
	return r.finished(keep, x.ID)
}

func (r *run) finished(ctx context.Context, id string) (executor.Execution, error) {
	x, err := r.svc.Get(ctx, id)
	if err == nil && !x.Status.Terminal() {
		err = executor.Errorf(executor.Internal, "the log of %s ended in status %s", id, x.Status)
	}
	if err != nil {
		return x, fmt.Errorf("read the result of a case: %w", err)
	}
	return x, nil
}
