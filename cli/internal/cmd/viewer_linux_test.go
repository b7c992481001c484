package cmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/cli/internal/app"
	"github.com/python-executor/python-executor/cli/internal/input"
	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// stub is a Service whose Executions are "exe_1", which runs until it is cancelled.
type stub struct {
	executor.Service
	// output is what it writes before it waits.
	output string
	// stuck: its events do not end when it is cancelled.
	stuck bool
	// submit is Submit.
	submit   func(context.Context, executor.Spec) error
	backends []executor.Info

	mu        sync.Mutex
	cancelled []string
	ended     chan struct{}
	followed  int
}

func (s *stub) Submit(ctx context.Context, spec executor.Spec, _ executor.Input) (executor.Execution, error) {
	if s.submit != nil {
		if err := s.submit(ctx, spec); err != nil {
			return executor.Execution{}, err
		}
	}
	return executor.Execution{ID: "exe_1"}, nil
}

func (s *stub) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	if err := ctx.Err(); err != nil {
		return executor.Execution{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled = append(s.cancelled, id); len(s.cancelled) == 1 {
		close(s.ended)
	}
	return executor.Execution{ID: id, Status: executor.StatusKilled}, nil
}

func (s *stub) Get(ctx context.Context, id string) (executor.Execution, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cancelled) == 0 {
		return executor.Execution{ID: id, Status: executor.StatusRunning}, ctx.Err()
	}
	return executor.Execution{ID: id, Status: executor.StatusKilled, Result: &executor.Result{Status: executor.StatusKilled}}, ctx.Err()
}

func (s *stub) Events(ctx context.Context, _ string, _ uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		s.mu.Lock()
		s.followed++
		s.mu.Unlock()
		if !yield(executor.Event{Seq: 1, Body: executor.Output{Stream: executor.Stdout, Data: []byte(s.output)}}, nil) {
			return
		}
		ended := s.ended
		if s.stuck {
			ended = nil
		}
		select {
		case <-ended:
			yield(executor.Event{Seq: 2, Body: executor.Finished{Result: executor.Result{Status: executor.StatusKilled}}}, nil)
		case <-ctx.Done():
			yield(executor.Event{}, context.Cause(ctx))
		}
	}
}

func (s *stub) Backends(context.Context) ([]executor.Info, error) { return s.backends, nil }

func (s *stub) wasCancelled() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.cancelled, " ")
}

func TestCtrlCKillsWhatWasStarted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		v      viewer
		svc    *stub
		urgent bool
		killed string
		after  time.Duration
	}{
		{"run", viewer{live: true, kill: true}, &stub{}, false, "exe_1", 0},
		{"follow", viewer{live: true}, &stub{}, false, "", 0},
		{"run, and its events do not end", viewer{live: true, kill: true}, &stub{stuck: true}, false, "exe_1", 2 * time.Second},
		{"the same, and Ctrl-C again", viewer{live: true, kill: true}, &stub{stuck: true}, true, "exe_1", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.svc.ended = make(chan struct{})
			ctx, requests := stop.New(t.Context())
			c.v.g = &global{IO: IO{Out: io.Discard, Err: io.Discard}}
			began := time.Now()
			time.AfterFunc(time.Second, func() { requests.First(interrupted{syscall.SIGINT}) })
			if c.urgent {
				time.AfterFunc(2*time.Second, func() { requests.Again(interrupted{syscall.SIGINT}) })
			}
			err := c.v.view(&target{Service: c.svc, ctx: ctx}, "exe_1", newProgress(c.v.g))
			if _, ok := errors.AsType[interrupted](err); !ok {
				t.Errorf("%s: %v", c.name, err)
			}
			if took := time.Since(began); c.svc.wasCancelled() != c.killed || took != time.Second+c.after {
				t.Errorf("%s: killed %q after %s", c.name, c.svc.wasCancelled(), took)
			}
		})
	}
}

func TestOutputThatNobodyReadsKillsWhatWasStarted(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]bool{"run": true, "follow": false} {
		svc := &stub{output: "x", ended: make(chan struct{})}
		g := &global{IO: IO{Out: failing{syscall.EPIPE}, Err: io.Discard}}
		v := viewer{g: g, live: true, kill: kill}
		if err := v.view(&target{Service: svc, ctx: t.Context()}, "exe_1", newProgress(g)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := svc.wasCancelled(); (got == "exe_1") != kill {
			t.Errorf("%s: killed %q", name, got)
		}
	}
	svc := &stub{output: "x", ended: make(chan struct{})}
	g := &global{IO: IO{Out: failing{syscall.EPIPE}, Err: io.Discard}}
	c := &console{g: g, svc: svc, id: "ctx-1", lines: &scripted{lines: []string{"print x"}}, shown: &displayed{g: g}}
	if err := c.loop(t.Context()); err == nil || svc.wasCancelled() != "exe_1" {
		t.Errorf("console: killed %q, error %v", svc.wasCancelled(), err)
	}
}

