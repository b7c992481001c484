package stop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/cli/internal/stop"
)

var (
	errFirst  = errors.New("first")
	errSecond = errors.New("second")
	errLate   = errors.New("late")
)

func TestTheFirstRequestLeavesTimeToStop(t *testing.T) {
	t.Parallel()
	ctx, requests := stop.New(t.Context())
	within, cancel := stop.Within(ctx, time.Hour, errLate)
	defer cancel()
	requests.First(errFirst)
	if !errors.Is(context.Cause(ctx), errFirst) || within.Err() != nil || stop.Cause(ctx) != nil {
		t.Errorf("the context %v, its end %v, urgent %v", context.Cause(ctx), within.Err(), stop.Cause(ctx))
	}
	select {
	case <-stop.Listening(ctx):
		t.Error("it listens before Listen")
	case <-stop.Now(ctx):
		t.Error("it is urgent")
	default:
	}
	requests.Listen()
	requests.Listen()
	<-stop.Listening(ctx)
}

func TestTheSecondRequestTakesTheTimeAway(t *testing.T) {
	t.Parallel()
	ctx, requests := stop.New(t.Context())
	before, cancel := stop.Within(ctx, time.Hour, errLate)
	defer cancel()
	requests.First(errFirst)
	requests.Again(errSecond)
	<-before.Done()
	<-stop.Now(ctx)
	after, cancel := stop.Within(ctx, time.Hour, errLate)
	defer cancel()
	<-after.Done()
	if !errors.Is(context.Cause(before), errSecond) || !errors.Is(context.Cause(after), errSecond) || !errors.Is(stop.Cause(ctx), errSecond) || !errors.Is(context.Cause(ctx), errFirst) {
		t.Error(context.Cause(before), context.Cause(after), stop.Cause(ctx), context.Cause(ctx))
	}
}

func TestStoppingIsBounded(t *testing.T) {
	t.Parallel()
	for _, from := range []func(context.Context) context.Context{
		func(ctx context.Context) context.Context { return ctx }, // nobody asks twice
		func(ctx context.Context) context.Context {
			ctx, _ = stop.New(ctx)
			return ctx
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			parent, end := context.WithCancelCause(t.Context())
			end(errFirst)
			within, cancel := stop.Within(from(parent), time.Minute, errLate)
			defer cancel()
			began := time.Now()
			<-within.Done()
			if !errors.Is(context.Cause(within), errLate) || time.Since(began) != time.Minute {
				t.Errorf("%v after %s", context.Cause(within), time.Since(began))
			}
		})
	}
	if stop.Now(t.Context()) != nil || stop.Listening(t.Context()) != nil || stop.Cause(t.Context()) != nil {
		t.Error("a plain context knows of requests")
	}
}
