package engine

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// again is a Source that can be opened as often as it is wanted, and counts that.
func again(content []byte, opened *int) *executor.Source {
	return &executor.Source{SizeBytes: int64(len(content)), Replayable: true, Digest: "sha256:" + string(content[:1]), Open: func() (io.ReadCloser, error) {
		*opened++
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

// An input that its caller keeps is not copied, whether the Execution starts at once or waits.
func TestALastingInputIsNotCopied(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
		files, texts := 0, 0
		in := executor.Input{Lasting: true, Workspace: again(tarOf(t, "a.txt", "file"), &files), Stdin: again([]byte("input"), &texts)}
		spec := executor.Spec{Code: "wait gate\ncat a.txt\nread-stdin"}
		first := must(r.Submit(t.Context(), spec, in))
		synctest.Wait() // the program has started, and has read no input
		if files > 1 || texts > 1 {
			t.Fatalf("opened %d and %d times", files, texts)
		}
		second := must(r.Submit(t.Context(), spec, in))
		synctest.Wait()
		r.wantBlobs(0)
		if x := must(r.Get(t.Context(), second.ID)); x.Status != executor.StatusQueued {
			t.Fatalf("the second one is %s", x.Status)
		}
		r.fake.Release("gate")
		for _, x := range []executor.Execution{first, second} {
			if got := stdout(r.events(x.ID)); got != "fileinput" {
				t.Errorf("%s prints %q", x.ID, got)
			}
		}
		if files != 2 || texts != 2 {
			t.Errorf("opened %d and %d times by two executions", files, texts)
		}
		r.wantIdle()
	})
}

// Submit does not wait until a lasting input is consumed.
func TestASubmitWithALastingInputReturnsAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		opened := 0
		began := time.Now()
		x := must(r.Submit(t.Context(), executor.Spec{Code: "sleep 10s"}, executor.Input{Lasting: true, Stdin: again([]byte("x"), &opened)}))
		if waited := time.Since(began); waited != 0 { // on the bubble's clock
			t.Errorf("Submit returned after %s", waited)
		}
		if x.LastSeq != 1 || x.Attempts != 1 {
			t.Errorf("the answer has event %d as its last, and attempt %d", x.LastSeq, x.Attempts)
		}
		r.result(x.ID)
	})
}

// While its backend is away, an Execution with a lasting input has another attempt with the same input.
func TestALastingInputIsReadAgainByAnotherAttempt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		opened := 0
		r.fake.SetDown(executor.Errorf(executor.Unavailable, "away"))
		x := must(r.Submit(t.Context(), executor.Spec{Code: "read-stdin"}, executor.Input{Lasting: true, Stdin: again([]byte("input"), &opened)}))
		synctest.Wait()
		r.fake.SetDown(nil)
		if got := stdout(r.events(x.ID)); got != "input" {
			t.Errorf("it prints %q", got)
		}
	})
}

// A Durable Execution outlives its caller, and has a copy of what the caller keeps.
func TestADurableExecutionKeepsACopyOfALastingInput(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		opened := 0
		x := must(r.Submit(t.Context(), executor.Spec{Code: "wait gate\nread-stdin", Durable: true}, executor.Input{Lasting: true, Stdin: again([]byte("input"), &opened)}))
		r.wantBlobs(1)
		r.fake.Release("gate")
		r.result(x.ID)
	})
}

// The key of a request with a lasting input knows its content, also while it waits.
func TestALastingInputIsPartOfItsKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
		r.submit(t.Context(), "wait gate")
		opened := 0
		spec := executor.Spec{Code: "read-stdin", IdempotencyKey: "k"}
		submit := func(text string) (executor.Execution, error) {
			return r.Submit(t.Context(), spec, executor.Input{Lasting: true, Stdin: again([]byte(text), &opened)})
		}
		first := must(submit("a"))
		if x := must(submit("a")); x.ID != first.ID {
			t.Errorf("the same request made %s and %s", first.ID, x.ID)
		}
		_, err := submit("b")
		wantCode(t, err, executor.Conflict, "idempotency_key")
		r.fake.Release("gate")
		r.result(first.ID)
	})
}

// A caller that has sent all of its input counts no longer as one that is still sending: the next one streams its input, too.
func TestACallerThatHasSentMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 2, MaxQueued: 10}}}) // one may be sending
		for range 2 {
			must(r.Submit(t.Context(), executor.Spec{Code: "read-stdin\nwait gate"}, executor.Input{Stdin: once([]byte("x"))}))
			r.wantBlobs(0)
		}
		r.fake.Release("gate")
		synctest.Wait()
		r.wantIdle()
	})
}
