package backendtest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// changeJob gives the fake a changed Job.
func changeJob(change func(*executor.Job)) fake.Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		job.Spec = job.Spec.Clone()
		change(&job)
		return run(ctx, job, sink)
	}
}

// changeResult returns a changed Result.
func changeResult(change func(job executor.Job, r *executor.Result)) fake.Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		result, err := run(ctx, job, sink)
		if err == nil {
			change(job, &result)
		}
		return result, err
	}
}

// changeEvents passes every Event to emit, which may change or drop the Event.
func changeEvents(emit func(sink executor.Sink, e executor.Event) error) fake.Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		return run(ctx, job, &tapped{Sink: sink, emit: emit})
	}
}

// changeOutput is changeEvents for Output.
func changeOutput(emit func(sink executor.Sink, out executor.Output) error) fake.Hook {
	return changeEvents(func(sink executor.Sink, e executor.Event) error {
		if out, ok := e.Body.(executor.Output); ok {
			return emit(sink, out)
		}
		return sink.Emit(e)
	})
}

func say(sink executor.Sink, body executor.Body) error { return sink.Emit(executor.Event{Body: body}) }

type tapped struct {
	executor.Sink
	emit func(executor.Sink, executor.Event) error
}

func (t *tapped) Emit(e executor.Event) error { return t.emit(t.Sink, e) }

// changeTar changes a job's Workspace. edit returns nil for an entry that is left out.
func changeTar(edit func(h *tar.Header, seen map[string]bool) *tar.Header) fake.Hook {
	return changeJob(func(job *executor.Job) {
		if job.Workspace == nil {
			return
		}
		source := *job.Workspace
		open := source.Open
		source.Open = func() (io.ReadCloser, error) {
			original, err := open()
			if err != nil {
				return nil, err
			}
			in, out := io.Pipe()
			go func() { out.CloseWithError(rewrite(original, out, edit)) }()
			return &both{in, original}, nil
		}
		job.Workspace = &source
	})
}

// both closes two readers and reads the first.
type both struct {
	io.ReadCloser
	other io.Closer
}

func (b *both) Close() error { return errors.Join(b.ReadCloser.Close(), b.other.Close()) }

// rewrite copies a tar through edit. Data that is not a tar passes unchanged.
func rewrite(from io.Reader, to io.Writer, edit func(*tar.Header, map[string]bool) *tar.Header) error {
	all, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	var edited bytes.Buffer
	r, w := tar.NewReader(bytes.NewReader(all)), tar.NewWriter(&edited)
	seen := map[string]bool{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_, err = to.Write(all)
			return err
		}
		if h = edit(h, seen); h == nil {
			continue
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			_, err = to.Write(all)
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = to.Write(edited.Bytes())
	return err
}

// facade is a Backend whose methods can be replaced one by one.
type facade struct {
	*fake.Backend
	info   func(executor.Info) executor.Info
	run    func(context.Context, executor.Job, executor.Sink) (executor.Result, error)
	attach func() error
	remove func(ctx context.Context, id string) error
}

func (f *facade) Info(ctx context.Context) (executor.Info, error) {
	i, err := f.Backend.Info(ctx)
	if f.info != nil && err == nil {
		i = f.info(i)
	}
	return i, err
}

func (f *facade) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if f.run != nil {
		return f.run(ctx, job, sink)
	}
	return f.Backend.Run(ctx, job, sink)
}

func (f *facade) Attach(ctx context.Context, job executor.Job, r executor.Resume, sink executor.Sink) (executor.Result, error) {
	if f.attach != nil {
		return executor.Result{}, f.attach()
	}
	return f.Backend.Attach(ctx, job, r, sink)
}

func (f *facade) Remove(ctx context.Context, id string) error {
	if f.remove != nil {
		return f.remove(ctx, id)
	}
	return f.Backend.Remove(ctx, id)
}

// withInfo is a wrap that changes Info only.
func withInfo(change func(*executor.Info)) func(*fake.Backend) executor.Backend {
	return func(b *fake.Backend) executor.Backend {
		return &facade{Backend: b, info: func(i executor.Info) executor.Info { change(&i); return i }}
	}
}

func prepareFailed(r *executor.Result, part string) bool {
	return r.Failure != nil && r.Failure.Phase == executor.PhasePrepare && strings.Contains(r.Failure.Message, part)
}
