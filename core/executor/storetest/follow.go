package storetest

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func followCases() []storeCase {
	return []storeCase{
		{"ST-13", "replay after a seq", replayAfter},
		{"ST-14", "many followers see the same", manyFollowers},
		{"ST-14", "a sleeping follower wakes", sleeperWakes},
		{"ST-15", "ctx ends a sleeping follower", ctxEndsSleeper},
		{"ST-15", "ctx ends a reading follower", ctxEndsReader},
		{"ST-16", "stop and range again", stopAndAgain},
		{"ST-17", "delete ends followers", deleteEndsFollowers},
		{"ST-20", "a lazy follower holds up nobody", lazyFollower},
		{"ST-22", "close ends everything", closeEnds},
	}
}

func replayAfter(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	for i := range 9 {
		appendAll(t, s, newID(1), output(int64(i), "x"))
	}
	appendAll(t, s, newID(1), finished(executor.StatusSucceeded))
	for after := range uint64(12) {
		events := replay(t, s, newID(1), after)
		want := 10 - int(min(after, 10)) //nolint:gosec // at most 12
		if len(events) != want {
			t.Errorf("%d events after %d, want %d", len(events), after, want)
		}
		gapless(t, events, after)
	}
}

func manyFollowers(t *testing.T, s executor.Store) {
	const followers, n = 10, 200
	create(t, s, newRecord(1))
	ctx := awaittest.Context(t)
	var wg sync.WaitGroup
	logs := make([][]executor.Event, followers)
	for i := range followers {
		wg.Go(func() {
			for e, err := range s.Events(ctx, newID(1), 0) {
				if err != nil {
					t.Errorf("Events: %v", err)
					return
				}
				r, err := s.Get(ctx, newID(1))
				if err != nil || r.LastSeq < e.Seq {
					t.Errorf("event %d was seen while the head is at %d, error %v", e.Seq, r.LastSeq, err)
				}
				logs[i] = append(logs[i], e)
			}
		})
	}
	for i := range n {
		appendAll(t, s, newID(1), output(int64(i), "x"))
	}
	appendAll(t, s, newID(1), finished(executor.StatusSucceeded))
	wg.Wait()
	for i := range followers {
		gapless(t, logs[i], 0)
		if len(logs[i]) != n+1 || !reflect.DeepEqual(logs[i], logs[0]) {
			t.Errorf("follower %d saw %d events, or others than follower 0", i, len(logs[i]))
		}
	}
}

// pull ranges over a log step by step, so that a test knows which Event its follower has reached.
func pull(ctx context.Context, t *testing.T, s executor.Store, id string) func() (executor.Event, error, bool) {
	t.Helper()
	next, stop := iter.Pull2(s.Events(ctx, id, 0))
	t.Cleanup(stop)
	return next
}

func sleeperWakes(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	seen := make(chan uint64)
	var wg sync.WaitGroup
	ctx := awaittest.Context(t)
	wg.Go(func() {
		defer close(seen)
		for e, err := range s.Events(ctx, newID(1), 0) {
			if err != nil {
				t.Errorf("Events: %v", err)
				return
			}
			seen <- e.Seq
		}
	})
	// The next Append comes after the follower has returned every Event, so the follower waits or is about to wait.
	for want := uint64(1); want <= 50; want++ {
		appendAll(t, s, newID(1), executor.Progress{})
		if got := <-seen; got != want {
			t.Fatalf("the follower saw %d, want %d", got, want)
		}
	}
	appendAll(t, s, newID(1), finished(executor.StatusSucceeded))
	if got, ok := <-seen; got != 51 {
		t.Errorf("the follower saw %d (%t), want 51", got, ok)
	}
	if _, ok := <-seen; ok {
		t.Error("the follower goes on after Finished")
	}
	wg.Wait()
}

func ctxEndsSleeper(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	appendAll(t, s, newID(1), executor.Queued{})
	ctx, cancel := context.WithCancelCause(awaittest.Context(t))
	next := pull(ctx, t, s, newID(1))
	if e, err, ok := next(); !ok || err != nil || e.Seq != 1 {
		t.Fatalf("first: %v %v %t", e, err, ok)
	}
	stop := context.AfterFunc(ctx, func() {})
	defer stop()
	go cancel(nil)
	if _, err, ok := next(); !ok || !errors.Is(err, context.Canceled) {
		t.Errorf("a follower whose ctx ended got %v, %t", err, ok)
	}
	if _, _, ok := next(); ok {
		t.Error("the sequence goes on after its error")
	}
}

