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

// copyHead returns the head with its Spec in brief.
func (r *record) copyHead() executor.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head.Brief().Clone()
}

func (r *record) copySpec() executor.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head.Spec.Clone()
}

func (r *record) identity() (owner, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head.Owner, r.head.Spec.IdempotencyKey
}

func (r *record) matches(f executor.Filter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return (f.Owner == "" || f.Owner == r.head.Owner) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.head.Status))
}

func (r *record) update(change func(*executor.Record)) (executor.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil {
		return executor.Record{}, r.ended
	}
	next := r.head.Brief().Clone()
	change(&next)
	next.KeepFolded(r.head)
	r.head = next.Clone()
	return r.head.Brief().Clone(), nil
}

func (r *record) append(ctx context.Context, events []executor.Event) error {
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
		if r.head.Status.Terminal() || finishedBeforeLast(events) {
			return executor.Errorf(executor.Conflict, "execution %s has finished", r.head.ID)
		}
		if r.window <= 0 || !blocks || r.head.LogBytes == 0 || r.head.LogBytes+size <= r.window {
			break
		}
		if err := r.sleep(ctx); err != nil {
			return err
		}
	}
	for _, e := range events {
		e.Seq = r.head.LastSeq + 1
		r.last = now(r.last)
		e.Time = r.last
		r.head.Apply(e)
		r.head.LogBytes += eventBytes(e)
		r.events = append(r.events, e)
	}
	r.wakeAll()
	return nil
}

// follow yields the Events after Seq after until Finished, ctx's end, the record's end, or yield's no.
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
	if r.window <= 0 {
		return
	}
	for other := range r.followers {
		seq = min(seq, other.consumed)
	}
	dropped := false
	for r.base < seq && len(r.events) > 0 {
		r.head.LogBytes -= eventBytes(r.events[0])
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
}

func (r *record) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = err
	}
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
		size += eventBytes(e)
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

func finishedBeforeLast(events []executor.Event) bool {
	for _, e := range events[:len(events)-1] {
		if _, ok := e.Body.(executor.Finished); ok {
			return true
		}
	}
	return false
}

func eventBytes(e executor.Event) int64 {
	size := eventOverhead
	switch b := e.Body.(type) {
	case executor.Output:
		size += len(b.Data)
	case executor.Display:
		for mime, data := range b.Data {
			size += len(mime) + len(data)
		}
	case executor.Unknown:
		size += len(b.Raw)
	case executor.Queued, executor.Progress, executor.Started, executor.Finished:
	}
	return int64(size)
}
