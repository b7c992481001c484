package cmd

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor"
)

// submission is a Submit under way.
type submission struct {
	accepted chan string
	done     chan struct{}
	e        executor.Execution
	err      error
}

// startSubmit starts a Submit. If the target's ctx ends while the input is still read, the Submit is cancelled. If the input was
// read, startSubmit waits some seconds for the answer, because an execution can only be killed by its id.
func startSubmit(d *target, spec executor.Spec, in executor.Input) *submission {
	s := &submission{accepted: make(chan string, 1), done: make(chan struct{})}
	in.Accepted = func(e executor.Execution) { s.accepted <- e.ID }
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(d.ctx))
	var consumed atomic.Bool
	in.Workspace = watchEnd(in.Workspace, &consumed)
	release := context.AfterFunc(d.ctx, func() {
		if consumed.Load() && !d.embedded {
			grace := time.NewTimer(5 * time.Second)
			defer grace.Stop()
			select {
			case <-grace.C:
			case <-s.done:
			case <-stop.Now(d.ctx):
			}
		}
		cancel(context.Cause(d.ctx))
	})
	go func() {
		defer close(s.done)
		defer cancel(nil)
		defer release()
		s.e, s.err = d.Submit(ctx, spec, in)
	}()
	return s
}

// id waits until the execution exists and returns its id.
func (s *submission) id() (string, error) {
	select {
	case id := <-s.accepted:
		return id, nil
	case <-s.done:
		return s.e.ID, s.err
	}
}

func (s *submission) wait() (executor.Execution, error) {
	<-s.done
	return s.e, s.err
}

// watchEnd notes that a source was read to its end.
func watchEnd(s *executor.Source, ended *atomic.Bool) *executor.Source {
	if s == nil {
		ended.Store(true)
		return nil
	}
	c := *s
	c.Open = func() (io.ReadCloser, error) {
		r, err := s.Open()
		if err != nil {
			return nil, err
		}
		return &endWatcher{r, ended}, nil
	}
	return &c
}

type endWatcher struct {
	io.ReadCloser
	ended *atomic.Bool
}

// Read implements io.Reader.
func (e *endWatcher) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		e.ended.Store(true)
	}
	return n, err
}
