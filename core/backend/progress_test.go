package backend

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// failingSink returns err for each event, and counts them.
type failingSink struct {
	executor.Sink
	err    error
	events int
}

func (s *failingSink) Emit(executor.Event) error {
	s.events++
	return s.err
}

func TestHowAPreparationEndsTheJob(t *testing.T) {
	t.Parallel()
	failure, broken := &executor.Failure{Code: executor.Invalid}, errors.New("broken")
	for _, c := range []struct {
		name    string
		sink    error
		ends    bool // the job's ctx ends meanwhile
		failure *executor.Failure
		err     error
		status  executor.Status
		ready   bool
		want    error
	}{
		{name: "all is well", ready: true},
		{name: "a failure", failure: failure, status: executor.StatusFailed},
		{name: "an error", err: broken, want: broken},
		{name: "the job is killed", ends: true, err: context.Canceled, status: executor.StatusKilled},
		{name: "the sink fails", sink: broken, err: context.Canceled, want: broken},
		{name: "the sink fails and the job is killed", sink: broken, ends: true, want: broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			sink := &failingSink{err: c.sink}
			result, ready, err := Prepare(ctx, sink, func(ctx context.Context, notify func(executor.Progress)) (*executor.Failure, error) {
				notify(executor.Progress{Message: "one"})
				if c.sink != nil && !errors.Is(context.Cause(ctx), broken) {
					t.Error("a broken sink does not end the preparation")
				}
				notify(executor.Progress{Message: "two"})
				if c.ends {
					cancel(errors.New("killed"))
				}
				return c.failure, c.err
			})
			if result.Status != c.status || result.Failure != c.failure || ready != c.ready || !errors.Is(err, c.want) {
				t.Errorf("got %+v, %t, %v", result, ready, err)
			}
			if want := 2; c.sink == nil && sink.events != want || c.sink != nil && sink.events != 1 {
				t.Errorf("%d events reached the sink", sink.events)
			}
		})
	}
}

func TestAFailureBecomesAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	f := &executor.Failure{Code: executor.Invalid, Field: "requirements_txt", Message: "no"}
	if err := FailureError(nil, nil); err != nil {
		t.Error(err)
	}
	if err := FailureError(f, broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	for _, f := range []executor.Failure{
		{Code: executor.Invalid, Field: "requirements_txt", Message: "no"},
		{Code: executor.Exhausted, Field: "docker_image", Message: "no"},
		{Code: executor.Unavailable, Message: "no"},
	} {
		e, ok := errors.AsType[*executor.Error](FailureError(&f, nil))
		if !ok || e.Code != f.Code || e.Message != f.Message {
			t.Fatalf("%+v became %+v", f, e)
		}
		var want []executor.FieldError
		if f.Field != "" {
			want = []executor.FieldError{{Field: f.Field, Message: f.Message}}
		}
		if !slices.Equal(e.Fields, want) {
			t.Errorf("%+v became %+v", f, e)
		}
	}
}
