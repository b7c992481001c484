package engine

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestSyncRunsAtOnceAndStreamsItsInput(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		in := executor.Input{Workspace: once(tarOf(t, "main.py", "cat data.txt\nread-stdin\nexit 3", "data.txt", "hello ")), Stdin: once([]byte("world"))}
		var accepted executor.Execution
		in.Accepted = func(x executor.Execution) { accepted = x }
		x, err := r.Submit(t.Context(), executor.Spec{}, in)
		if err != nil {
			t.Fatal(err)
		}
		if x.ID != accepted.ID || !idForm().MatchString(x.ID) || x.Owner != executor.LocalOwner || x.Backend != "fake" || x.Attempts != 1 {
			t.Errorf("execution %+v, accepted %q", x, accepted.ID)
		}
		r.wantBlobs(0)
		res := r.result(x.ID)
		if res.Status != executor.StatusFailed || res.ExitCode == nil || *res.ExitCode != 3 || res.Failure != nil {
			t.Errorf("result %+v", res)
		}
		if got := stdout(r.events(x.ID)); got != "hello world" {
			t.Errorf("stdout %q", got)
		}
		r.wantIdle()
	})
}

func TestDurableIsSpooledAndItsInputDroppedAtTheEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		in := executor.Input{Workspace: once(tarOf(t, "main.py", "sleep 1m\nread-stdin")), Stdin: once([]byte("typed"))}
		x, err := r.Submit(t.Context(), executor.Spec{Durable: true}, in)
		if err != nil {
			t.Fatal(err)
		}
		r.wantBlobs(2)
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v", res)
		}
		if got := stdout(r.events(x.ID)); got != "typed" {
			t.Errorf("stdout %q", got)
		}
		r.wantIdle()
		r.wantBlobs(0)
	})
}

func TestWhatMustWaitIsSpooledAndRunsInItsTurn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 2}}})
		r.submit(t.Context(), "sleep 10s")
		x, err := r.Submit(t.Context(), executor.Spec{}, executor.Input{Workspace: once(tarOf(t, "main.py", "print late"))})
		if err != nil || x.Status != executor.StatusQueued {
			t.Fatal(x, err)
		}
		r.wantBlobs(1)
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded || res.Phases.Queue != 10*time.Second {
			t.Errorf("result %+v", res)
		}
		r.wantIdle()
	})
}

func TestFullRefusesBeforeTheInputIsOpened(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 1}}})
		r.submit(t.Context(), "sleep 10s")
		r.submit(t.Context(), "exit 0")
		never := &executor.Source{Open: func() (io.ReadCloser, error) { t.Error("opened"); return nil, io.EOF }}
		for _, spec := range []executor.Spec{{}, {Durable: true}} {
			_, err := r.Submit(t.Context(), spec, executor.Input{Workspace: never})
			wantCode(t, err, executor.Exhausted)
			if e, _ := errors.AsType[*executor.Error](err); e.RetryAfter < time.Second {
				t.Errorf("no RetryAfter in %+v", e)
			}
		}
		wantCode(t, r.Admit(t.Context()), executor.Exhausted)
		time.Sleep(time.Minute)
		r.wantIdle()
		if err := r.Admit(t.Context()); err != nil {
			t.Error(err)
		}
		if retired := r.change("next", another(setup{})); !isDrained(retired[0]) {
			t.Error("what was refused still uses the backend")
		}
	})
}

func TestQueuedHasThePositionInTheQueue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 9}}})
		var ids []string
		for range 4 {
			ids = append(ids, r.submit(t.Context(), "sleep 1s").ID)
		}
		for n, want := range []int{0, 0, 1, 2} { // the first one starts at once
			if got := r.events(ids[n])[0].Body.(executor.Queued); got.Position != want { //nolint:forcetypeassert // the first Event
				t.Errorf("execution %d has position %d, want %d", n, got.Position, want)
			}
		}
	})
}

