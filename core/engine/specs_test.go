package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/store/memory"
)

// countingStore counts how many whole Specs are read.
type countingStore struct {
	executor.Store
	specs atomic.Int64
}

func (s *countingStore) Spec(ctx context.Context, id string) (executor.Spec, error) {
	s.specs.Add(1)
	return s.Store.Spec(ctx, id)
}

// large returns a program for the fake that is larger than a Spec in brief.
func large(code string) string { return code + "\n" + strings.Repeat("#", 2*executor.BriefBytes) }

func TestRecoveryReadsALargeSpecWhenItsTurnComes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := &countingStore{Store: memorystore.New(memorystore.Options{})}
		var ids idSource
		var waiting []string
		for range 5 {
			id := ids.next(time.Now())
			leave(t, store, id, leftover{spec: executor.Spec{Code: large("sleep 1s\nprint whole"), Durable: true}, events: []executor.Body{executor.Queued{}}})
			waiting = append(waiting, id)
		}
		r := newRig(t, setup{options: Options{Store: store, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
		synctest.Wait()
		if n := store.specs.Load(); n != 1 {
			t.Errorf("%d specs were read while one of %d executions runs", n, len(waiting))
		}
		for _, id := range waiting {
			r.result(id)
			if text := stdout(r.events(id)); text != "whole\n" {
				t.Errorf("%s printed %q", id, text)
			}
		}
		if n := store.specs.Load(); n != int64(len(waiting)) {
			t.Errorf("%d specs were read for %d executions", n, len(waiting))
		}
	})
}

func TestRecoveryFindsOutputsOfALargeSpec(t *testing.T) {
	t.Parallel()
	// A program that has ended may be collected for as long as Deadlines.Collect, also after a restart of the server.
	for _, c := range []struct{ running, changed bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				spec := executor.Spec{Code: large("x"), Durable: true, OutputsChanged: c.changed, Limits: executor.Limits{Timeout: time.Second}}
				if !c.changed {
					spec.Outputs = []string{"*"}
				}
				left := leftover{spec: spec, events: []executor.Body{executor.Queued{}}}
				if c.running {
					left.events = append(left.events, executor.Started{Handle: []byte("h")})
					left.attempts = 1
				}
				store := memorystore.New(memorystore.Options{})
				var ids idSource
				id := ids.next(time.Now())
				leave(t, store, id, left)
				time.Sleep(time.Hour) // the program's own time is over
				r := newRig(t, setup{backend: slowCollector{}, options: Options{Store: store}})
				if res := r.result(id); res.Status != executor.StatusSucceeded {
					t.Errorf("result %+v, %+v", res, res.Failure)
				}
			})
		})
	}
}

// slowCollector takes five minutes after the end of its program.
type slowCollector struct{}

func (slowCollector) Info(context.Context) (executor.Info, error) {
	return executor.Info{Name: "slow", Healthy: true, Capabilities: executor.Capabilities{Attach: true, Artifacts: true}}, nil
}

func (slowCollector) Run(ctx context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
	if err := s.Emit(executor.Event{Body: executor.Started{Handle: []byte("h")}}); err != nil {
		return executor.Result{}, err
	}
	return collectSlowly(ctx)
}

func (slowCollector) Attach(ctx context.Context, _ executor.Job, _ executor.Resume, _ executor.Sink) (executor.Result, error) {
	return collectSlowly(ctx)
}

func collectSlowly(ctx context.Context) (executor.Result, error) {
	select {
	case <-time.After(5 * time.Minute):
		return succeeded, nil
	case <-ctx.Done():
		return executor.Result{}, ctx.Err()
	}
}

func (slowCollector) Remove(context.Context, string) error { return nil }

func TestStartReadsEveryPageOfTheStore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		last := ids.next(time.Now())
		leave(t, store, last, leftover{spec: executor.Spec{Code: "exit 0", Durable: true}, events: []executor.Body{executor.Queued{}}})
		full := succeeded
		full.Artifacts = []executor.Artifact{{Path: strings.Repeat("x", executor.MaxPageBytes)}}
		for range 3 {
			leave(t, store, ids.next(time.Now()), leftover{spec: executor.Spec{Code: "x"}, events: []executor.Body{executor.Queued{}, executor.Finished{Result: full}}})
		}
		r := newRig(t, setup{options: Options{Store: store, Retention: config.Retention{MaxExecutions: 2}}})
		if res := r.result(last); res.Status != executor.StatusSucceeded {
			t.Errorf("the oldest ended as %+v", res)
		}
		synctest.Wait()
		r.retention.mu.Lock()
		defer r.retention.mu.Unlock()
		if r.retention.number != 2 {
			t.Errorf("%d are kept, want 2", r.retention.number)
		}
	})
}

func TestWhatAnOwnerSeesHoldsNoLargeSpec(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		ctx := as("alice")
		check := func(how string, spec executor.Spec, err error) {
			t.Helper()
			if err != nil || spec.Size() != 0 || spec.PythonVersion != "3.12" {
				t.Errorf("%s shows a spec of %d bytes: %+v, error %v", how, spec.Size(), spec.Limits, err)
			}
		}
		for _, lasting := range []bool{false, true} {
			spec := executor.Spec{Code: large("print whole"), PythonVersion: "3.12", IdempotencyKey: fmt.Sprint(lasting), Durable: lasting}
			var accepted executor.Execution
			x, err := r.Submit(ctx, spec, executor.Input{Accepted: func(x executor.Execution) { accepted = x }})
			check("Submit", x.Spec, err)
			check("Accepted", accepted.Spec, nil)
			if text := stdout(r.events(x.ID)); text != "whole\n" {
				t.Errorf("it printed %q", text)
			}
			again, err := r.Submit(ctx, spec, executor.Input{})
			check("the second Submit", again.Spec, err)
			got, err := r.Get(ctx, x.ID)
			check("Get", got.Spec, err)
			got, err = r.Cancel(ctx, x.ID)
			check("Cancel", got.Spec, err)
			list, err := r.List(ctx, executor.Filter{Limit: 1})
			check("List", list[0].Spec, err)
		}
		s, err := r.OpenSession(ctx, executor.Session{Spec: executor.Spec{PythonVersion: "3.12", Env: map[string]string{"K": large("")}}})
		check("OpenSession", s.Spec, err)
		if text := r.say(ctx, s, "env"); !strings.Contains(text, "K=") {
			t.Errorf("the session has the environment %.100q", text)
		}
		s, err = r.GetSession(ctx, s.ID)
		check("GetSession", s.Spec, err)
		list, err := r.ListSessions(ctx)
		check("ListSessions", list[0].Spec, err)
		if rec, err := r.store.GetSessionRecord(ctx, s.ID); err != nil || rec.Spec.Size() == 0 {
			t.Errorf("the store has lost what a restart of the server needs: error %v", err)
		}
		s, err = r.CloseSession(ctx, s.ID)
		check("CloseSession", s.Spec, err)
		rec, err := r.store.GetSessionRecord(ctx, s.ID)
		check("the record of a closed session", rec.Spec, err)
	})
}
