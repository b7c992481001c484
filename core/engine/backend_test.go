package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// runFunc is a backend that does what its function says.
type runFunc func(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error)

func (f runFunc) Info(context.Context) (executor.Info, error) {
	return executor.Info{Name: "odd", Type: "odd", Healthy: true, Capabilities: fake.DefaultCapabilities()}, nil
}

func (f runFunc) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	return f(ctx, job, sink)
}

func (f runFunc) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.Unimplemented, "attach")
}

func (f runFunc) Remove(context.Context, string) error { return nil }

func emit(sink executor.Sink, bodies ...executor.Body) error {
	for _, b := range bodies {
		if err := sink.Emit(executor.Event{Body: b}); err != nil {
			return err
		}
	}
	return nil
}

var succeeded = executor.Result{Status: executor.StatusSucceeded, ExitCode: new(int)}

func out(offset int64, text string) executor.Output {
	return executor.Output{Stream: executor.Stdout, Offset: offset, Data: []byte(text)}
}

// TestNoBackendBreaksTheLaw: whatever a backend does, its Execution ends once, its log is legal, nothing stays behind.
func TestNoBackendBreaksTheLaw(t *testing.T) {
	t.Parallel()
	started := executor.Started{Handle: []byte("secret")}
	for _, test := range []struct {
		name    string
		run     runFunc
		status  executor.Status
		code    executor.Code
		field   string
		stdout  string
		changes func(*executor.Spec)
	}{
		{name: "it panics", run: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) { panic("oh") },
			status: executor.StatusFailed, code: executor.Internal},
		{name: "it panics after started", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			panic("oh")
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "it ends its goroutine", run: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) {
			runtime.Goexit()
			return succeeded, nil
		}, status: executor.StatusFailed, code: executor.Internal},
		{name: "it succeeds without started", run: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) { return succeeded, nil },
			status: executor.StatusFailed, code: executor.Internal},
		{name: "it returns nothing", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return executor.Result{}, emit(s, started)
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "it says that it still runs", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return executor.Result{Status: executor.StatusRunning}, emit(s, started)
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "it writes the end itself", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, executor.Finished{Result: succeeded})
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "it queues, and hides the refusal", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, executor.Queued{})
			_ = emit(s, started)
			return succeeded, nil
		}, status: executor.StatusFailed, code: executor.Internal},
		{name: "it emits nothing at all", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, s.Emit(executor.Event{})
		}, status: executor.StatusFailed, code: executor.Internal},
		{name: "it emits what nobody knows", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, executor.Unknown{Name: "new"})
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "it starts twice", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, started)
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "it writes before it starts", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, out(0, "early"), started)
		}, status: executor.StatusFailed, code: executor.Internal},
		{name: "its output has a gap", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, out(0, "ab"), out(3, "d"))
		}, status: executor.StatusLost, code: executor.Internal, stdout: "ab"},
		{name: "its output is empty", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, out(0, ""))
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "its output has another stream", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, executor.Output{Stream: "stdlog", Data: []byte("x")})
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "its output repeats itself", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, out(0, "abc"), out(1, "bc"), out(2, "cde"), out(5, "f"))
		}, status: executor.StatusSucceeded, stdout: "abcdef"},
		{name: "its output goes over the limit", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, started, out(0, "abc"), out(3, "defg"), out(7, "hij"))
		}, status: executor.StatusSucceeded, stdout: "abcde", changes: func(s *executor.Spec) { s.Limits.OutputBytes = 5 }},
		{name: "its artifact lies outside", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			return succeeded, s.Artifact(&tar.Header{Name: "../etc/passwd", Size: 1}, strings.NewReader("x"))
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "its artifact is cut off", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			return succeeded, s.Artifact(&tar.Header{Name: "a", Size: 5}, strings.NewReader("x"))
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "its artifacts are too large", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			return succeeded, s.Artifact(&tar.Header{Name: "a", Size: 40 << 20}, zeros{})
		}, status: executor.StatusFailed, code: executor.Exhausted, field: "outputs", changes: func(s *executor.Spec) { s.Limits.DiskBytes = 1 << 20 }},
		{name: "its artifacts are as large as they may be", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			return succeeded, s.Artifact(&tar.Header{Name: "a", Size: 1 << 20}, zeros{})
		}, status: executor.StatusSucceeded, changes: func(s *executor.Spec) { s.Limits.DiskBytes = 1 << 20 }},
		{name: "it returns an artifact too many", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			err := s.Artifact(&tar.Header{Name: "a", Size: 1}, strings.NewReader("x"))
			r := succeeded
			r.Artifacts = []executor.Artifact{{Path: "b"}, {Path: "a"}}
			return r, err
		}, status: executor.StatusSucceeded},
		{name: "its call of the sink outlives it", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			stuck := make(chan struct{})
			go func() { _ = s.Artifact(&tar.Header{Name: "a", Size: 1}, stuckReader{stuck, time.Minute}) }()
			<-stuck
			return succeeded, nil
		}, status: executor.StatusLost, code: executor.Internal},
		{name: "it refuses", run: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) {
			return executor.Result{}, executor.FieldErrorf(executor.Unimplemented, "docker_image", "no such image")
		}, status: executor.StatusFailed, code: executor.Unimplemented, field: "docker_image"},
		{name: "it fails for reasons of its own", run: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) {
			return executor.Result{}, errors.New("disk on fire")
		}, status: executor.StatusFailed, code: executor.Internal},
		{name: "it fails by itself", run: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) {
			return executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: executor.Internal, Phase: executor.PhaseStart, Message: "no box"}}, nil
		}, status: executor.StatusFailed, code: executor.Internal},
		{name: "it goes away after started", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			return executor.Result{}, executor.Errorf(executor.Unavailable, "gone")
		}, status: executor.StatusLost, code: executor.Unavailable},
		{name: "it goes away each time", run: func(context.Context, executor.Job, executor.Sink) (executor.Result, error) {
			return executor.Result{}, executor.Errorf(executor.Unavailable, "gone")
		}, status: executor.StatusLost, code: executor.Unavailable},
		{name: "it never prepares", run: func(ctx context.Context, _ executor.Job, _ executor.Sink) (executor.Result, error) {
			<-ctx.Done()
			return executor.Result{Status: executor.StatusKilled}, nil
		}, status: executor.StatusFailed, code: executor.Exhausted},
		{name: "it does not enforce the timeout", run: func(ctx context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			<-ctx.Done()
			return executor.Result{Status: executor.StatusKilled, Signal: "SIGTERM"}, nil
		}, status: executor.StatusTimedOut, code: executor.Exhausted, field: executor.FieldTimeout},
		{name: "it does not stop", run: func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			_ = emit(s, started)
			time.Sleep(24 * time.Hour)
			_ = emit(s, out(0, "late"))
			return succeeded, nil
		}, status: executor.StatusTimedOut, code: executor.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				var log logged
				r := newRig(t, setup{backend: test.run, options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1}, Log: slog.New(slog.NewTextHandler(&log, nil))}})
				var changes []func(*executor.Spec)
				if test.changes != nil {
					changes = append(changes, test.changes)
				}
				x := r.submit(t.Context(), "exit 0", changes...)
				res := r.result(x.ID)
				var code executor.Code
				var field string
				if res.Failure != nil {
					code, field = res.Failure.Code, res.Failure.Field
					if code == executor.Internal && res.Failure.Message != "internal error" {
						t.Errorf("the failure tells %q", res.Failure.Message)
					}
				}
				synctest.Wait()
				if code == executor.Internal && !strings.Contains(log.String(), x.ID) {
					t.Errorf("the log does not say why: %s", log.String())
				}
				if res.Status != test.status || code != test.code || field != test.field {
					t.Errorf("result %+v, failure %+v; want %s %s %s", res, res.Failure, test.status, test.code, test.field)
				}
				if got := stdout(r.events(x.ID)); got != test.stdout {
					t.Errorf("stdout %q, want %q", got, test.stdout)
				}
				for _, a := range res.Artifacts {
					if a.Path != "a" {
						t.Errorf("artifact %+v that was never handed over", a)
					}
				}
				r.wantIdle()
				time.Sleep(48 * time.Hour) // late events find no way in
				r.events(x.ID)
				r.wantBlobs(len(res.Artifacts))
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// stuckReader says that it is read, and blocks for a while.
type stuckReader struct {
	read chan struct{}
	wait time.Duration
}

