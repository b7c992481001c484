package backend

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
)

func TestRemoveWaitsForTheEndOrForItsCtx(t *testing.T) {
	t.Parallel()
	var jobs Jobs
	run, leave, err := jobs.Enter(t.Context(), "exe_1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := jobs.Enter(t.Context(), "exe_1"); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("a second job of the same Execution: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	if err := jobs.Remove(ctx, "exe_1"); executor.CodeOf(err) != executor.Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("a Remove whose ctx ends before the job: %v", err)
	}
	removed := make(chan error, 1)
	go func() { removed <- jobs.Remove(context.WithoutCancel(ctx), "exe_1") }()
	<-run.Done()
	leave()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if err := jobs.Remove(t.Context(), "exe_1"); err != nil {
		t.Errorf("a Remove without a job: %v", err)
	}
	_, leave, err = jobs.Enter(t.Context(), "exe_1")
	if err != nil {
		t.Fatalf("a job of the same Execution after the first: %v", err)
	}
	leave()
}

func TestCloseEndsAllJobsAndWaitsForThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var jobs Jobs
		cause := errors.New("closed")
		var left atomic.Int32
		for _, id := range []string{"a", "b"} {
			run, leave, err := jobs.Enter(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-run.Done()
				if !errors.Is(context.Cause(run), cause) {
					t.Errorf("job %s ended by %v", id, context.Cause(run))
				}
				left.Add(1)
				leave()
			}()
			synctest.Wait()
		}
		if !jobs.Close(cause) || left.Load() != 2 {
			t.Errorf("Close returned after %d of 2 jobs", left.Load())
		}
		if jobs.Close(cause) {
			t.Error("the second Close says that it was the first")
		}
		if _, _, err := jobs.Enter(t.Context(), "c"); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a job after Close: %v", err)
		}
	})
}
