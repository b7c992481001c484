package wire_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/executor/wire"
)

var killed = executor.Result{Status: executor.StatusKilled, Signal: "SIGTERM"}

// untilStopped runs until its ctx ends, as a well-behaved backend does.
func untilStopped(started chan<- struct{}, cause chan<- error) *stub {
	return &stub{run: func(ctx context.Context, _ executor.Job, _ executor.Sink) (executor.Result, error) {
		close(started)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return killed, nil
	}}
}

func TestTheEndOfCtxIsToldAndTheResultComesBack(t *testing.T) {
	t.Parallel()
	started, cause := make(chan struct{}), make(chan error, 1)
	backend := plugintest.Wire(t, untilStopped(started, cause))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-started
		cancel(nil)
	}()
	result, err := backend.Run(ctx, executor.Job{}, &recorder{t: t})
	if err != nil || result.Status != executor.StatusKilled {
		t.Errorf("got %+v, %v", result, err)
	}
	if got := <-cause; !errors.Is(got, context.Canceled) {
		t.Errorf("the backend saw %v", got)
	}
}

func TestACallerThatOnlyLetsGoLooksGoneToTheBackend(t *testing.T) {
	t.Parallel()
	started, cause := make(chan struct{}), make(chan error, 1)
	backend := plugintest.Wire(t, untilStopped(started, cause))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-started
		cancel(executor.ErrCallerGone)
	}()
	if _, err := backend.Run(ctx, executor.Job{}, &recorder{t: t}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
	if got := <-cause; !errors.Is(got, executor.ErrCallerGone) {
		t.Errorf("the backend saw %v", got)
	}
}

func TestACtxThatHadEndedIsSeenBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	backend := plugintest.Wire(t, &stub{run: func(ctx context.Context, _ executor.Job, _ executor.Sink) (executor.Result, error) {
		if ctx.Err() == nil {
			t.Error("the backend was called with a ctx that had not ended")
		}
		return killed, nil
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	result, err := backend.Run(ctx, executor.Job{}, &recorder{t: t})
	if err != nil || result.Status != executor.StatusKilled {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestACancelComesThroughWhileTheSinkIsBlocked(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := make(chan struct{})
	backend := plugintest.Wire(t, &stub{run: func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
		// An unread workspace is on the same stream.
		workspace, err := job.Workspace.Open()
		if err != nil {
			return executor.Result{}, err
		}
		defer func() { _ = workspace.Close() }()
		context.AfterFunc(ctx, func() { close(stopped) })
		if err := sink.Emit(output("x")); err != nil {
			return executor.Result{}, err
		}
		<-ctx.Done()
		return killed, nil
	}})
	sink := &recorder{t: t, emit: func(executor.Event) error {
		cancel(nil)
		<-stopped // the backend saw the cancel while we are in here
		return nil
	}}
	endless := &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(iterReader(func(b []byte) (int, error) { return len(b), nil })), nil
	}}
	result, err := backend.Run(ctx, executor.Job{Workspace: endless}, sink)
	if err != nil || result.Status != executor.StatusKilled {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestABackendThatDoesNotAnswerACancelIsCutOff(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	backend := plugintest.Wire(t, &stub{run: func(ctx context.Context, _ executor.Job, _ executor.Sink) (executor.Result, error) {
		<-release
		return killed, nil
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	// A negative grace uses up the ten seconds that are added to it.
	_, err := backend.Run(ctx, executor.Job{Limits: executor.Limits{KillGrace: -10e9}}, &recorder{t: t})
	close(release)
	if executor.CodeOf(err) != executor.Unavailable || !strings.HasSuffix(err.Error(), "within 0s") {
		t.Errorf("got %v", err)
	}
}

func TestALostConnectionEndsBothSides(t *testing.T) {
	t.Parallel()
	started, cause := make(chan struct{}), make(chan error, 1)
	var server *grpc.Server
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
		server, _ = s.(*grpc.Server)
		wire.RegisterBackend(s, untilStopped(started, cause))
	})
	go func() {
		<-started
		server.Stop()
	}()
	_, err := wire.NewBackend(conn, nil, nil).Run(t.Context(), executor.Job{}, &recorder{t: t})
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the caller got %v", err)
	}
	if got := <-cause; !errors.Is(got, executor.ErrCallerGone) {
		t.Errorf("the backend saw %v", got)
	}
}

func TestACallWithoutAnybodyThereIsUnavailable(t *testing.T) {
	t.Parallel()
	var server *grpc.Server
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
		server, _ = s.(*grpc.Server)
		wire.RegisterBackend(s, &stub{})
	})
	backend := wire.NewBackend(conn, nil, nil)
	server.Stop()
	if _, err := backend.Info(t.Context()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("info: %v", err)
	}
	if _, err := backend.Run(t.Context(), executor.Job{}, &recorder{t: t}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("run: %v", err)
	}
	if err := backend.Remove(t.Context(), "exe_1"); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("remove: %v", err)
	}
}

func TestAPanicIsInternalAndTheProcessLivesOn(t *testing.T) {
	t.Parallel()
	backend := plugintest.Wire(t, &stub{
		info: func(context.Context) (executor.Info, error) { panic("info") },
		run: func(_ context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
			if job.ID == "bad" {
				panic("run")
			}
			return succeeded, nil
		},
	})
	if _, err := backend.Info(t.Context()); executor.CodeOf(err) != executor.Internal {
		t.Errorf("info: %v", err)
	}
	if _, err := backend.Run(t.Context(), executor.Job{ID: "bad"}, &recorder{t: t}); executor.CodeOf(err) != executor.Internal {
		t.Errorf("run: %v", err)
	}
	if _, err := backend.Run(t.Context(), executor.Job{ID: "good"}, &recorder{t: t}); err != nil {
		t.Errorf("the run after the panic: %v", err)
	}
}