func (r stuckReader) Read([]byte) (int, error) {
	close(r.read)
	time.Sleep(r.wait)
	return 0, errors.New("too late")
}

func TestOutputIsCountedBeyondTheLimit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{backend: runFunc(func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			return succeeded, emit(s, executor.Started{}, out(0, "abc"), out(3, "defg"))
		})})
		x := r.submit(t.Context(), "exit 0", func(s *executor.Spec) { s.Limits.OutputBytes = 5 })
		if res := r.result(x.ID); res.StdoutBytes != 7 || !res.StdoutTruncated || res.StderrTruncated {
			t.Errorf("result %+v", res)
		}
	})
}

func TestProgressIsRateLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{backend: runFunc(func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			for i := range int64(1000) {
				if err := emit(s, executor.Progress{Phase: executor.PhasePrepare, Message: "p\xff", Done: i + 1, Total: 1000}); err != nil {
					return executor.Result{}, err
				}
				time.Sleep(time.Millisecond)
			}
			return succeeded, emit(s, executor.Started{})
		})})
		x := r.submit(t.Context(), "exit 0")
		count := 0
		for _, ev := range r.events(x.ID) {
			if p, ok := ev.Body.(executor.Progress); ok {
				count++
				if p.Message != "p\uFFFD" {
					t.Errorf("message %q", p.Message)
				}
			}
		}
		if count != 11 { // one each 100 ms, and the last
			t.Errorf("%d progress events", count)
		}
	})
}

