package backendtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func limitSaboteurs() []saboteur {
	return []saboteur{
		{
			does: "stops at half the timeout", breaks: []string{"BE-30", "BE-44"},
			hook: changeJob(func(job *executor.Job) { job.Limits.Timeout /= 2 }),
		},
		{
			does: "starts the timeout's clock when Run begins", breaks: []string{"BE-31"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				bounded, cancel := context.WithTimeout(ctx, job.Limits.Timeout)
				defer cancel()
				limit := job.Limits.Timeout
				job.Limits.Timeout = time.Hour
				result, err := run(bounded, job, sink)
				if result.Status == executor.StatusKilled && ctx.Err() == nil && bounded.Err() != nil {
					result.Status, result.Failure = executor.StatusTimedOut, result.TimedOut(executor.FieldTimeout, job.Limits)
					result.Wall = max(result.Wall, limit)
					if result.Signal == "" && result.ExitCode == nil {
						result.Wall = 0
					}
				}
				return result, err
			},
		},
		{
			does: "kills without a grace", breaks: []string{"BE-32", "BE-42", "BE-44", "BE-45", "BE-49", "BE-62"},
			hook: changeJob(func(job *executor.Job) { job.Limits.KillGrace = 0 }),
		},
		{
			does: "sends nothing but SIGTERM", breaks: []string{"BE-24", "BE-44", "BE-47"},
			hook: changeJob(func(job *executor.Job) { job.Limits.KillGrace = 1000 * time.Hour }),
		},
		{
			does: "promises a memory limit and has none", breaks: []string{"BE-33"},
			hook: changeJob(func(job *executor.Job) { job.Limits.MemoryBytes = 1 << 50 }),
		},
		{
			does: "promises a disk limit and has none", breaks: []string{"BE-34"},
			hook: changeJob(func(job *executor.Job) { job.Limits.DiskBytes = 1 << 40 }),
		},
		{
			does: "takes files for memory", breaks: []string{"BE-39"},
			hook: changeJob(func(job *executor.Job) { job.Limits.DiskBytes = min(job.Limits.DiskBytes, job.Limits.MemoryBytes) }),
		},
		{
			does: "lets memory have the room of files", breaks: []string{"BE-33"},
			hook: changeJob(func(job *executor.Job) { job.Limits.MemoryBytes += job.Limits.DiskBytes }),
		},
		{
			does: "does not say which limit it was", breaks: []string{"BE-30", "BE-33", "BE-34", "BE-65"},
			hook: changeResult(nameNoLimit),
		},
		{
			does: "takes the limit of CPU time for one of wall time", breaks: []string{"BE-65"},
			hook: changeJob(func(job *executor.Job) {
				if l := &job.Limits; l.CPUTime > 0 {
					l.Timeout, l.CPUTime = l.CPUTime, 0
				}
			}),
		},
		{
			does: "promises a process limit and has none", breaks: []string{"BE-35"},
			hook: changeJob(func(job *executor.Job) { job.Limits.PIDs = 1 << 20 }),
		},
		{
			does: "promises that the network is off and leaves it on", breaks: []string{"BE-36"},
			hook: changeJob(func(job *executor.Job) { job.Spec.Network = executor.NetworkOn }),
		},
		{
			does: "leaves the network on when nothing is said", breaks: []string{"BE-36"},
			hook: changeJob(func(job *executor.Job) {
				if job.Spec.Network == executor.NetworkDefault {
					job.Spec.Network = executor.NetworkOn
				}
			}),
		},
		{
			does: "promises a network and gives none", breaks: []string{"BE-37"},
			hook: changeJob(func(job *executor.Job) { job.Spec.Network = executor.NetworkOff }),
		},
		{
			does: "calls itself a container and shows the host", breaks: []string{"BE-38"},
			caps: func(c *executor.Capabilities) { c.Isolation = executor.IsolationNone },
			wrap: withInfo(func(i *executor.Info) { i.Capabilities.Isolation = executor.IsolationContainer }),
		},
	}
}

