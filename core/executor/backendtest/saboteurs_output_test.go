package backendtest_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func outputSaboteurs() []saboteur {
	var held held
	var late lateEmitter
	return []saboteur{
		{
			does: "emits Finished itself", breaks: []string{"EV-01"},
			hook: fake.EmitAfter(executor.Finished{Result: executor.Result{Status: executor.StatusSucceeded}}),
		},
		{
			does: "numbers its events", breaks: []string{"EV-01"},
			hook: changeEvents(func(s executor.Sink, e executor.Event) error { e.Seq = 7; return s.Emit(e) }),
		},
		{
			does: "says Started twice", breaks: []string{"EV-02"},
			hook: changeEvents(func(s executor.Sink, e executor.Event) error {
				if _, ok := e.Body.(executor.Started); ok {
					if err := s.Emit(e); err != nil {
						return err
					}
				}
				return s.Emit(e)
			}),
		},
		{
			does: "drops what lies beyond the first 64 KiB of a stream", breaks: []string{"BE-10", "BE-23", "BE-43", "BE-91"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				if out.Offset >= 64<<10 {
					return nil
				}
				return say(s, out)
			}),
		},
		{
			does: "swaps the first two pieces of stdout", breaks: []string{"BE-03", "EV-03"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				var kept *executor.Event
				result, err := run(ctx, job, &tapped{sink, func(s executor.Sink, e executor.Event) error {
					out, ok := e.Body.(executor.Output)
					switch {
					case !ok || out.Stream != executor.Stdout || job.Spec.Entrypoint == "":
						return s.Emit(e)
					case out.Offset == 0:
						kept = &e
						return nil
					case kept != nil:
						first := *kept
						kept = nil
						if err := s.Emit(e); err != nil {
							return err
						}
						return s.Emit(first)
					}
					return s.Emit(e)
				}})
				if kept != nil && err == nil {
					err = sink.Emit(*kept)
				}
				return result, err
			},
		},
		{
			does: "repeats what comes on stderr", breaks: []string{"BE-01", "BE-18", "BE-21", "BE-23", "BE-25", "BE-26", "EV-03"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				if out.Stream == executor.Stderr {
					if err := say(s, out); err != nil {
						return err
					}
				}
				return say(s, out)
			}),
		},
		{
			does: "gives offsets that are one too high", breaks: []string{"BE-23", "BE-91", "EV-03"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error { out.Offset++; return say(s, out) }),
		},
		{
			does: "emits empty pieces", breaks: []string{"EV-04"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				empty := out
				empty.Data = nil
				if err := say(s, empty); err != nil {
					return err
				}
				return say(s, out)
			}),
		},
		{
			does: "goes on after its Result", breaks: []string{"EV-05"},
			hook: late.hook, release: func() { late.wg.Wait() },
		},
		{
			does: "calls the sink from two goroutines", breaks: []string{"EV-06"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				var wg sync.WaitGroup
				wg.Go(func() { _ = say(s, executor.Progress{Phase: executor.PhaseRun, Message: "beside"}) })
				defer wg.Wait()
				return say(s, out)
			}),
		},
		{
			does: "hands out a handle of a megabyte", breaks: []string{"EV-07"},
			hook: changeStarted(func(s *executor.Started) { s.Handle = make([]byte, 1<<20) }),
		},
		{
			does: "does not say how it starts programs", breaks: []string{"EV-07"},
			hook: changeStarted(func(s *executor.Started) { s.Start = executor.StartUnknown }),
		},
		{
			does: "counts progress beyond its total", breaks: []string{"BE-74", "EV-08"},
			hook: fake.EmitBefore(executor.Progress{Phase: executor.PhasePrepare, Message: "install", Done: 3, Total: 2}),
		},
		{
			does: "makes output valid UTF-8", breaks: []string{"BE-10", "BE-21", "BE-91", "EV-03"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				out.Data = []byte(strings.ToValidUTF8(string(out.Data), "?"))
				return say(s, out)
			}),
		},
		{
			does: "turns line ends into those of another system", breaks: []string{"BE-10", "BE-21"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				out.Data = bytes.ReplaceAll(out.Data, []byte("\r"), []byte("\n"))
				return say(s, out)
			}),
		},
		{
			does: "holds all output back until the end", breaks: []string{"BE-22", "BE-23", "BE-24", "BE-42", "BE-44", "BE-45", "BE-47", "BE-49", "BE-60", "BE-62", "BE-63", "BE-81"},
			hook: held.hook,
		},
		{
			does: "swallows the sink's errors", breaks: []string{"BE-24", "BE-62"},
			hook: changeEvents(func(s executor.Sink, e executor.Event) error { _ = s.Emit(e); return nil }),
		},
		{
			does: "returns an error of its own for the sink's", breaks: []string{"BE-24"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if executor.CodeOf(err) == executor.Exhausted {
					err = executor.Errorf(executor.Internal, "it went wrong")
				}
				return result, err
			},
		},
		{
			does: "ends a program at its output cap", breaks: []string{"BE-25"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				return run(ctx, job, &tapped{sink, func(s executor.Sink, e executor.Event) error {
					out, ok := e.Body.(executor.Output)
					if ok && job.Limits.OutputBytes > 0 && out.Offset+int64(len(out.Data)) >= job.Limits.OutputBytes {
						defer cancel(context.Canceled)
					}
					return s.Emit(e)
				}})
			},
		},
		{
			does: "keeps all output, whatever the cap", breaks: []string{"BE-25", "BE-91"},
			hook: changeJob(func(job *executor.Job) { job.Limits.OutputBytes = executor.Unlimited }),
		},
		{
			does: "does not say that output was cut", breaks: []string{"BE-25", "BE-91"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.StdoutTruncated, r.StderrTruncated = false, false }),
		},
	}
}

func changeStarted(change func(*executor.Started)) fake.Hook {
	return changeEvents(func(s executor.Sink, e executor.Event) error {
		if started, ok := e.Body.(executor.Started); ok {
			change(&started)
			e.Body = started
		}
		return s.Emit(e)
	})
}

// lateEmitter emits one more Event after Run has returned.
type lateEmitter struct{ wg sync.WaitGroup }

func (s *lateEmitter) hook(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
	returned := make(chan struct{})
	s.wg.Go(func() {
		<-returned
		time.Sleep(time.Nanosecond) // of the bubble's clock: whoever waited for Run has its Result by then
		_ = say(sink, executor.Progress{Phase: executor.PhaseCollect, Message: "one more"})
	})
	defer close(returned)
	return run(ctx, job, sink)
}

// held emits all Events at the end.
type held struct{}

func (held) hook(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
	var all []executor.Event
	result, err := run(ctx, job, &tapped{sink, func(s executor.Sink, e executor.Event) error {
		if _, ok := e.Body.(executor.Output); ok && job.Limits.OutputBytes != executor.Unlimited {
			all = append(all, e)
			return nil
		}
		return s.Emit(e)
	}})
	for _, e := range all {
		if err == nil {
			err = sink.Emit(e)
		}
	}
	return result, err
}
