package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// Service is a server's Service.
type Service struct {
	client *pyexec.Client
	// patient is client for the log of an Execution that the server had when it went away.
	patient *pyexec.Client
}

var _ executor.Service = (*Service)(nil)

// New returns the Service of the server at url. token may be empty. agent names the program in the server's log. away, if
// there is one, is called when a server that was followed went away and is waited for.
func New(url, token, agent string, away func()) (*Service, error) {
	return newService(url, token, agent, pyexec.RetryPolicy{}, pyexec.RetryPolicy{Attempts: restartAttempts}, away)
}

// restartAttempts with the SDK's pauses give a server between 18 and 36 seconds to be there again.
const restartAttempts = 12

func newService(url, token, agent string, usual, patient pyexec.RetryPolicy, away func()) (*Service, error) {
	options := []pyexec.Option{pyexec.WithToken(token), pyexec.WithUserAgent(agent)}
	client, err := pyexec.NewClient(url, append(options, pyexec.WithRetry(usual))...)
	if err != nil {
		return nil, toError(err)
	}
	options = append(options, pyexec.WithRetry(patient), pyexec.WithRetryHook(func(r pyexec.Retry) {
		if away != nil && r.Attempt == 1 {
			away()
		}
	}))
	waiting, err := pyexec.NewClient(url, options...)
	if err != nil {
		return nil, toError(err)
	}
	return &Service{client, waiting}, nil
}

// Submit implements executor.Executions by an asynchronous call, so that the output can be followed: it returns when the
// server has everything on disk.
func (s *Service) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	input := pyexec.Input{}
	if in.Workspace != nil {
		tar, err := in.Workspace.Open()
		if err != nil {
			return executor.Execution{}, err
		}
		defer tar.Close()
		input.Tar = tar
	}
	if in.Stdin != nil {
		stdin := &lazy{open: in.Stdin.Open}
		defer func() { _ = stdin.Close() }() // only read
		input.Stdin = stdin
	}
	id, err := s.client.Submit(ctx, toSpec(spec), input)
	if err != nil {
		return executor.Execution{}, toError(err)
	}
	return executor.Execution{ID: id, Spec: spec, Status: executor.StatusQueued}, nil
}

// lazy opens its stream with the first Read: standard input is opened after the Workspace was read to its end.
type lazy struct {
	open   func() (io.ReadCloser, error)
	stream io.ReadCloser
}

// Read implements io.Reader.
func (l *lazy) Read(p []byte) (int, error) {
	if l.stream == nil {
		stream, err := l.open()
		if err != nil {
			return 0, err
		}
		l.stream = stream
	}
	return l.stream.Read(p)
}

// Close implements io.Closer.
func (l *lazy) Close() error {
	if l.stream == nil {
		return nil
	}
	return l.stream.Close()
}

// Get implements executor.Executions.
func (s *Service) Get(ctx context.Context, id string) (executor.Execution, error) {
	e, err := s.client.Get(ctx, id)
	if err != nil {
		return executor.Execution{}, toError(err)
	}
	return toExecution(*e), nil
}

// List implements executor.Executions.
func (s *Service) List(ctx context.Context, f executor.Filter) ([]executor.Execution, error) {
	o := pyexec.ListOptions{After: f.After, Limit: f.Limit}
	for _, status := range f.Statuses {
		o.Statuses = append(o.Statuses, string(status))
	}
	page, err := s.client.ListPage(ctx, o)
	if err != nil {
		return nil, toError(err)
	}
	list := make([]executor.Execution, len(page.Executions))
	for i, e := range page.Executions {
		list[i] = toExecution(e)
	}
	return list, nil
}

// Cancel implements executor.Executions. The API answers with the status only, and so does this.
func (s *Service) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	status, err := s.client.Cancel(ctx, id)
	if err != nil {
		return executor.Execution{}, toError(err)
	}
	return executor.Execution{ID: id, Status: executor.Status(status)}, nil
}

// Events implements executor.Executions.
//
// A server that went away after it had sent something may only be started anew, and its programs may run on: it is waited
// for, much longer than one that never answered.
func (s *Service) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		last := after
		client := s.client
		for {
			err := follow(ctx, client, id, &last, yield)
			if client == s.client && last > after && ctx.Err() == nil && pyexec.CodeOf(err) == pyexec.CodeUnavailable {
				client = s.patient
				continue
			}
			if err != nil {
				yield(executor.Event{}, toError(err))
			}
			return
		}
	}
}

// follow yields what comes after *last until its end, nil, or an error. It is nil too where yield said no.
func follow(ctx context.Context, client *pyexec.Client, id string, last *uint64, yield func(executor.Event, error) bool) error {
	for e, err := range client.Events(ctx, id, *last) {
		if err != nil {
			return err
		}
		*last = e.Seq
		if !yield(executor.Event{Seq: e.Seq, Body: toBody(e.Body)}, nil) {
			return nil
		}
	}
	return nil
}

// Artifacts implements executor.Executions.
func (s *Service) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	r, err := s.client.Artifacts(ctx, id)
	if err != nil {
		return nil, toError(err)
	}
	return r, nil
}

// Backends implements executor.Service.
func (s *Service) Backends(ctx context.Context) ([]executor.Info, error) {
	list, err := s.client.Backends(ctx)
	if err != nil {
		return nil, toError(err)
	}
	infos := make([]executor.Info, len(list))
	for i, b := range list {
		infos[i] = executor.Info{
			Name: b.Name, Type: b.Type, Version: b.Version, Healthy: b.Healthy, Message: b.Message, Capacity: b.Capacity,
			Warnings: b.Warnings, Details: b.Details, Metrics: b.Metrics,
		}
		raw, err := json.Marshal(b.Capabilities)
		if err == nil {
			err = json.Unmarshal(raw, &infos[i].Capabilities)
		}
		if err != nil {
			return nil, executor.Errorf(executor.Internal, "the server's capabilities of %s cannot be read: %w", b.Name, err)
		}
	}
	return infos, nil
}

// toError returns the error in the words of core/executor. The end of a context stays what it is.
func toError(err error) error {
	e, ok := errors.AsType[*pyexec.Error](err)
	if !ok || e.Status == 0 && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return err
	}
	out := &executor.Error{
		Code: executor.Code(e.Code), Message: e.Error(), ExecutionID: e.ExecutionID, RetryAfter: e.RetryAfter, Err: e.Err,
	}
	for _, f := range e.Fields {
		out.Fields = append(out.Fields, executor.FieldError(f))
	}
	return out
}