func promiseSaboteurs() []saboteur {
	return []saboteur{
		{
			does: "does not warn that memory is not limited", breaks: []string{"BE-70"},
			caps: func(c *executor.Capabilities) { c.Memory = false },
			wrap: withInfo(func(i *executor.Info) { i.Warnings = nil }),
		},
		{
			does: "has no version", breaks: []string{"BE-70"},
			wrap: withInfo(func(i *executor.Info) { i.Version = "" }),
		},
		{
			does: "promises nothing and refuses nothing", breaks: []string{"BE-07", "BE-16", "BE-33", "BE-34", "BE-35", "BE-36", "BE-37", "BE-50", "BE-65", "BE-71", "BE-72", "BE-73", "BE-74"},
			wrap: func(b *fake.Backend) executor.Backend {
				poor := executor.Capabilities{Isolation: executor.IsolationContainer, Languages: []executor.Language{executor.LanguagePython}, PythonVersions: []string{"3.13"}}
				return &facade{Backend: b, info: func(i executor.Info) executor.Info {
					i.Capabilities = poor
					i.Warnings = []string{"network, memory, disk, cpu and pids are not limited"}
					return i
				}}
			},
		},
		{
			does: "refuses a field of the Engine's", breaks: []string{"BE-71"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				if job.Spec.Durable {
					return executor.Result{}, executor.FieldErrorf(executor.Unimplemented, "durable", "not here")
				}
				return run(ctx, job, sink)
			},
		},
		{
			does: "refuses CPU shares that it promises", breaks: []string{"BE-72"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				if job.Spec.Limits.CPUShares != 0 {
					return executor.Result{}, executor.FieldErrorf(executor.Unimplemented, "config.cpu_shares", "not here")
				}
				return run(ctx, job, sink)
			},
		},
		{
			does: "names only the first bad field", breaks: []string{"BE-74"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if e, ok := errors.AsType[*executor.Error](err); ok && len(e.Fields) > 1 {
					first := *e
					first.Fields = e.Fields[:1]
					return result, &first
				}
				return result, err
			},
		},
		{
			does: "runs any Python for a version that it has not", breaks: []string{"BE-52", "BE-74"},
			hook: changeJob(func(job *executor.Job) {
				if job.Spec.PythonVersion == "2.1" {
					job.Spec.PythonVersion = ""
				}
			}),
		},
	}
}

