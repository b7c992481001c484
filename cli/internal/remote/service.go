package remote

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// Service is the executor.Service of a server.
type Service struct {
	client *pyexec.Client
}

var _ executor.Service = (*Service)(nil)

// New returns the Service of the server at url. token may be empty. agent names the program in the server's log. away may be nil;
// it is called when a followed server went away and the Service waits for it.
func New(url, token, agent string, away func()) (*Service, error) {
	return newService(url, token, agent, pyexec.RetryPolicy{}, away)
}

// awayAttempt is the attempt to resume from which on a server counts as away. A short break is not worth a message.
const awayAttempt = 4

func newService(url, token, agent string, retry pyexec.RetryPolicy, away func()) (*Service, error) {
	client, err := pyexec.NewClient(url, pyexec.WithToken(token), pyexec.WithUserAgent(agent), pyexec.WithRetry(retry),
		pyexec.WithRetryHook(func(r pyexec.Retry) {
			if away != nil && r.Operation == "resume" && r.Attempt == awayAttempt {
				away()
			}
		}))
	if err != nil {
		return nil, toError(err)
	}
	return &Service{client}, nil
}

// Submit implements executor.Executions. It makes an asynchronous call, so that the output can be followed, and returns when the
// server has everything on disk.
func (s *Service) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	input, done, err := open(in)
	if err != nil {
		return executor.Execution{}, err
	}
	defer done()
	id, err := s.client.Submit(ctx, asked(apijson.SpecOf(spec), in), input)
	return one(id, err, func(id string) executor.Execution {
		return executor.Execution{ID: id, Spec: spec, Status: executor.StatusQueued}
	})
}

// RunBatch runs a batch on the server and calls each with every case as it ends.
func (s *Service) RunBatch(ctx context.Context, b pyexec.Batch, in executor.Input, each func(pyexec.CaseResult) error) (pyexec.BatchSummary, error) {
	input, done, err := open(in)
	if err != nil {
		return pyexec.BatchSummary{}, err
	}
	defer done()
	b.Spec = asked(b.Spec, in)
	summary, err := s.client.RunBatch(ctx, b, input, each)
	return one(summary, err, func(sum *pyexec.BatchSummary) pyexec.BatchSummary { return *sum })
}

// asked returns spec with what its zero values mean to a Service: a Workspace is not searched for requirements unless Detect asks for
// that. The SDK would ask.
func asked(spec pyexec.Spec, in executor.Input) pyexec.Spec {
	if in.Workspace != nil && spec.Code == "" && spec.Detect == nil {
		spec.Detect = new(false)
	}
	return spec
}

// open returns the SDK's form of in. done closes what was opened.
func open(in executor.Input) (_ pyexec.Input, done func(), err error) {
	var input pyexec.Input
	tar, stdin := io.NopCloser(nil), &lazy{}
	if in.Workspace != nil {
		if tar, err = in.Workspace.Open(); err != nil {
			return input, nil, err
		}
		input.Tar = tar
	}
	if in.Stdin != nil {
		stdin.open = in.Stdin.Open
		input.Stdin = stdin
	}
	return input, func() {
		_ = tar.Close() // both are only read
		_ = stdin.Close()
	}, nil
}

// lazy opens its stream with the first Read, because standard input is opened after the Workspace was read to its end.
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
	return one(e, err, func(e *pyexec.Execution) executor.Execution { return apijson.ToExecution(*e) })
}

// List implements executor.Executions.
func (s *Service) List(ctx context.Context, f executor.Filter) ([]executor.Execution, error) {
	o := pyexec.ListOptions{After: f.After, Limit: f.Limit}
	for _, status := range f.Statuses {
		o.Statuses = append(o.Statuses, string(status))
	}
	page, err := s.client.ListPage(ctx, o)
	return all(page.Executions, err, apijson.ToExecution)
}

// Cancel implements executor.Executions. The API answers with the status only, and so does this.
func (s *Service) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	status, err := s.client.Cancel(ctx, id)
	return one(status, err, func(status string) executor.Execution {
		return executor.Execution{ID: id, Status: executor.Status(status)}
	})
}

// Events implements executor.Executions.
//
// A server that went away after it had sent an Event may be restarting, and its programs may continue. The SDK waits for such a
// server much longer than for a server that never answered.
func (s *Service) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		for e, err := range s.client.Events(ctx, id, after) {
			if err != nil {
				yield(executor.Event{}, toError(err))
				return
			}
			if !yield(executor.Event{Seq: e.Seq, Body: apijson.ToBody(e.Body)}, nil) {
				return
			}
		}
	}
}

// Artifacts implements executor.Executions.
func (s *Service) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	r, err := s.client.Artifacts(ctx, id)
	return r, toError(err)
}

// Backends implements executor.Service.
func (s *Service) Backends(ctx context.Context) ([]executor.Info, error) {
	list, err := s.client.Backends(ctx)
	if err != nil {
		return nil, toError(err)
	}
	infos := make([]executor.Info, len(list))
	for i, b := range list {
		if infos[i], err = apijson.ToInfo(b); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// one converts an answer of the SDK, or its error.
func one[A, B any](answer A, err error, to func(A) B) (out B, _ error) {
	if err != nil {
		return out, toError(err)
	}
	return to(answer), nil
}

// all converts a list of the SDK, or its error.
func all[A, B any](list []A, err error, to func(A) B) ([]B, error) {
	return one(list, err, func(list []A) []B {
		out := make([]B, len(list))
		for i, a := range list {
			out[i] = to(a)
		}
		return out
	})
}

// toError returns the executor.Error of an error of the SDK. It returns the error of a context unchanged.
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
