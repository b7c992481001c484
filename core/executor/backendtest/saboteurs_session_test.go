package backendtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing/iotest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// changeCode gives a Session's interpreter a program other than the requested one.
func changeCode(from, to string) fake.Hook {
	return changeJob(func(job *executor.Job) {
		if job.Spec.Session != "" && job.Spec.Code == from {
			job.Spec.Code = to
		}
	})
}

func sessionSaboteurs() []saboteur {
	list := slices.Concat(stateSaboteurs(), besideSaboteurs(), sessionFileSaboteurs(), sessionLifeSaboteurs())
	for i := range list {
		list[i].sessions = true
	}
	return list
}

func stateSaboteurs() []saboteur {
	return []saboteur{
		{
			does: "does not say which Python a Session has", breaks: []string{"SE-01"},
			wrap: faced(func(f *sessionFacade) {
				f.open = func(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
					opened, err := f.Backend.OpenSession(ctx, s)
					opened.PythonVersion = ""
					return opened, err
				}
			}),
		},
		{does: "forgets what was defined", breaks: []string{"SE-02"}, hook: changeCode("get twice", "get forgotten")},
		{does: "runs what came before again", breaks: []string{"SE-03"}, hook: changeCode("add counter 1\nget counter", "add counter 1\nadd counter 1\nget counter")},
		{
			does: "runs Executions of a Session at the same time", breaks: []string{"SE-04"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if executor.CodeOf(err) != executor.Conflict {
					return result, err
				}
				err = errors.Join(say(sink, executor.Started{Start: executor.StartExec}),
					say(sink, executor.Output{Stream: executor.Stdout, Data: []byte("done\n")}))
				code := 0
				return executor.Result{Status: executor.StatusSucceeded, ExitCode: &code, StdoutBytes: 5}, err
			},
		},
		{does: "keeps the traceback to itself", breaks: []string{"SE-05"}, hook: changeCode("raise \"KeyError: 'law-7'\"", "exit 1")},
		{
			does: "ends the interpreter with sys.exit", breaks: []string{"SE-06"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.ExitCode != nil && *r.ExitCode == 7 {
					r.SessionState = executor.SessionStateLost
				}
			}),
		},
		{
			does: "does not say which display is the value", breaks: []string{"SE-07", "SE-21", "SE-27"},
			hook: changeEvents(func(sink executor.Sink, e executor.Event) error {
				if d, ok := e.Body.(executor.Display); ok {
					d.Value = false
					e.Body = d
				}
				return sink.Emit(e)
			}),
		},
		{
			does: "tells of files only when it was asked not to", breaks: []string{"SE-23"},
			hook: changeJob(func(job *executor.Job) { job.Spec.FilesChanged = !job.Spec.FilesChanged && job.Spec.Session != "" }),
		},
		{
			does: "counts no files beyond those that it tells of", breaks: []string{"SE-23"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.FilesOmitted = 0 }),
		},
		{
			does: "forgets the displays that it drops", breaks: []string{"SE-08"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.DisplaysDropped = 0 }),
		},
		{
			does: "shows a value however large it is", breaks: []string{"SE-08", "EV-09"},
			hook: changeEvents(func(sink executor.Sink, e executor.Event) error {
				if d, ok := e.Body.(executor.Display); ok && d.Truncated {
					e.Body = executor.Display{Data: map[string][]byte{"text/html": make([]byte, 3<<20)}}
				}
				return sink.Emit(e)
			}),
		},
		{
			does: "gives code what another one did not read", breaks: []string{"SE-09"},
			hook: changeJob(func(job *executor.Job) {
				if job.Stdin == nil && job.Spec.Code == "read-stdin" {
					job.Stdin = &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("two\n")), nil }}
				}
			}),
		},
		{
			does: "kills busy code where an interrupt would do", breaks: []string{"SE-10", "SE-26"},
			hook: changeJob(func(job *executor.Job) {
				if strings.Contains(job.Spec.Code, "busy") {
					job.Limits.KillGrace = 0
				}
			}),
		},
		{
			does: "loses the state with a cancel", breaks: []string{"SE-11", "SE-42"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Status == executor.StatusKilled && r.Signal == "SIGINT" {
					r.SessionState = executor.SessionStateRestarted
				}
			}),
		},
		{
			does: "restarts an interpreter and does not say so", breaks: []string{"SE-12"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.SessionState == executor.SessionStateRestarted {
					r.SessionState = executor.SessionStateKept
				}
			}),
		},
		{
			does: "says nothing of an interpreter that died", breaks: []string{"SE-13", "SE-25"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.SessionState == executor.SessionStateLost {
					r.SessionState = executor.SessionStateKept
				}
			}),
		},
		{
			does: "never wipes", breaks: []string{"SE-14"},
			wrap: faced(func(f *sessionFacade) {
				f.restart = func(ctx context.Context, id string, _ bool) error { return f.Backend.RestartSession(ctx, id, false) }
			}),
		},
		{
			does: "does not restart while something runs", breaks: []string{"SE-15"},
			wrap: faced(func(f *sessionFacade) {
				f.restart = func(ctx context.Context, id string, wipe bool) error {
					if len(f.Running()) > 0 {
						return executor.Errorf(executor.Conflict, "busy")
					}
					return f.Backend.RestartSession(ctx, id, wipe)
				}
			}),
		},
	}
}

