package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// asBackend runs one Execution on a backend that does what run does, and returns its log.
func asBackend(t *testing.T, run fake.RunFunc, change ...func(*executor.Spec)) (events []executor.Event, res executor.Result) {
	t.Helper()
	r := newRig(t, setup{fake: fake.Options{Hook: func(ctx context.Context, job executor.Job, s executor.Sink, _ fake.RunFunc) (executor.Result, error) {
		return run(ctx, job, s)
	}}})
	x := r.submit(t.Context(), "exit 0", change...)
	res = r.result(x.ID)
	return r.events(x.ID), res
}

// emits is a backend that emits bodies behind Started and then succeeds.
func emits(bodies ...executor.Body) fake.RunFunc {
	return func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
		for _, b := range bodies {
			if err := s.Emit(executor.Event{Body: b}); err != nil {
				return executor.Result{}, err
			}
		}
		return succeeded, nil
	}
}

func TestWhatABackendMayEmitIsBoundedExactly(t *testing.T) {
	t.Parallel()
	data := func(n int) []byte { return make([]byte, n) }
	for _, test := range []struct {
		name   string
		bodies []executor.Body
		taken  bool
	}{
		{"the largest handle", []executor.Body{executor.Started{Handle: data(maxHandle)}}, true},
		{"a handle that is too large", []executor.Body{executor.Started{Handle: data(maxHandle + 1)}}, false},
		{"the largest output", []executor.Body{executor.Started{}, executor.Output{Stream: executor.Stdout, Data: data(executor.MaxOutputData)}}, true},
		{"output that is too large", []executor.Body{executor.Started{}, executor.Output{Stream: executor.Stdout, Data: data(executor.MaxOutputData + 1)}}, false},
		{"no output", []executor.Body{executor.Started{}, executor.Output{Stream: executor.Stdout}}, false},
		{"output at a negative offset", []executor.Body{executor.Started{}, executor.Output{Stream: executor.Stdout, Offset: -1, Data: data(2)}}, false},
		{"output on no stream", []executor.Body{executor.Started{}, executor.Output{Data: data(1)}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				_, res := asBackend(t, emits(test.bodies...))
				if taken := res.Status == executor.StatusSucceeded; taken != test.taken {
					t.Errorf("it ended as %s, %+v; taken: want %t", res.Status, res.Failure, test.taken)
				}
				if !test.taken && (res.Failure == nil || res.Failure.Message != "internal error") {
					t.Errorf("the owner is told %+v", res.Failure)
				}
			})
		})
	}
}

func TestProgressIsText(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		long := strings.Repeat("é", 3<<10) + "\xff"
		events, _ := asBackend(t, emits(
			executor.Progress{Phase: "invented", Message: "a\xffb", Unit: long, Done: 1, Total: 2},
			executor.Progress{Phase: executor.PhasePrepare, Message: long, Unit: "x\xff"},
			executor.Started{},
		))
		var seen []executor.Progress
		for _, ev := range events {
			if p, ok := ev.Body.(executor.Progress); ok {
				seen = append(seen, p)
			}
		}
		if len(seen) != 2 {
			t.Fatalf("%d progress events, want 2", len(seen))
		}
		if p := seen[0]; p.Phase != executor.PhaseNone || p.Message != "a\uFFFDb" || p.Done != 1 || p.Total != 2 {
			t.Errorf("the first is %+.60v", p)
		}
		for _, p := range seen {
			if !utf8.ValidString(p.Unit) || !utf8.ValidString(p.Message) || len(p.Unit) > 64+len("…") || len(p.Message) > maxMessage+len("…") {
				t.Errorf("a unit of %d bytes, a message of %d bytes", len(p.Unit), len(p.Message))
			}
		}
	})
}

func TestTheFirstErrorOfARunCounts(t *testing.T) {
	t.Parallel()
	s := &sink{engine: &Engine{log: slog.New(slog.DiscardHandler)}, violated: func(error) {}}
	lost, broken := errors.New("lost"), errors.New("broken")
	for _, err := range []error{lost, errors.New("lost again")} {
		_ = s.notKept(err)
	}
	for _, err := range []error{broken, errors.New("broken again")} {
		_ = s.fail(err)
	}
	if !errors.Is(s.failure(), lost) || !errors.Is(s.brokenLaw(), broken) {
		t.Errorf("not kept because of %v, broken by %v", s.failure(), errors.Unwrap(s.brokenLaw()))
	}
}

