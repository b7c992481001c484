package memorystore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const kib = 1024

func output(n int) executor.Event {
	return executor.Event{Body: executor.Output{Stream: executor.Stdout, Data: make([]byte, n)}}
}

var finishedEvent = executor.Event{Body: executor.Finished{Result: executor.Result{Status: executor.StatusSucceeded}}}

func windowed(t *testing.T, window int64) *Store {
	t.Helper()
	s := New(Options{LogWindowBytes: window})
	if _, _, err := s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: "x", Status: executor.StatusQueued}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAWindowBlocksOutputUntilAFollowerConsumesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := windowed(t, 4*kib)
		appended := 0
		done := make(chan error)
		go func() {
			for range 100 {
				if err := s.Append(t.Context(), "x", output(kib)); err != nil {
					done <- err
					return
				}
				appended++
			}
			done <- s.Append(t.Context(), "x", finishedEvent)
		}()
		synctest.Wait()
		if appended != 3 { // each counts its overhead too
			t.Fatalf("%d appends without a follower, want 3", appended)
		}
		next, stop := iter.Pull2(s.Events(t.Context(), "x", 0))
		defer stop()
		for want := uint64(1); want <= 101; want++ {
			e, err, ok := next()
			if !ok || err != nil || e.Seq != want {
				t.Fatalf("event %d: %v %v %t", want, e.Seq, err, ok)
			}
			synctest.Wait()
			if r, err := s.Get(t.Context(), "x"); err != nil || r.LogBytes > 4*kib {
				t.Fatalf("the window holds %d bytes, error %v", r.LogBytes, err)
			}
			if want < 97 && appended != int(want)+2 { //nolint:gosec // small
				t.Fatalf("%d appends while the follower handles event %d, want %d", appended, want, want+2)
			}
			if want == 98 {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, _, ok := next(); ok {
			t.Error("the log goes on after Finished")
		}
	})
}

func TestAWindowWaitsForItsSlowestFollowerUntilThatLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := windowed(t, 4*kib)
		appended := 0
		go func() {
			for range 10 {
				if err := s.Append(t.Context(), "x", output(kib)); err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
				appended++
			}
			if err := s.Append(t.Context(), "x", finishedEvent); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		}()
		slow, leave := iter.Pull2(s.Events(t.Context(), "x", 0))
		defer leave()
		read := func(want uint64) {
			t.Helper()
			if e, err, ok := slow(); !ok || err != nil || e.Seq != want {
				t.Errorf("the slow follower got event %d, %v, %t, want %d", e.Seq, err, ok, want)
			}
		}
		read(1)
		seen := uint64(0)
		go func() {
			for e, err := range s.Events(t.Context(), "x", 0) {
				if err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
				seen = e.Seq
			}
		}()
		synctest.Wait()
		if appended != 3 || seen != 3 {
			t.Errorf("%d appended, %d seen while the slow follower handles event 1, want 3", appended, seen)
		}
		read(2) // nothing of what it has not seen was dropped
		synctest.Wait()
		if appended != 4 {
			t.Errorf("%d appended while it handles event 2, want 4", appended)
		}
		leave()
		synctest.Wait()
		if appended != 10 || seen != 11 {
			t.Errorf("%d appended, %d seen after it has left, want 10 and 11", appended, seen)
		}
	})
}

func TestAWindowLetsAnEndAndSmallNewsThrough(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := windowed(t, kib)
	for _, events := range [][]executor.Event{{output(kib)}, {{Body: executor.Started{}}}, {{Body: executor.Progress{}}}, {output(1), finishedEvent}} {
		if err := s.Append(ctx, "x", events...); err != nil {
			t.Fatal(err)
		}
	}
}

// An end lets what is with it through. Without an end, a Display waits as an Output does.
func TestAWindowBlocksDisplays(t *testing.T) {
	t.Parallel()
	s := windowed(t, kib)
	if err := s.Append(t.Context(), "x", output(kib)); err != nil {
		t.Fatal(err)
	}
	display := executor.Event{Body: executor.Display{Data: map[string][]byte{"text/plain": []byte("x")}}}
	ended, end := context.WithCancelCause(t.Context())
	end(nil)
	if err := s.Append(ended, "x", display); !errors.Is(err, context.Canceled) {
		t.Errorf("a display in a full window: %v", err)
	}
	if err := s.Append(ended, "x", display, finishedEvent); err != nil {
		t.Errorf("a display and the end: %v", err)
	}
}

func TestAWindowThatLetGoOfEventsSaysPurged(t *testing.T) {
	t.Parallel()
	s := windowed(t, 64*kib)
	for range 3 {
		if err := s.Append(t.Context(), "x", output(kib)); err != nil {
			t.Fatal(err)
		}
	}
	for e, err := range s.Events(t.Context(), "x", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 3 {
			break
		}
	}
	for _, err := range s.Events(t.Context(), "x", 0) {
		if executor.CodeOf(err) != executor.Purged {
			t.Errorf("a replay from the start gives %v, want purged", err)
		}
	}
	for e, err := range s.Events(t.Context(), "x", 2) {
		if err != nil || e.Seq != 3 {
			t.Errorf("after 2: %d, %v", e.Seq, err)
		}
		break
	}
}

func TestABlockedAppendEndsWithItsContextAndWithDelete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := windowed(t, kib)
		if err := s.Append(t.Context(), "x", output(kib)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan error, 2)
		go func() { results <- s.Append(ctx, "x", output(1)) }()
		synctest.Wait()
		cancel(nil)
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("a blocked Append whose ctx ended gave %v", err)
		}
		go func() { results <- s.Append(t.Context(), "x", output(1)) }()
		synctest.Wait()
		if err := s.Delete(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if err := <-results; executor.CodeOf(err) != executor.Purged {
			t.Errorf("a blocked Append whose record was deleted gave %v", err)
		}
	})
}

func TestDeletedIdsAreRememberedBoundedly(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	for i := range maxPurged + 10 {
		id := fmt.Sprintf("exe_%06d", i)
		if _, _, err := s.Create(t.Context(), executor.Record{Execution: executor.Execution{ID: id}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.purged) != maxPurged || len(s.purgedIDs) != maxPurged {
		t.Errorf("%d and %d ids are remembered", len(s.purged), len(s.purgedIDs))
	}
	for id, want := range map[string]executor.Code{"exe_000009": executor.NotFound, "exe_000010": executor.Purged} {
		if _, err := s.Get(t.Context(), id); executor.CodeOf(err) != want {
			t.Errorf("Get(%s): %v, want %s", id, err, want)
		}
	}
}

// TestFollowersWakeWithoutATimer runs in a bubble whose clock never moves: a follower that polled would sleep for ever.
func TestFollowersWakeWithoutATimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := windowed(t, 0)
		seen := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range s.Events(t.Context(), "x", 0) {
				seen++
			}
		}()
		for want := range 20 {
			synctest.Wait()
			if seen != want {
				t.Fatalf("the follower has seen %d of %d events", seen, want)
			}
			if err := s.Append(t.Context(), "x", executor.Event{Body: executor.Progress{}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Append(t.Context(), "x", finishedEvent); err != nil {
			t.Fatal(err)
		}
		<-done
	})
}