func TestNothingWaitsWhereTheQueueIsZero(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 2, MaxQueued: 0}}})
		r.submit(t.Context(), "sleep 10s")
		r.submit(t.Context(), "sleep 10s", durable)
		synctest.Wait()
		_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		time.Sleep(time.Minute)
		r.wantIdle()
	})
}

func TestAnOwnersFloodDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 100, MaxPerOwner: 50}}})
		for range 50 {
			r.submit(as("flood"), "sleep 10s")
		}
		_, err := r.Submit(as("flood"), executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		x := r.submit(as("calm"), "exit 0")
		if res := r.result(x.ID); res.Phases.Queue > 20*time.Second {
			t.Errorf("it waited %s", res.Phases.Queue)
		}
		time.Sleep(time.Hour)
		r.wantIdle()
	})
}

func TestCancelEndsEveryStateOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 3, MaxQueued: 10}}, fake: fake.Options{
			Hook: func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				if job.Spec.Code == "exit 7" { // stays in preparation
					<-ctx.Done()
					return executor.Result{Status: executor.StatusKilled}, nil
				}
				return run(ctx, job, sink)
			},
		}})
		preparing := r.submit(t.Context(), "exit 7")
		running := r.submit(t.Context(), "print begun\nhang")
		stubborn := r.submit(t.Context(), "ignore-term\nhang")
		queued := r.submit(t.Context(), "exit 0")
		kept := r.submit(t.Context(), "exit 0", durable)
		synctest.Wait()
		for _, x := range []executor.Execution{queued, kept, preparing, running, stubborn} {
			got, err := r.Cancel(t.Context(), x.ID)
			if err != nil || got.Status != executor.StatusKilled {
				t.Errorf("cancel: %+v, %v", got, err)
			}
			if res := r.result(x.ID); res.Status != executor.StatusKilled || res.Failure != nil {
				t.Errorf("result %+v", res)
			}
			again, err := r.Cancel(t.Context(), x.ID)
			if err != nil || again.LastSeq != got.LastSeq {
				t.Errorf("cancel again: %+v, %v", again, err)
			}
		}
		r.wantIdle()
	})
}

func TestACallerThatGoesAwayWhileItUploadsKillsItsExecution(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		body, client := io.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		var id string
		in := executor.Input{Workspace: sourceOf(body), Accepted: func(x executor.Execution) { id = x.ID }}
		time.AfterFunc(time.Second, func() { cancel(errors.New("gone")) })
		time.AfterFunc(2*time.Second, func() { _ = client.CloseWithError(errors.New("gone")) })
		_, err := r.Submit(ctx, executor.Spec{}, in)
		wantCode(t, err, executor.Unavailable)
		if res := r.result(id); res.Status != executor.StatusKilled {
			t.Errorf("result %+v", res)
		}
		r.wantIdle()
	})
}

// Once its input is consumed, an Execution does not need its caller any more.
func TestACallerThatGoesAwayWhenItsInputIsReadLeavesItsExecutionAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		var r *rig
		r = newRig(t, setup{backend: runFunc(func(_ context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
			r.mu.Lock() // Submit notes the end of its input after the caller has gone
			defer r.mu.Unlock()
			_, err := io.ReadAll(must(job.Workspace.Open()))
			cancel(errors.New("gone"))
			return succeeded, errors.Join(err, emit(s, executor.Started{}))
		})})
		x, err := r.Submit(ctx, executor.Spec{}, executor.Input{Workspace: once(tarOf(t, "main.py", "exit 0"))})
		if err != nil {
			t.Fatal(err)
		}
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("result %+v, %+v", res, res.Failure)
		}
		r.wantIdle()
	})
}