func TestABackendThatComesBackRunsWhatWaitedForIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		gone := executor.Errorf(executor.Unavailable, "gone")
		r := newRig(t, setup{fake: fake.Options{Hook: fake.FirstRuns(2, fake.Fail(gone))}})
		x, err := r.Submit(t.Context(), executor.Spec{Durable: true}, executor.Input{Workspace: once(tarOf(t, "main.py", "print hi"))})
		if err != nil {
			t.Fatal(err)
		}
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v", res)
		}
		if got, _ := r.Get(t.Context(), x.ID); got.Attempts != 3 {
			t.Errorf("%d attempts", got.Attempts)
		}
		r.wantIdle()
	})
}

func TestWhileItsBackendIsDownNoAttemptIsSpent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var r *rig
		gone := executor.Errorf(executor.Unavailable, "gone")
		r = newRig(t, setup{fake: fake.Options{Hook: fake.FirstRuns(1, func(context.Context, executor.Job, executor.Sink, fake.RunFunc) (executor.Result, error) {
			r.fake.SetDown(gone)
			return executor.Result{}, gone
		})}})
		x := r.submit(t.Context(), "exit 0", durable)
		time.Sleep(3 * time.Hour)
		_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Unavailable)
		wantCode(t, r.Ready(t.Context()), executor.Unavailable)
		r.fake.SetDown(nil)
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v", res)
		}
		if got, _ := r.Get(t.Context(), x.ID); got.Attempts != 2 {
			t.Errorf("%d attempts", got.Attempts)
		}
		other := r.submit(t.Context(), "exit 0", durable)
		r.result(other.ID)
		r.wantIdle()
	})
}

func TestWhatWaitsTooLongIsLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Deadlines: Deadlines{Queue: time.Hour}, Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 5}}})
		hang := func(s *executor.Spec) { s.Limits.Timeout = executor.TimeoutMaximum }
		first := r.submit(t.Context(), "sleep 3h", hang)
		waits := r.submit(t.Context(), "exit 0", durable)
		res := r.result(waits.ID)
		if res.Status != executor.StatusLost || res.Failure.Code != executor.Exhausted || res.Failure.Phase != executor.PhaseQueue || res.Phases.Queue != time.Hour {
			t.Errorf("result %+v, %+v", res, res.Failure)
		}
		if res := r.result(first.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v", res)
		}
		r.wantIdle()
	})
}

func TestASlowReaderDoesNotMakeAProgramTimeOut(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		slow := &slowStore{}
		r := newRig(t, setup{options: Options{Store: slow.wrap()}, backend: runFunc(func(ctx context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
			if err := emit(s, executor.Started{}, out(0, "x")); err != nil {
				return executor.Result{}, err
			}
			if ctx.Err() != nil {
				return executor.Result{Status: executor.StatusKilled}, nil
			}
			return succeeded, nil
		})})
		x := r.submit(t.Context(), "exit 0")
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v", res)
		}
	})
}

// logged is a log that goes on while a test reads it.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
