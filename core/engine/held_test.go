package engine

import (
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
)

// A small input of a call that waits is kept in memory, and no blob is made of it. The caller's Source is read once, before Submit returns.
func TestASmallInputIsKeptInMemory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size      int
		durable   bool
		inSession bool
		blobs     int
	}{
		"small":               {size: maxHeld},
		"larger":              {size: maxHeld + 1, blobs: 1},
		"small, durable":      {size: 1, durable: true, blobs: 1},
		"small, in a session": {size: 1, inSession: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				r := newRig(t, withSessions(func(s *setup) { s.options.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: 10} }))
				spec := executor.Spec{Code: "read-stdin", Durable: test.durable}
				if test.inSession {
					spec.Session = r.open(t.Context()).ID
				}
				r.submit(t.Context(), "wait gate")
				synctest.Wait()
				opened, text := 0, make([]byte, test.size)
				x := must(r.Submit(t.Context(), spec, executor.Input{Stdin: again(text, &opened)}))
				r.wantBlobs(test.blobs)
				r.fake.Release("gate")
				if got := stdout(r.events(x.ID)); got != string(text) {
					t.Errorf("the program reads %d bytes, want %d", len(got), len(text))
				}
				if opened != 1 {
					t.Errorf("the source was opened %d times", opened)
				}
				r.wantIdle()
			})
		})
	}
}

// A Source of another size than it says is not kept: the Execution ends as it does with a larger input.
func TestASourceOfAnotherSizeIsNotKept(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		opened, x := 0, &execution{ctx: t.Context()}
		for _, said := range []int64{0, 3, -1} {
			src := again([]byte("four"), &opened)
			src.SizeBytes = said
			if req := (request{in: executor.Input{Stdin: src}}); r.hold(t.Context(), x, &req) || req.in.Stdin != src {
				t.Errorf("a source of 4 bytes that says %d is kept", said)
			}
		}
		stream := &closing{Reader: strings.NewReader("four")}
		if copied := inMemory(&executor.Source{SizeBytes: 4, Open: func() (io.ReadCloser, error) { return stream, nil }}); copied == nil || !stream.closed {
			t.Errorf("a copy was made: %t, and its source was closed: %t", copied != nil, stream.closed)
		}
		src := once([]byte("four"))
		src.SizeBytes = 4
		if req := (request{in: executor.Input{Stdin: src}}); r.hold(t.Context(), x, &req) || req.in.Stdin != src {
			t.Error("a source that can be read once is kept, although its caller may still be sending")
		}
	})
}

// closing notes that it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// An input that is kept counts for its key, also where its Source has no digest.
func TestAnInputInMemoryCountsForItsKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
		r.submit(t.Context(), "wait gate")
		synctest.Wait()
		var codes []executor.Code
		for _, text := range []string{"a", "a", "b"} {
			opened := 0
			src := again([]byte(text), &opened)
			src.Digest = ""
			_, err := r.Submit(t.Context(), executor.Spec{Code: "read-stdin", IdempotencyKey: "k"}, executor.Input{Stdin: src})
			codes = append(codes, executor.CodeOf(err))
		}
		if want := []executor.Code{"", "", executor.Conflict}; !slices.Equal(codes, want) {
			t.Errorf("the same input twice, then another one: %q, want %q", codes, want)
		}
		r.fake.Release("gate")
		synctest.Wait()
		r.wantIdle()
	})
}

// hanging is a small Source whose Open returns when hangs is closed.
func hanging(hangs <-chan struct{}) *executor.Source {
	return &executor.Source{SizeBytes: 1, Replayable: true, Open: func() (io.ReadCloser, error) {
		<-hangs
		return nil, errors.New("it hung")
	}}
}

// A Source that hangs holds a Submit no longer than its caller waits.
func TestASmallSourceThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{options: Options{Engine: config.Engine{MaxConcurrent: 1, MaxQueued: 10}}})
		r.submit(t.Context(), "wait gate")
		synctest.Wait()
		hangs := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if _, err := r.Submit(ctx, executor.Spec{Code: "read-stdin"}, executor.Input{Stdin: hanging(hangs)}); err == nil || time.Since(begin) != time.Minute {
			t.Errorf("Submit returned %v after %v", err, time.Since(begin))
		}
		close(hangs)
		r.fake.Release("gate")
		synctest.Wait()
		r.wantIdle()
	})
}

// A Source that hangs does not keep a Session from its end, nor its caller from the answer.
func TestASmallSourceThatHangsEndsWithItsSession(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"idle": "", "busy": "wait gate"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				r := newRig(t, withSessions())
				session := r.open(t.Context())
				if before != "" {
					r.submit(t.Context(), before, in(session))
					synctest.Wait()
				}
				hangs := make(chan struct{})
				begin, answers := time.Now(), make(chan error, 1)
				go func() {
					_, err := r.Submit(t.Context(), executor.Spec{Code: "read-stdin", Session: session.ID}, executor.Input{Stdin: hanging(hangs)})
					answers <- err
				}()
				synctest.Wait()
				_ = must(r.CloseSession(t.Context(), session.ID))
				if err := <-answers; time.Since(begin) != 0 {
					t.Errorf("Submit returned %v after %v", err, time.Since(begin))
				}
				close(hangs)
				synctest.Wait()
				r.wantIdle()
			})
		})
	}
}