func lifeSaboteurs() []saboteur {
	leak := make(chan struct{})
	stuck := make(chan struct{})
	var left []string
	return []saboteur{
		{
			does: "ignores cancel", breaks: []string{"BE-40", "BE-41", "BE-42", "BE-43", "BE-44", "BE-45", "BE-47", "BE-49", "BE-62", "BE-92"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				return run(context.WithoutCancel(ctx), job, sink)
			},
		},
		{
			does: "always sends SIGTERM", breaks: []string{"BE-49"},
			hook: changeJob(func(job *executor.Job) { job.Spec.InterruptOnCancel = false }),
		},
		{
			does: "ignores a cancel in preparation", breaks: []string{"BE-40", "BE-41", "BE-92"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				begun, begin := context.WithCancelCause(context.WithoutCancel(ctx))
				defer begin(nil)
				return run(begun, job, &tapped{sink, func(s executor.Sink, e executor.Event) error {
					if _, ok := e.Body.(executor.Started); ok {
						context.AfterFunc(ctx, func() { begin(context.Canceled) })
					}
					return s.Emit(e)
				}})
			},
		},
		{
			does: "waits for the descendants of a program", breaks: []string{"BE-46"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if strings.Contains(job.Spec.Code, "spawn-grandchild") && result.Status != executor.StatusKilled && result.Status != executor.StatusTimedOut {
					result.Wall += time.Hour
				}
				return result, err
			},
		},
		{
			does: "lets descendants live on after a timeout", breaks: []string{"BE-47"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if err == nil && result.Status == executor.StatusTimedOut && strings.Contains(job.Spec.Code, "spawn-grandchild") {
					text := []byte("a descendant is still here\n")
					err = say(sink, executor.Output{Stream: executor.Stdout, Offset: result.StdoutBytes, Data: text})
					result.StdoutBytes += int64(len(text))
				}
				return result, err
			},
		},
		{
			does: "leaks a goroutine with every run", breaks: []string{"BE-62"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				go func() { <-leak }()
				return run(ctx, job, sink)
			},
			release: func() { close(leak) },
		},
		{
			does: "mixes the output of runs that go at once", breaks: []string{"BE-60"},
			hook: mix,
		},
		{
			does: "starts an Execution that runs a second time", breaks: []string{"BE-63"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if executor.CodeOf(err) == executor.Conflict {
					job.ID += "-again"
					return run(ctx, job, sink)
				}
				return result, err
			},
		},
		{
			does: "ends an Execution when it is to run again", breaks: []string{"BE-63"},
			wrap: func(b *fake.Backend) executor.Backend {
				return &facade{Backend: b, run: func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
					result, err := b.Run(ctx, job, sink)
					if executor.CodeOf(err) == executor.Conflict {
						return result, errors.Join(err, b.Remove(ctx, job.ID))
					}
					return result, err
				}}
			},
		},
		{
			does: "looks for a free place now and then", breaks: []string{"BE-64"},
			wrap: func(b *fake.Backend) executor.Backend {
				places := make(chan struct{}, 2)
				return &facade{
					Backend: b,
					info:    func(i executor.Info) executor.Info { i.Capacity = cap(places); return i },
					run: func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
						for {
							select {
							case places <- struct{}{}:
								defer func() { <-places }()
								return b.Run(ctx, job, sink)
							default:
								time.Sleep(2 * time.Second)
							}
						}
					},
				}
			},
		},
		{
			does: "leaves its folders behind", breaks: []string{"BE-93"},
			hook: changeJob(func(job *executor.Job) {
				if len(left) == 0 {
					left = []string{"folder of " + job.ID}
				}
			}),
			leftovers: func() []string { return slices.Clone(left) },
		},
		{
			does: "cannot remove what never was", breaks: []string{"BE-52", "BE-58", "BE-71", "BE-74", "BE-80", "BE-82"},
			wrap: func(b *fake.Backend) executor.Backend {
				return &facade{Backend: b, remove: func(ctx context.Context, id string) error {
					if !slices.Contains(b.Runs(), id) {
						return executor.Errorf(executor.NotFound, "execution %s", id)
					}
					return b.Remove(ctx, id)
				}}
			},
		},
		{
			does: "does not kill what it is to remove", breaks: []string{"BE-81"},
			wrap: func(b *fake.Backend) executor.Backend {
				return &facade{Backend: b, remove: func(context.Context, string) error { return nil }}
			},
		},
		{
			does: "has an Attach that is broken", breaks: []string{"BE-82"},
			wrap: func(b *fake.Backend) executor.Backend {
				return &facade{Backend: b, attach: func() error { return errors.New("not written yet") }}
			},
		},
		{
			does: "forgets a Result once it was told", breaks: []string{"BE-85"},
			caps: func(c *executor.Capabilities) { c.Attach = true },
			wrap: func(b *fake.Backend) executor.Backend {
				return &facade{Backend: b, attach: func() error { return executor.Errorf(executor.NotFound, "it has ended") }}
			},
		},
		{
			does: "panics at a signal", breaks: []string{"BE-05"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if result.Signal == "SIGUSR1" {
					panic("no such signal")
				}
				return result, err
			},
		},
		{
			does: "hangs when there is nothing to run", breaks: []string{"BE-02", "BE-56"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if prepareFailed(&result, "no entrypoint") {
					<-stuck
				}
				return result, err
			},
			release: func() { close(stuck) },
		},
	}
}

// mix gives a run the output of another run.
func mix(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
	return run(ctx, job, &tapped{sink, func(s executor.Sink, e executor.Event) error {
		if out, ok := e.Body.(executor.Output); ok && string(out.Data) == "name-7-\n" {
			out.Data = []byte("name-8-\n")
			return say(s, out)
		}
		return s.Emit(e)
	}})
}

func nameNoLimit(_ executor.Job, r *executor.Result) {
	if r.HitLimit() != nil {
		r.Failure = nil
	}
}