func ctxEndsReader(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	for range 100 {
		appendAll(t, s, newID(1), executor.Progress{})
	}
	ctx, cancel := context.WithCancelCause(awaittest.Context(t))
	next := pull(ctx, t, s, newID(1))
	if _, err, ok := next(); !ok || err != nil {
		t.Fatalf("first: %v %t", err, ok)
	}
	cancel(nil)
	if _, err, ok := next(); !ok || !errors.Is(err, context.Canceled) {
		t.Errorf("a follower whose ctx ended got %v, %t", err, ok)
	}
}

func stopAndAgain(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	appendAll(t, s, newID(1), executor.Queued{}, executor.Progress{}, finished(executor.StatusKilled))
	events := s.Events(awaittest.Context(t), newID(1), 0)
	for _, stopAt := range []uint64{1, 2, 3} {
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq == stopAt {
				break
			}
		}
	}
	if got := len(replay(t, s, newID(1), 0)); got != 3 {
		t.Errorf("%d events after others had stopped early, want 3", got)
	}
}

func deleteEndsFollowers(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	appendAll(t, s, newID(1), executor.Queued{})
	ctx := awaittest.Context(t)
	var wg, ready sync.WaitGroup
	for range 4 {
		ready.Add(1)
		wg.Go(func() {
			var last error
			for _, err := range s.Events(ctx, newID(1), 0) {
				if err == nil {
					ready.Done()
				}
				last = err
			}
			wantCode(t, "a follower of a deleted execution", last, executor.Purged)
		})
	}
	ready.Wait()
	if err := s.Delete(ctx, newID(1)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func lazyFollower(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	create(t, s, newRecord(2))
	appendAll(t, s, newID(1), executor.Queued{})
	next := pull(awaittest.Context(t), t, s, newID(1))
	if _, err, ok := next(); !ok || err != nil {
		t.Fatalf("first: %v %t", err, ok)
	}
	chunk := string(make([]byte, executor.MaxOutputData))
	for i := range 160 { // 40 MiB: more than any Store holds back in memory
		appendAll(t, s, newID(1+i%2), output(int64(i)*executor.MaxOutputData, chunk))
	}
	appendAll(t, s, newID(1), finished(executor.StatusSucceeded))
	appendAll(t, s, newID(2), finished(executor.StatusSucceeded))
	if got := len(replay(t, s, newID(2), 0)); got != 81 {
		t.Errorf("%d events, want 81", got)
	}
	count := 1
	for {
		_, err, ok := next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		count++
	}
	if count != 82 {
		t.Errorf("the lazy follower saw %d events, want 82", count)
	}
}

func closeEnds(t *testing.T, s executor.Store) {
	create(t, s, newRecord(1))
	appendAll(t, s, newID(1), executor.Queued{})
	ctx := awaittest.Context(t)
	ready := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var last error
		for _, err := range s.Events(ctx, newID(1), 0) {
			if err == nil {
				close(ready)
			}
			last = err
		}
		wantCode(t, "a follower of a closed store", last, executor.Unavailable)
	})
	<-ready
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	wg.Wait()
	_, _, err := s.Create(ctx, newRecord(2))
	wantCode(t, "Create", err, executor.Unavailable)
	_, err = s.Get(ctx, newID(1))
	wantCode(t, "Get", err, executor.Unavailable)
	_, err = s.List(ctx, executor.Filter{})
	wantCode(t, "List", err, executor.Unavailable)
	_, err = s.Update(ctx, newID(1), func(*executor.Record) {})
	wantCode(t, "Update", err, executor.Unavailable)
	wantCode(t, "Append", s.Append(ctx, newID(1), executor.Event{Body: executor.Queued{}}), executor.Unavailable)
	wantCode(t, "Delete", s.Delete(ctx, newID(1)), executor.Unavailable)
	for _, err := range s.Events(ctx, newID(1), 0) {
		wantCode(t, "Events", err, executor.Unavailable)
	}
}
