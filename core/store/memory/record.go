package memorystore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// followBatch bounds how many Events a follower takes at once under the record's lock.
const followBatch = 64

// record is one Execution and its log.
type record struct {
	window int64

	mu   sync.Mutex
	head executor.Record
	last time.Time
	// events holds the Events after Seq base; they are never changed, so that followers share them until they yield.
	events []executor.Event
	base   uint64
	// ended is set when the record is gone or the Store is closed.
	ended error
	// wake is closed at the next change that a sleeper may wait for; nil while nobody sleeps.
	wake      chan struct{}
	followers map[*follower]struct{}
}

// follower is one range over Events. consumed is the Seq up to which its caller has come back for more.
type follower struct{ consumed uint64 }

func newRecord(head executor.Record, window int64) *record {
	return &record{window: window, head: head, followers: map[*follower]struct{}{}}
}

// whole returns the head with its whole Spec. The caller must not change what it points to.
func (r *record) whole() executor.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head
}

// copyHead returns a copy of the head with its Spec in brief.
func (r *record) copyHead() executor.Record { return r.whole().Brief().Clone() }

func (r *record) update(change func(*executor.Record)) (executor.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil {
		return executor.Record{}, r.ended
	}
	next := r.head.Brief().Clone()
	change(&next)
	next.KeepFolded(r.head)
	r.head = next
	return r.head.Brief().Clone(), nil
}

// append adds copies of given to the log.
func (r *record) append(ctx context.Context, given []executor.Event) error {
	events := make([]executor.Event, len(given))
	for i, e := range given {
		if err := e.Check(); err != nil {
			return err
		}
		events[i] = e.Clone()
	}
	size, blocks := weigh(events)
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ended != nil {
			return r.ended
		}
		if len(events) == 0 {
			return nil
		}
		if r.head.Status.Terminal() {
			return errFinished(r.head.ID)
		}
		if r.window <= 0 || !blocks || r.head.LogBytes == 0 || r.head.LogBytes+size <= r.window {
			break
		}
		if err := r.sleep(ctx); err != nil {
			return err
		}
	}
	next, last := r.head, r.last
	for i := range events {
		if next.Status.Terminal() {
			return errFinished(next.ID)
		}
		last = now(last)
		events[i].Seq, events[i].Time = next.LastSeq+1, last
		next.Apply(events[i])
		next.LogBytes += events[i].Weight()
	}
	r.head, r.last, r.events = next, last, append(r.events, events...)
	r.wakeAll()
	return nil
}

// follow yields the Events after Seq after until Finished, until ctx or the record ends, or until yield returns false.
func (r *record) follow(ctx context.Context, after uint64, yield func(executor.Event, error) bool) {
	f := &follower{consumed: after}
	r.mu.Lock()
	r.followers[f] = struct{}{}
	r.mu.Unlock()
	defer r.leave(f)
	for {
		batch, done, err := r.next(ctx, f)
		for _, e := range batch {
			if err := ctx.Err(); err != nil {
				yield(executor.Event{}, err)
				return
			}
			if !yield(e.Clone(), nil) {
				return
			}
			r.consume(f, e.Seq)
		}
		if err != nil {
			yield(executor.Event{}, err)
			return
		}
		if done {
			return
		}
	}
}

// next waits for Events that f has not seen. done says that nothing follows the batch.
func (r *record) next(ctx context.Context, f *follower) (batch []executor.Event, done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ended != nil {
			return nil, false, r.ended
		}
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		if f.consumed < r.base {
			return nil, false, executor.Errorf(executor.Purged,
				"the log of %s is kept from event %d on, asked for after %d", r.head.ID, r.base+1, f.consumed)
		}
		if f.consumed < r.head.LastSeq {
			from := f.consumed - r.base
			to := min(from+followBatch, uint64(len(r.events)))
			batch = slices.Clone(r.events[from:to])
			return batch, r.head.Status.Terminal() && batch[len(batch)-1].Seq == r.head.LastSeq, nil
		}
		if r.head.Status.Terminal() {
			return nil, true, nil
		}
		if err := r.sleep(ctx); err != nil {
			return nil, false, err
		}
	}
}

// consume notes that f's caller has handled Seq seq; a window then drops what all followers have handled.
func (r *record) consume(f *follower, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.consumed = seq
	r.dropConsumed()
}

// dropConsumed makes room in a window. Without a follower nothing is dropped. The caller holds the lock.
func (r *record) dropConsumed() {
	if r.window <= 0 || len(r.followers) == 0 {
		return
	}
	seq := r.head.LastSeq
	for f := range r.followers {
		seq = min(seq, f.consumed)
	}
	dropped := false
	for r.base < seq && len(r.events) > 0 {
		r.head.LogBytes -= r.events[0].Weight()
		r.events[0] = executor.Event{}
		r.events = r.events[1:]
		r.base++
		dropped = true
	}
	if dropped {
		r.wakeAll()
	}
}

func (r *record) leave(f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, f)
	r.dropConsumed() // f may have been the slowest
}

func (r *record) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = err
	r.wakeAll()
}

// sleep gives up the lock until the next wakeAll or ctx's end. The caller holds the lock and looks again afterwards.
func (r *record) sleep(ctx context.Context) error {
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	wake := r.wake
	r.mu.Unlock()
	defer r.mu.Lock()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *record) wakeAll() {
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// weigh returns what events count in LogBytes, and whether a full window makes them wait.
func weigh(events []executor.Event) (size int64, blocks bool) {
	for _, e := range events {
		size += e.Weight()
		switch e.Body.(type) {
		case executor.Output, executor.Display:
			blocks = true
		case executor.Finished:
			return size, false
		case executor.Queued, executor.Progress, executor.Started, executor.Unknown:
		}
	}
	return size, blocks
}

func errFinished(id string) error {
	return executor.Errorf(executor.Conflict, "execution %s has finished", id)
}
