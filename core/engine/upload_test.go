package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

func TestAnUploadWhoseSecondPartBreaksLeavesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: true}, executor.Input{
			Workspace: once(tarOf(t, "a", "b")), Stdin: sourceOf(io.NopCloser(iotest.ErrReader(errors.New("broken")))),
		})
		wantCode(t, err, executor.Invalid, fieldStdin)
		r.wantBlobs(0)
		r.wantIdle()
	})
}

// A caller may go at the moment in which its input is whole: after the upload has looked for the caller, and before Submit does.
func TestAnUploadThatIsWholeWhenItsCallerGoesLeavesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		ctx := &leaving{Context: as("alice")}
		_, err := r.spool(ctx, "exe_1", "alice", executor.Input{Stdin: sourceOf(whenClosed{strings.NewReader("input"), ctx.leave})}, true)
		wantCode(t, err, executor.Unavailable, "")
		r.wantBlobs(0)
		if r.spools.total != 0 {
			t.Errorf("%d bytes count as spooled", r.spools.total)
		}
	})
}

// leaving is the context of a caller that leaves when somebody has looked for it once more.
type leaving struct {
	context.Context
	leaves atomic.Bool
	looked atomic.Bool
}

func (l *leaving) leave() { l.leaves.Store(true) }

func (l *leaving) Err() error {
	if l.leaves.Load() && l.looked.Swap(true) {
		return context.Canceled
	}
	return nil
}

// whenClosed calls closed at its Close.
type whenClosed struct {
	io.Reader
	closed func()
}

func (c whenClosed) Close() error {
	c.closed()
	return nil
}

// fullBlobs have no disk left.
type fullBlobs struct{ executor.Blobs }

func (fullBlobs) Put(context.Context, string, io.Reader, int64, bool) (executor.BlobInfo, error) {
	return executor.BlobInfo{}, &executor.Error{Code: executor.Exhausted, Message: "no space left", Err: syscall.ENOSPC}
}

func TestAFullDiskIsNotTheUploadsFault(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Blobs: fullBlobs{openBlobs(t)}}})
		_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0", Durable: true}, executor.Input{Workspace: once(tarOf(t, "a", "b"))})
		wantCode(t, err, executor.Exhausted) // and no field
		if strings.Contains(err.Error(), "larger") {
			t.Errorf("a full disk is said to be %v", err)
		}
	})
}

// watchedStream counts what is done with a caller's stream.
type watchedStream struct {
	io.Reader
	reads, closes atomic.Int64
}

func (w *watchedStream) Read(b []byte) (int, error) {
	w.reads.Add(1)
	return w.Reader.Read(b)
}

func (w *watchedStream) Close() error {
	w.closes.Add(1)
	return nil
}

// When Submit has returned, the caller's streams are the caller's again: nothing opens, reads or closes them.
func TestACallersStreamIsNotTouchedAfterSubmit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		returned := make(chan struct{})
		results := make(chan error, 2)
		r := newRig(t, setup{fake: fake.Options{Hook: func(_ context.Context, job executor.Job, _ executor.Sink, _ fake.RunFunc) (executor.Result, error) {
			first, err := job.Workspace.Open()
			if err != nil {
				return executor.Result{}, err
			}
			<-returned
			_, err = first.Read(make([]byte, 1))
			results <- err
			_ = first.Close()
			_, err = job.Stdin.Open()
			results <- err
			return executor.Result{Status: executor.StatusKilled}, nil
		}}})
		stream, opened := &watchedStream{Reader: strings.NewReader("x")}, false
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := r.Submit(ctx, executor.Spec{Code: "exit 0"}, executor.Input{
				Workspace: sourceOf(stream),
				Stdin: &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) {
					opened = true
					return io.NopCloser(strings.NewReader("")), nil
				}},
			})
			done <- err
		}()
		synctest.Wait()
		cancel(errors.New("the caller has gone"))
		wantCode(t, <-done, executor.Unavailable)
		close(returned)
		for range 2 {
			if err := <-results; err == nil {
				t.Error("the backend gets a stream of a caller that has gone")
			}
		}
		synctest.Wait()
		if stream.reads.Load() != 0 || stream.closes.Load() != 0 || opened {
			t.Errorf("after Submit: %d reads, %d closes, stdin opened %t", stream.reads.Load(), stream.closes.Load(), opened)
		}
	})
}

func TestAnInputThatWasClosedIsNotReadAnyMore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		stream := &watchedStream{Reader: strings.NewReader("xyz")}
		r := newRig(t, setup{backend: runFunc(func(_ context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
			files := must(job.Workspace.Open())
			if n, err := files.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			_ = files.Close()
			if n, err := files.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("after Close: %d bytes, %v", n, err)
			}
			_, err := io.ReadAll(must(job.Stdin.Open())) // Submit waits for it
			return succeeded, errors.Join(err, emit(s, executor.Started{}))
		})})
		x := must(r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{Workspace: sourceOf(stream), Stdin: once([]byte("x"))}))
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded || stream.reads.Load() != 1 || stream.closes.Load() != 1 {
			t.Errorf("result %+v after %d reads and %d closes", res, stream.reads.Load(), stream.closes.Load())
		}
	})
}

func TestWhatBreaksAnInputHasItsCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		err    error
		code   executor.Code
		fields []string
	}{
		{"its caller has gone", context.Canceled, executor.Unavailable, nil},
		{"its caller has no more time", fmt.Errorf("read: %w", context.DeadlineExceeded), executor.Unavailable, nil},
		{"an error of its own", io.ErrUnexpectedEOF, executor.Invalid, []string{fieldStdin}},
		{"an error with a code", executor.FieldErrorf(executor.Exhausted, "file", "too large"), executor.Exhausted, []string{"file"}},
		{"a panic", &calls.PanicError{Value: "secret"}, executor.Internal, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := inputError(fieldStdin, test.err)
			wantCode(t, err, test.code, test.fields...)
			if !errors.Is(err, test.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// The digest of an input that was not read to its end is not known: another request of the same key may be the same.
func TestTheDigestOfAnInputThatWasNotReadIsUnknown(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, setup{fake: fake.Options{Hook: func(_ context.Context, job executor.Job, s executor.Sink, _ fake.RunFunc) (executor.Result, error) {
				in, err := job.Stdin.Open()
				if err == nil {
					_, err = in.Read(make([]byte, 1))
				}
				if err == nil && whole {
					_, err = io.ReadAll(in)
				}
				if err == nil {
					err = in.Close()
				}
				if err == nil {
					err = s.Emit(executor.Event{Body: executor.Started{}})
				}
				return succeeded, err
			}}})
			x := must(r.Submit(t.Context(), executor.Spec{Code: "exit 0", IdempotencyKey: "k"}, executor.Input{Stdin: once([]byte("abc"))}))
			r.result(x.ID)
			digest := must(r.store.Get(t.Context(), x.ID)).SpecDigest
			if known := !strings.HasSuffix(digest, " "+digestUnknown); known != whole {
				t.Errorf("read to its end: %t, its digest is %s", whole, digest)
			}
		})
	}
}

func TestWhatRanWhenTheServerDiedIsRemovedAndCounted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		id := ids.next(time.Now())
		leave(t, store, id, leftover{
			spec:   executor.Spec{Code: "x"},
			events: []executor.Body{executor.Queued{}, executor.Started{}, out(0, "half"), executor.Output{Stream: executor.Stderr, Data: []byte("x")}}, attempts: 1,
		})
		r := newRig(t, setup{options: Options{Store: store}})
		res := r.result(id)
		if res.Status != executor.StatusLost || res.StdoutBytes != 4 || res.StderrBytes != 1 {
			t.Errorf("it ended as %s with %d and %d bytes of output, want lost with 4 and 1", res.Status, res.StdoutBytes, res.StderrBytes)
		}
		if !slices.Contains(r.fake.Removed(), id) {
			t.Error("its backend was not asked to remove it")
		}
	})
}

func TestABackendThatNeverComesUpIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		store := memorystore.New(memorystore.Options{})
		var ids idSource
		id := ids.next(time.Now())
		leave(t, store, id, leftover{spec: executor.Spec{Code: "x", Durable: true}, events: []executor.Body{executor.Queued{}, executor.Started{Handle: []byte("h")}}, attempts: 1})
		b := fake.New(fake.Options{})
		b.SetDown(executor.Errorf(executor.Unavailable, "for ever"))
		began := time.Now()
		r := newRig(t, setup{backend: b, options: Options{Store: store, Deadlines: Deadlines{Reattach: 5 * time.Minute}}})
		res := r.result(id)
		if waited := time.Since(began); res.Status != executor.StatusLost || waited < 5*time.Minute || waited > 6*time.Minute {
			t.Errorf("it ended as %s after %s, want lost after 5m", res.Status, waited)
		}
	})
}

// What a server attaches to at its start holds a slot, as it did before.
func TestWhatIsFollowedAgainHoldsItsSlot(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		s := withSessions(lasting)
		s.options.Store, s.options.Blobs = memorystore.New(memorystore.Options{}), openBlobs(t)
		s.options.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: 10}
		r := newRig(t, s)
		x := r.submit(t.Context(), "wait go\nexit 0", durable)
		synctest.Wait()
		_ = r.closeNow()
		s.backend = r.fake.Abandon()
		next := newRig(t, s)
		synctest.Wait()
		second := next.submit(t.Context(), "exit 0", durable)
		synctest.Wait()
		if state := must(next.store.Get(t.Context(), second.ID)); state.Status != executor.StatusQueued {
			t.Errorf("beside the one that holds the only slot another is %s", state.Status)
		}
		s.backend.(*fake.Backend).Release("go") //nolint:forcetypeassert // made above
		if res := next.result(x.ID); res.Status != executor.StatusSucceeded {
			t.Errorf("it ended as %s, %+v", res.Status, res.Failure)
		}
		next.result(second.ID)
		next.wantIdle()
	})
}

// Where no later life of the server reads the store, nothing is left running for one.
func TestAnEmbeddedEngineLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	for _, embedded := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			s := withSessions(lasting)
			s.options.Embedded = embedded
			r := newRig(t, s)
			x := r.submit(t.Context(), "hang", durable)
			synctest.Wait()
			_ = r.closeNow()
			rec := must(r.store.Get(t.Context(), x.ID))
			if rec.Status.Terminal() != embedded || (len(r.fake.Running()) == 0) != embedded {
				t.Errorf("embedded %t: it is %s, the backend runs %v", embedded, rec.Status, r.fake.Running())
			}
			if !embedded {
				_ = r.fake.Remove(t.Context(), x.ID)
			}
		})
	}
}

func TestRetentionCountsLogs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Retention: config.Retention{MaxBytes: 1 << 20}}})
		for range 8 {
			r.result(r.submit(t.Context(), "flood stdout 400KB").ID)
		}
		synctest.Wait()
		if list := must(r.List(t.Context(), executor.Filter{})); len(list) != 2 {
			t.Errorf("%d executions with 400 KiB of output each are left, 1 MiB may be", len(list))
		}
	})
}
