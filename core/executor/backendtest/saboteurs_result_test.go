package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func resultSaboteurs() []saboteur {
	return []saboteur{
		{
			does: "calls every end a success", breaks: []string{"BE-04", "BE-05", "BE-06", "BE-07", "BE-16", "BE-46", "BE-50", "BE-90"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Status == executor.StatusFailed && r.Failure == nil {
					r.Status = executor.StatusSucceeded
				}
			}),
		},
		{
			does: "gives exit codes modulo 128", breaks: []string{"BE-04"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.ExitCode != nil && *r.ExitCode > 127 {
					*r.ExitCode -= 128
				}
			}),
		},
		{
			does: "turns a signal into an exit code", breaks: []string{"BE-05", "BE-42", "BE-44", "BE-49", "BE-62"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Signal != "" {
					code := 137
					r.ExitCode, r.Signal = &code, ""
				}
			}),
		},
		{
			does: "names a signal and an exit code", breaks: []string{"BE-05", "BE-90"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Signal == "SIGUSR1" {
					code := 138
					r.ExitCode = &code
				}
			}),
		},
		{
			does: "forgets why a preparation failed", breaks: []string{"BE-02", "BE-56", "BE-90"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if prepareFailed(r, "no entrypoint") {
					r.Failure = nil
				}
			}),
		},
		{
			does: "prints a traceback on stdout", breaks: []string{"BE-06", "BE-91"},
			hook: changeOutput(func(s executor.Sink, out executor.Output) error {
				if strings.HasPrefix(string(out.Data), "Traceback") {
					out.Stream = executor.Stdout
				}
				return say(s, out)
			}),
		},
		{
			does: "exits with 127 where an argv does not exist", breaks: []string{"BE-08"},
			hook: startFailureAsExit(executor.NotFound, 127),
		},
		{
			does: "exits with 126 where an argv cannot be executed", breaks: []string{"BE-09"},
			hook: startFailureAsExit(executor.Invalid, 126),
		},
		{
			does: "takes the user's bad archive for a failure of its own", breaks: []string{"BE-56", "BE-62"},
			hook: failureAsError("uncompressed tar"),
		},
		{
			does: "takes the user's bad requirement for a failure of its own", breaks: []string{"BE-51"},
			hook: failureAsError("cannot be resolved"),
		},
		{
			does: "tells an open port from a closed one", breaks: []string{"BE-59"},
			hook: changeResult(func(job executor.Job, r *executor.Result) {
				if address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(job.Spec.Requirements); address != "" {
					conn, err := net.Dial("tcp4", address)
					if err == nil {
						err = conn.Close()
					}
					r.Failure.Message += fmt.Sprint(err)
				}
			}),
		},
		{
			does: "keeps to itself what a pre_command said", breaks: []string{"BE-54"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Failure != nil && r.Failure.Field == "pre_commands" {
					r.Failure.Message, _, _ = strings.Cut(r.Failure.Message, ":\n")
				}
			}),
		},
		{
			does: "takes its own broken stream for the user's failure", breaks: []string{"BE-53"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if err != nil && strings.Contains(err.Error(), "workspace") {
					result, err = executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{
						Code: executor.Invalid, Phase: executor.PhasePrepare, Message: err.Error(),
					}}, nil
				}
				return result, err
			},
		},
		{
			does: "returns ctx's error when cancelled", breaks: []string{"BE-40", "BE-41", "BE-42", "BE-43", "BE-44", "BE-45", "BE-47", "BE-49", "BE-62"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if result.Status == executor.StatusKilled && ctx.Err() != nil {
					return executor.Result{}, ctx.Err()
				}
				return result, err
			},
		},
		{
			does: "calls a timeout a kill", breaks: []string{"BE-30", "BE-32", "BE-44", "BE-47", "BE-62", "BE-65"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Status == executor.StatusTimedOut {
					r.Status = executor.StatusKilled
				}
			}),
		},
		{
			does: "lets a good exit code overrule the limit", breaks: []string{"BE-32", "BE-45", "BE-49"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.ExitCode != nil && *r.ExitCode == 0 {
					r.Status = executor.StatusSucceeded
				}
			}),
		},
		{
			does: "knows no time", breaks: []string{"BE-30", "BE-31", "BE-44", "BE-65", "BE-75"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.Wall, r.CPU, r.Phases = 0, 0, executor.Phases{} }),
		},
		{
			does: "gives memory in pages", breaks: []string{"BE-33", "BE-75"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.PeakMemoryBytes /= 4096 }),
		},
		{
			does: "gives what is charged for what is resident", breaks: []string{"BE-75"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.PeakResidentBytes /= 2 }),
		},
		{
			does: "takes no memory samples", breaks: []string{"BE-73"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.MemorySamples = nil }),
		},
		{
			does: "samples memory unasked", breaks: []string{"BE-73"},
			hook: changeJob(func(job *executor.Job) { job.Spec.SampleInterval = 10 * time.Millisecond }),
		},
		{
			does: "names another Python", breaks: []string{"BE-52", "BE-71"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.PythonVersion != "" {
					r.PythonVersion = "3.12.99"
				}
			}),
		},
		{
			does: "does not say what it installed", breaks: []string{"BE-50"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) { r.Requirements = nil }),
		},
		{
			does: "lists artifacts and does not hand them over", breaks: []string{"BE-16", "BE-91"},
			hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				result, err := run(ctx, job, sink)
				if len(job.Spec.Outputs) > 0 && err == nil {
					result.Artifacts = append(result.Artifacts, executor.Artifact{Path: "out/none.txt", SizeBytes: 1})
				}
				return result, err
			},
		},
		{
			does: "ends programs it loses as lost", breaks: []string{"BE-05", "BE-90"},
			hook: changeResult(func(_ executor.Job, r *executor.Result) {
				if r.Signal == "SIGSEGV" {
					r.Status = executor.StatusLost
				}
			}),
		},
	}
}

// startFailureAsExit reports an exit code for an argv that cannot be run, as a shell does.
func startFailureAsExit(code executor.Code, exit int) fake.Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		result, err := run(ctx, job, sink)
		if f := result.Failure; err == nil && f != nil && f.Phase == executor.PhaseStart && f.Code == code {
			result.Failure, result.ExitCode = nil, &exit
			err = say(sink, executor.Started{PID: 1, Start: executor.StartExec})
		}
		return result, err
	}
}

func failureAsError(part string) fake.Hook {
	return func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		result, err := run(ctx, job, sink)
		if err == nil && prepareFailed(&result, part) {
			return executor.Result{}, errors.New(result.Failure.Message)
		}
		return result, err
	}
}