func besideSaboteurs() []saboteur {
	return []saboteur{
		{
			does: "takes the death of a command for the interpreter's", breaks: []string{"SE-16"},
			hook: changeResult(func(job executor.Job, r *executor.Result) {
				if len(job.Spec.Command) > 0 && r.Status == executor.StatusFailed && r.Signal != "" {
					r.SessionState = executor.SessionStateLost
				}
			}),
		},
		{
			does: "lets descendants of a command live on after its timeout", breaks: []string{"SE-17"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if err == nil && result.Status == executor.StatusTimedOut && len(job.Spec.Command) > 0 && job.Spec.Session != "" {
					text := []byte("a descendant is still here\n")
					err = say(sink, executor.Output{Stream: executor.Stdout, Offset: result.StdoutBytes, Data: text})
					result.StdoutBytes += int64(len(text))
				}
				return result, err
			},
		},
		{
			does: "does not mark earlier output", breaks: []string{"SE-18"},
			hook: changeOutput(func(sink executor.Sink, out executor.Output) error {
				out.Earlier = false
				return say(sink, out)
			}),
		},
		{
			does: "marks output as earlier that is not", breaks: []string{"EV-10"},
			hook: changeOutput(func(sink executor.Sink, out executor.Output) error {
				out.Earlier = out.Earlier || string(out.Data) == "err\n"
				return say(sink, out)
			}),
		},
		{
			does: "shows variables in full", breaks: []string{"SE-19"},
			wrap: faced(func(f *sessionFacade) {
				f.variables = func(ctx context.Context, id string) ([]executor.Variable, error) {
					list, err := f.Backend.Variables(ctx, id)
					for i := range list {
						if len(list[i].Preview) > 100 {
							list[i].Preview = strings.Repeat("x", 5000)
						}
					}
					return list, err
				}
			}),
		},
		{
			does: "collects what an earlier Execution has made", breaks: []string{"SE-20"},
			hook: changeJob(func(job *executor.Job) {
				if job.Spec.Session != "" && job.Spec.OutputsChanged {
					job.Spec.Outputs = []string{"**"}
				}
			}),
		},
		{
			does: "says nothing of a file that has changed while it was collected", breaks: []string{"SE-24"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Failure != nil && r.Failure.Phase == executor.PhaseCollect {
					r.Status, r.Failure = executor.StatusSucceeded, nil
				}
			}),
		},
		{
			does: "is lost when a file shrinks", breaks: []string{"SE-24"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Failure != nil && strings.Contains(r.Failure.Message, "out/shrinks") {
					r.Failure = &executor.Failure{Code: executor.Internal, Phase: executor.PhaseCollect, Message: r.Failure.Message}
				}
			}),
		},
		{does: "forgets the names of javascript", breaks: []string{"SE-21"}, hook: changeCode("print 7 b", "raise v is not defined\n")},
		{does: "forgets the names of the shell", breaks: []string{"SE-22"}, hook: changeCode("print 100", "print \"\"")},
	}
}