func TestAResultSaysOnlyWhatIsKnown(t *testing.T) {
	t.Parallel()
	files := make([]executor.Artifact, executor.MaxFilesChanged+1)
	for i := range files {
		files[i].Path = fmt.Sprint(i)
	}
	long := "pre_commands[0] ended with exit code 4:\n" + strings.Repeat("é", maxFailure) + "\nthe reason"
	for _, test := range []struct {
		name    string
		unbegun bool
		result  executor.Result
		check   func(executor.Result) bool
	}{
		{"artifacts that were never handed over", false, executor.Result{Status: executor.StatusSucceeded, Artifacts: files[:1]},
			func(r executor.Result) bool { return r.Artifacts == nil }},
		{"too many changed files", false, executor.Result{Status: executor.StatusSucceeded, FilesChanged: files},
			func(r executor.Result) bool {
				return len(r.FilesChanged) == executor.MaxFilesChanged && r.FilesOmitted == 1
			}},
		{"a failure without a code", true, executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Message: "secret"}},
			func(r executor.Result) bool {
				return r.Failure.Code == executor.Internal && r.Failure.Message == "internal error"
			}},
		{"an internal failure", true, executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: executor.Internal, Message: "secret"}},
			func(r executor.Result) bool { return r.Failure.Message == "internal error" }},
		{"a failure with a long message", true, executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: executor.Invalid, Message: long}},
			func(r executor.Result) bool {
				m := r.Failure.Message
				return len(m) <= maxFailure+len("…") && strings.HasPrefix(m, "pre_commands[0] ended with exit code 4:\n") &&
					strings.Contains(m, "é…é") && strings.HasSuffix(m, "é\nthe reason")
			}},
		{"a failure whose message is no text", true, executor.Result{Status: executor.StatusFailed, Failure: &executor.Failure{Code: executor.Invalid, Message: "a\xff"}},
			func(r executor.Result) bool { return r.Failure.Message == "a\uFFFD" }},
		{"success without a start", true, executor.Result{Status: executor.StatusSucceeded},
			func(r executor.Result) bool {
				return r.Status == executor.StatusFailed && r.Failure.Code == executor.Internal
			}},
		{"a failure without a start and without a reason", true, executor.Result{Status: executor.StatusFailed},
			func(r executor.Result) bool { return r.Failure != nil && r.Failure.Code == executor.Internal }},
		{"no end", false, executor.Result{Status: executor.StatusRunning},
			func(r executor.Result) bool {
				return r.Status == executor.StatusLost && r.Failure.Code == executor.Internal
			}},
		{"negative counts", false, executor.Result{Status: executor.StatusSucceeded, StdoutBytes: -5, DisplaysDropped: -5, FilesOmitted: -5},
			func(r executor.Result) bool {
				return r.StdoutBytes == 0 && r.DisplaysDropped == 0 && r.FilesOmitted == 0
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				_, res := asBackend(t, func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
					if !test.unbegun {
						if err := s.Emit(executor.Event{Body: executor.Started{}}); err != nil {
							return executor.Result{}, err
						}
					}
					return test.result, nil
				})
				if !test.check(res) {
					t.Errorf("the result is %.300s, %+.100v", fmt.Sprintf("%+v", res), res.Failure)
				}
			})
		})
	}
}

// A stream that breaks before the program has started is the caller's fault; after that the program says how it ended.
func TestAStreamThatBreaksUnderAProgramIsTheProgramsMatter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		three := 3
		r := newRig(t, setup{fake: fake.Options{Hook: func(_ context.Context, job executor.Job, s executor.Sink, _ fake.RunFunc) (executor.Result, error) {
			if err := s.Emit(executor.Event{Body: executor.Started{}}); err != nil {
				return executor.Result{}, err
			}
			in, err := job.Stdin.Open()
			if err != nil {
				return executor.Result{}, err
			}
			if _, err := io.ReadAll(in); err == nil {
				t.Error("the stream did not break")
			}
			return executor.Result{Status: executor.StatusFailed, ExitCode: &three, CPU: -1}, nil
		}}})
		stdin, w := io.Pipe()
		_ = w.CloseWithError(errors.New("broken"))
		var id string
		_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 3"}, executor.Input{
			Stdin: sourceOf(stdin), Accepted: func(x executor.Execution) { id = x.ID },
		})
		wantCode(t, err, executor.Invalid, fieldStdin)
		if res := r.result(id); res.ExitCode == nil || *res.ExitCode != 3 || res.Failure != nil {
			t.Errorf("it ended as %s, exit code %v, %+v", res.Status, res.ExitCode, res.Failure)
		}
	})
}

// What was sent before a backend's plugin died counts, also what the limit kept out of the log.
func TestASinkThatGoesOnCountsWhatWasSentBefore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		limits := r.now().defaultLimits
		limits.OutputBytes = 10
		x := r.adoptExecution(executor.Record{Execution: executor.Execution{ID: "exe_x", Backend: "fake"}}, limits)
		defer x.cancel(nil)
		s := r.newSink(x, executor.Record{})
		s.resumed(time.Now())
		// As long as nothing is in a log, the store is not asked.
		s.out[executor.Stdout] = &outputStream{next: 25, kept: 10}
		next := r.successor(x, s)
		if sent, kept := next.seen(executor.Stdout); sent != 25 || kept != 10 {
			t.Errorf("after the first death: %d bytes were sent and %d kept, want 25 and 10", sent, kept)
		}
		again := r.successor(x, next)
		if sent, kept := again.seen(executor.Stdout); sent != 25 || kept != 10 {
			t.Errorf("after the second death: %d bytes were sent and %d kept, want 25 and 10", sent, kept)
		}
		if all, cut := again.total(executor.Stdout, 0, false); all != 25 || !cut {
			t.Errorf("the result says %d bytes, truncated %t", all, cut)
		}
		again.abandon(errAway)
		synctest.Wait()
	})
}
