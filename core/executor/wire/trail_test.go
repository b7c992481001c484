package wire_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// trails emits a started event and lets the rest travel with the Result.
func trails(t *testing.T, texts ...string) *stub {
	t.Helper()
	return &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
		if err := sink.Emit(executor.Event{Body: executor.Started{PID: 1}}); err != nil {
			return executor.Result{}, err
		}
		trailing, ok := sink.(executor.TrailingSink)
		if !ok {
			t.Error("the wire's sink lets nothing trail")
			return executor.Result{}, nil
		}
		for _, text := range texts {
			if err := trailing.Trail(output(text)); err != nil {
				return executor.Result{}, err
			}
		}
		return succeeded, nil
	}}
}

func TestTrailingEventsAreInTheLogBeforeTheResultIsThere(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]executor.Job{
		"without input": {},
		"with input":    {Stdin: &executor.Source{Open: func() (io.ReadCloser, error) { return nil, io.EOF }}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &recorder{t: t}
			res, err := plugintest.Wire(t, trails(t, "a", "b", "c")).Run(t.Context(), job, log)
			if err != nil || res.Status != executor.StatusSucceeded {
				t.Fatal(res, err)
			}
			text := ""
			for _, e := range log.events {
				if o, ok := e.Body.(executor.Output); ok {
					text += string(o.Data)
				}
			}
			if len(log.events) != 4 || text != "abc" {
				t.Errorf("the log has %v", log.events)
			}
		})
	}
}

func TestTheErrorOfATrailingEventComesInPlaceOfTheResult(t *testing.T) {
	t.Parallel()
	full := executor.Errorf(executor.Exhausted, "the log is full")
	calls := 0
	log := &recorder{t: t, emit: func(e executor.Event) error {
		if e.Body.Kind() != executor.KindOutput {
			return nil
		}
		calls++
		return full
	}}
	res, err := plugintest.Wire(t, trails(t, "a", "b")).Run(t.Context(), executor.Job{}, log)
	if !errors.Is(err, full) || res.Status != executor.StatusUnknown || calls != 1 {
		t.Errorf("got %+v, %v after %d calls", res, err, calls)
	}
}

// trailingRecorder is a recorder that also lets events trail, and counts them.
type trailingRecorder struct {
	recorder
	trailed int
}

func (r *trailingRecorder) Trail(e executor.Event) error {
	r.trailed++
	return r.Emit(e)
}

func TestAnEventThatTrailsOnOneWireTrailsOnTheNext(t *testing.T) {
	t.Parallel()
	log := &trailingRecorder{recorder: recorder{t: t}}
	res, err := plugintest.Wire(t, plugintest.Wire(t, trails(t, "a", "b"))).Run(t.Context(), executor.Job{}, log)
	if err != nil || res.Status != executor.StatusSucceeded || log.trailed != 2 || len(log.events) != 3 {
		t.Errorf("got %+v, %v, %d trailing of %d", res, err, log.trailed, len(log.events))
	}
}