func TestACallerThatGoesAwayWhileItIsSpooledLeavesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		body, client := io.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("gone")) })
		time.AfterFunc(2*time.Second, func() { _ = client.CloseWithError(errors.New("gone")) })
		_, err := r.Submit(ctx, executor.Spec{Durable: true}, executor.Input{Workspace: sourceOf(body)})
		wantCode(t, err, executor.Unavailable)
		time.Sleep(5 * time.Second)
		r.wantIdle()
		r.wantBlobs(0)
		if list, err := r.List(t.Context(), executor.Filter{}); err != nil || len(list) != 0 {
			t.Errorf("list %v, %v", list, err)
		}
	})
}

func TestATricklingUploadLosesItsPlace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		body, client := io.Pipe()
		go func() {
			for {
				if _, err := client.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(20 * time.Second)
			}
		}()
		begin := time.Now()
		_, err := r.Submit(t.Context(), executor.Spec{Durable: true}, executor.Input{Workspace: sourceOf(body)})
		wantCode(t, err, executor.Exhausted)
		if waited := time.Since(begin); waited != 30*time.Minute {
			t.Errorf("it held a place for %s", waited)
		}
		time.Sleep(time.Minute)
		r.wantIdle()
		r.wantBlobs(0)
	})
}

func TestTooLargeAnInputIsExhausted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{SpoolBytes: 1536}})
		fits, tooLarge := tarOf(t), make([]byte, 1537) // an empty archive has 1024 bytes
		for _, c := range []struct {
			field string
			in    executor.Input
		}{
			{"tar", executor.Input{Workspace: once(tooLarge)}},
			{"tar", executor.Input{Workspace: once(tooLarge), Stdin: once(fits)}},
			{"stdin", executor.Input{Stdin: once(tooLarge)}},
			{"stdin", executor.Input{Workspace: once(fits), Stdin: once(tooLarge)}},
		} {
			_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: true}, c.in)
			wantCode(t, err, executor.Exhausted, c.field)
			r.wantIdle()
			r.wantBlobs(0)
		}
		x, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: true}, executor.Input{Workspace: once(fits), Stdin: once(tooLarge[1:])})
		if err != nil {
			t.Fatalf("an input of exactly that size: %v", err)
		}
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("an input of exactly that size: %+v", res)
		}
	})
}

func TestABrokenUploadIsTheCallersError(t *testing.T) {
	t.Parallel()
	for _, spec := range []executor.Spec{{}, {Durable: true}} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, setup{})
			typed := executor.FieldErrorf(executor.Exhausted, "tar", "too large")
			body := io.NopCloser(io.MultiReader(strings.NewReader("half a header"), errReader{typed}))
			_, err := r.Submit(t.Context(), spec, executor.Input{Workspace: sourceOf(body)})
			wantCode(t, err, executor.Exhausted, "tar")
			r.wantIdle()
			for _, x := range must(r.List(t.Context(), executor.Filter{})) {
				if res := r.result(x.ID); res.Status != executor.StatusFailed || res.Failure.Code != executor.Exhausted || res.Failure.Field != "tar" {
					t.Errorf("result %+v", res)
				}
			}
		})
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestArtifactsAreATarOfWhatTheBackendCollected(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		x := r.submit(t.Context(), "write-file out/a.txt one\nwrite-file b.txt two\nsleep 1s", func(s *executor.Spec) { s.Outputs = []string{"**/*.txt", "*.txt"} })
		_, err := r.Artifacts(t.Context(), x.ID)
		wantCode(t, err, executor.Conflict)
		res := r.result(x.ID)
		body, err := r.Artifacts(t.Context(), x.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		var names []string
		for archive := tar.NewReader(body); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
		}
		slices.Sort(names)
		if strings.Join(names, " ") != "b.txt out/a.txt" || len(res.Artifacts) != 2 {
			t.Errorf("artifacts %v, result %+v", names, res.Artifacts)
		}
		none := r.submit(t.Context(), "exit 0")
		r.result(none.ID)
		empty, err := r.Artifacts(t.Context(), none.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tar.NewReader(empty).Next(); !errors.Is(err, io.EOF) {
			t.Errorf("no empty archive: %v", err)
		}
	})
}