func TestFollowShowsOutputWhenItHasEnded(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		var out bytes.Buffer
		svc := &stub{output: "x", ended: make(chan struct{})}
		close(svc.ended)
		g := &global{IO: IO{Out: &out, Err: io.Discard}}
		v := viewer{g: g, live: live}
		_ = v.view(&target{Service: svc, ctx: t.Context()}, "exe_1", newProgress(g)) // the status of a killed one
		want := map[bool]int{false: 2, true: 1}[live]
		if out.String() != "x" || svc.followed != want {
			t.Errorf("live %t: %q after %d readings", live, out.String(), svc.followed)
		}
	}
}

func TestALogWithoutItsEndIsAnError(t *testing.T) {
	t.Parallel()
	g := &global{IO: IO{Out: io.Discard, Err: io.Discard}}
	f := follower{stdout: io.Discard, stderr: io.Discard, progress: newProgress(g), g: g}
	if _, err := f.follow(t.Context(), noEvents{}, "exe_1"); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
}

type noEvents struct{ executor.Executions }

func (noEvents) Events(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
	return func(func(executor.Event, error) bool) {}
}

// TestCtrlCDuringASubmission: a submission whose input was read is given a moment, because without its id the execution could
// not be killed.
func TestCtrlCDuringASubmission(t *testing.T) {
	t.Parallel()
	const asked = time.Minute
	workspace := func() *executor.Source {
		return &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("tar")), nil }}
	}
	for _, c := range []struct {
		name                      string
		embedded, workspace, read bool
		again                     bool
		// answer is when the server answers; 0: never.
		answer, want time.Duration
	}{
		{"no input", false, false, false, false, 0, asked + 5*time.Second},
		{"no input, and the answer comes", false, false, false, false, asked + time.Second, asked + time.Second},
		{"no input, and Ctrl-C again", false, false, false, true, 0, asked + 2*time.Second},
		{"the engine inside", true, false, false, false, 0, asked},
		{"an input that is not read yet", false, true, false, false, 0, asked},
		{"an input that was read", false, true, true, false, 0, asked + 5*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, requests := stop.New(t.Context())
			svc := submitter{f: func(ctx context.Context, in executor.Input) error {
				if c.read {
					r, err := in.Workspace.Open()
					if err != nil {
						return err
					}
					if _, err := io.Copy(io.Discard, r); err != nil {
						return err
					}
				}
				var answer <-chan time.Time
				if c.answer > 0 {
					answer = time.After(c.answer)
				}
				select {
				case <-answer:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}}
			began := time.Now()
			time.AfterFunc(asked, func() { requests.First(interrupted{syscall.SIGINT}) })
			if c.again {
				time.AfterFunc(asked+2*time.Second, func() { requests.Again(interrupted{syscall.SIGINT}) })
			}
			in := executor.Input{}
			if c.workspace {
				in.Workspace = workspace()
			}
			_, err := startSubmit(&target{Service: svc, ctx: ctx, embedded: c.embedded}, executor.Spec{}, in).wait()
			if _, ok := errors.AsType[interrupted](err); ok == (c.answer > 0) || time.Since(began) != c.want {
				t.Errorf("%s: %v after %s, want %s", c.name, err, time.Since(began), c.want)
			}
			synctest.Wait()
		})
	}
}

// submitter is a Service that has Submit only.
type submitter struct {
	executor.Service
	f func(context.Context, executor.Input) error
}

func (s submitter) Submit(ctx context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
	return executor.Execution{ID: "exe_1"}, s.f(ctx, in)
}

func TestAVersionIsChosenFromThoseOfTheBackend(t *testing.T) {
	t.Parallel()
	svc := &stub{backends: []executor.Info{
		{Name: "first", Capabilities: executor.Capabilities{PythonVersions: []string{"3.11", "3.12"}}},
		{Name: "second", Capabilities: executor.Capabilities{PythonVersions: []string{"3.13"}}},
	}}
	for _, c := range []struct {
		name     string
		spec     executor.Spec
		requires string
		want     string
		fails    bool
	}{
		{"of the default backend", executor.Spec{}, ">=3.12", "3.12", false},
		{"of the named backend", executor.Spec{Backend: "second"}, ">=3.12", "3.13", false},
		{"the user's word stands", executor.Spec{PythonVersion: "3.9"}, ">=3.12", "3.9", false},
		{"an image has its own", executor.Spec{Image: "i"}, ">=3.12", "", false},
		{"none fits the default backend", executor.Spec{}, ">=3.13", "", true},
		{"of a backend that nobody told of", executor.Spec{Backend: "third"}, ">=3.12", "", false},
		{"nothing is required", executor.Spec{}, "", "", false},
	} {
		spec := c.spec
		err := selectPython(&target{Service: svc, ctx: t.Context()}, &spec, c.requires)
		if spec.PythonVersion != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v", c.name, spec.PythonVersion, err)
		}
	}
}

func TestWhatWasFoundInTheInputIsSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    runOptions
		in   input.Input
		want executor.Spec
	}{
		{"a guess", runOptions{}, input.Input{Found: detect.Found{Entrypoint: "x.py", Guessed: true}}, executor.Spec{Entrypoint: "x.py"}},
		{"no guess", runOptions{}, input.Input{Found: detect.Found{Entrypoint: "main.py"}}, executor.Spec{}},
		{"the requirements of the input", runOptions{}, input.Input{Found: detect.Found{Requirements: "idna"}}, executor.Spec{Requirements: "idna"}},
		{"the user's requirements win", runOptions{program: program{requirements: "file"}}, input.Input{Found: detect.Found{Requirements: "idna"}}, executor.Spec{Requirements: "six"}},
		{"the user's requirements win where they are none", runOptions{program: program{requirements: "empty file"}}, input.Input{Found: detect.Found{Requirements: "idna"}}, executor.Spec{}},
	} {
		var sent executor.Spec
		refused := errors.New("refused")
		svc := &stub{submit: func(_ context.Context, s executor.Spec) error {
			sent = s
			return refused
		}}
		c.o.g, c.o.submit = &global{IO: IO{Out: io.Discard, Err: io.Discard}}, true
		spec := executor.Spec{}
		if c.o.requirements == "file" {
			spec.Requirements = "six"
		}
		if err := c.o.execute(t.Context(), &target{Service: svc, ctx: t.Context()}, spec, &c.in, nil); !errors.Is(err, refused) {
			t.Errorf("%s: %v", c.name, err)
		}
		if sent.Entrypoint != c.want.Entrypoint || sent.Requirements != c.want.Requirements {
			t.Errorf("%s: sent %+v", c.name, sent)
		}
	}
}

func TestWhatTheOutputDoesNotSayIsReported(t *testing.T) {
	t.Parallel()
	timedOut := func(field string) executor.Result {
		r := executor.Result{Status: executor.StatusTimedOut, Wall: 1600 * time.Millisecond, CPU: 370 * time.Millisecond}
		r.Failure = r.TimedOut(field, executor.Limits{Timeout: 1500 * time.Millisecond, CPUTime: 300 * time.Millisecond})
		return r
	}
	for _, c := range []struct {
		name string
		r    executor.Result
		want string
	}{
		{"success", executor.Result{Status: executor.StatusSucceeded}, ""},
		{"lost", executor.Result{Status: executor.StatusLost}, "python-executor: lost: the program may have run; try again\n"},
		{"killed", executor.Result{Status: executor.StatusKilled}, "python-executor: killed\n"},
		{"timed out", timedOut(executor.FieldTimeout), "python-executor: timed out: config.timeout_seconds: the program ran longer than its limit of 1.5 s (it used 0.37 s of CPU time); raise the limit (--timeout)\n"},
		{"timed out by the other clock", timedOut(executor.FieldCPUTime), "python-executor: timed out: config.cpu_seconds: the program used more CPU time than its limit of 0.3 s (in 1.6 s); raise the limit (--cpu-seconds)\n"},
		{"out of memory", executor.Result{Status: executor.StatusOutOfMemory}, "python-executor: out of memory (raise --memory)\n"},
		{"cut output", executor.Result{Status: executor.StatusSucceeded, StdoutTruncated: true, StdoutBytes: 1024, StderrBytes: 1}, "python-executor: stdout is cut: the program wrote 1.0 kiB\n"},
		{"cut errors", executor.Result{Status: executor.StatusSucceeded, StderrTruncated: true, StdoutBytes: 1, StderrBytes: 2048}, "python-executor: stderr is cut: the program wrote 2.0 kiB\n"},
		{"too many displays", executor.Result{Status: executor.StatusSucceeded, DisplaysDropped: 1}, "python-executor: 1 displays were dropped, because there were too many\n"},
		{"a failure", executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Message: "no such package"}},
			"python-executor: prepare: no such package\n"},
		{"a session that was restarted", executor.Result{Status: executor.StatusSucceeded, SessionState: executor.SessionStateRestarted},
			"python-executor: the code did not stop in time: the session's interpreter was restarted, and its names are gone\n"},
	} {
		var errs bytes.Buffer
		f := follower{g: &global{IO: IO{Err: &errs}}}
		f.report(c.r)
		if errs.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, errs.String(), c.want)
		}
	}
}

func TestHowToStopAtOnceIsSaidOnlyWhileItStops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		stopped, logs bool
		want          string
	}{
		{"nobody stops it", false, false, ""},
		{"a command that stops", true, false, "python-executor: stopping: Ctrl-C or SIGTERM again to end at once\n"},
		{"a server says it in its log", true, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var errs lockedBuffer
			g := newGlobal(IO{Err: &errs}, app.Bundle{})
			g.logs = c.logs
			close(g.settled)
			ctx, requests := stop.New(t.Context())
			told := g.tellOfStop(ctx)
			if c.stopped {
				requests.First(interrupted{syscall.SIGTERM})
				requests.Listen()
			}
			synctest.Wait()
			told()
			if errs.b.String() != c.want {
				t.Errorf("%s: %q", c.name, errs.b.String())
			}
		})
	}
}