func sessionFileSaboteurs() []saboteur {
	return []saboteur{
		{
			does: "lists one level only", breaks: []string{"SE-30", "SE-35"},
			wrap: faced(func(f *sessionFacade) {
				f.list = func(ctx context.Context, id, path string, _ bool) ([]executor.File, error) {
					return f.Backend.ListFiles(ctx, id, path, false)
				}
			}),
		},
		{
			does: "follows a link out of the work folder", breaks: []string{"SE-31"},
			wrap: faced(func(f *sessionFacade) {
				f.read = func(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
					if path == "out" {
						return executor.File{Path: path}, io.NopCloser(strings.NewReader("root:x:0:0")), nil
					}
					return f.Backend.ReadFile(ctx, id, path)
				}
			}),
		},
		{
			does: "keeps what has come of a file", breaks: []string{"SE-32"},
			wrap: faced(func(f *sessionFacade) {
				f.write = func(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
					var part bytes.Buffer
					written, err := f.Backend.WriteFile(ctx, id, file, io.TeeReader(r, &part))
					if err != nil && part.Len() > 0 && part.Len() < 1<<20 {
						_, _ = f.Backend.WriteFile(ctx, id, executor.File{Path: file.Path, SizeBytes: -1}, iotest.OneByteReader(&part))
					}
					return written, err
				}
			}),
		},
		{
			does: "lists an upload under way", breaks: []string{"SE-34"},
			wrap: faced(func(f *sessionFacade) {
				f.write = func(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
					partial := file.Path + ".part"
					_, err := f.Backend.WriteFile(ctx, id, executor.File{Path: partial, SizeBytes: 0}, strings.NewReader(""))
					written, writeErr := f.Backend.WriteFile(ctx, id, file, r)
					if err == nil {
						err = f.Backend.RemoveFile(ctx, id, partial)
					}
					return written, errors.Join(writeErr, err)
				}
			}),
		},
		{
			does: "drops the mode of a file", breaks: []string{"SE-35"},
			wrap: faced(func(f *sessionFacade) {
				f.write = func(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
					file.Mode = 0
					return f.Backend.WriteFile(ctx, id, file, r)
				}
			}),
		},
		{
			does: "makes no folder that is empty", breaks: []string{"SE-35"},
			wrap: faced(func(f *sessionFacade) {
				f.write = func(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
					if file.Directory {
						return executor.File{Path: file.Path, Directory: true, Mode: 0o755}, nil
					}
					return f.Backend.WriteFile(ctx, id, file, r)
				}
			}),
		},
		{
			does: "reads an upload under way", breaks: []string{"SE-34"},
			wrap: faced(func(f *sessionFacade) {
				var writing atomic.Int64
				f.write = func(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
					writing.Add(1)
					defer writing.Add(-1)
					return f.Backend.WriteFile(ctx, id, file, r)
				}
				f.read = func(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
					if writing.Load() > 0 && slices.Contains(f.Sessions(), id) {
						return executor.File{Path: path}, io.NopCloser(strings.NewReader("")), nil
					}
					return f.Backend.ReadFile(ctx, id, path)
				}
			}),
		},
		{
			does: "has no disk limit for a Session's files", breaks: []string{"SE-25", "SE-33"},
			wrap: faced(func(f *sessionFacade) {
				f.open = func(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
					s.Limits.DiskBytes = 1 << 40
					return f.Backend.OpenSession(ctx, s)
				}
			}),
		},
	}
}
