package wire_test

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// stub is a Backend made of functions; a nil one answers with a zero value.
type stub struct {
	info   func(ctx context.Context) (executor.Info, error)
	run    func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error)
	attach func(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error)
	remove func(ctx context.Context, id string) error
}

var _ executor.Backend = (*stub)(nil)

func (s *stub) Info(ctx context.Context) (executor.Info, error) {
	if s.info == nil {
		return executor.Info{}, nil
	}
	return s.info(ctx)
}

func (s *stub) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	return s.run(ctx, job, sink)
}

func (s *stub) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	return s.attach(ctx, job, r, sink)
}

func (s *stub) Remove(ctx context.Context, id string) error {
	if s.remove == nil {
		return nil
	}
	return s.remove(ctx, id)
}

// recorder is a Sink that keeps what it gets and fails t when two goroutines are in it.
type recorder struct {
	t        testing.TB
	emit     func(executor.Event) error
	artifact func(*tar.Header, io.Reader) error

	busy   sync.Mutex
	events []executor.Event
	files  map[string]string
}

var _ executor.Sink = (*recorder)(nil)

func (r *recorder) enter() func() {
	if !r.busy.TryLock() {
		r.t.Error("two goroutines are in the sink")
		return func() {}
	}
	return r.busy.Unlock
}

func (r *recorder) Emit(e executor.Event) error {
	defer r.enter()()
	r.events = append(r.events, e.Clone())
	if r.emit != nil {
		return r.emit(e)
	}
	return nil
}

func (r *recorder) Artifact(h *tar.Header, content io.Reader) error {
	defer r.enter()()
	if r.artifact != nil {
		return r.artifact(h, content)
	}
	raw, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if r.files == nil {
		r.files = map[string]string{}
	}
	r.files[h.Name] = fmt.Sprintf("%d %o %s", h.Size, h.Mode, raw)
	return nil
}

func output(text string) executor.Event {
	return executor.Event{Body: executor.Output{Stream: executor.Stdout, Data: []byte(text)}}
}

var succeeded = executor.Result{Status: executor.StatusSucceeded, ExitCode: new(int)}
