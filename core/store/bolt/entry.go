package boltstore

import (
	"container/list"
	"context"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// The heads of Executions that are on disk and that nobody uses are a cache of at most this.
const (
	cacheEntries = 1024
	cacheBytes   = 4 << 20
)

// entry is an Execution in memory: whatever is not in bbolt yet, is being used, or was used lately. The Store's lock
// guards it.
type entry struct {
	id string
	// head is never changed, only replaced, so that it can be read without the lock. Its Spec is in brief.
	head *storedHead
	// spec is the whole Spec, if head has not all of it and bbolt may not have it yet. It is never changed.
	spec *executor.Spec
	// headBytes is about how much memory head and spec take.
	headBytes int
	// pending are the Events that are not in bbolt yet, in order.
	pending []item
	// dirty: changed since the last checkpoint began. flushing: part of the one that is under way.
	dirty, flushing bool
	// deleted: gone for everybody; another entry of the same id may take its place.
	deleted bool
	// refs counts the followers.
	refs int
	// wake is closed at the next change; nil while nobody sleeps.
	wake chan struct{}
	// cached is its place in the cache; nil while it is not in it.
	cached *list.Element
}

func (e *entry) wakeAll() {
	if e.wake != nil {
		close(e.wake)
		e.wake = nil
	}
}

// sleep gives up the Store's lock until e changes or ctx ends.
func (s *Store) sleep(ctx context.Context, wake *chan struct{}) error {
	if *wake == nil {
		*wake = make(chan struct{})
	}
	changed := *wake
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// find returns the entry of an Execution that exists, reading its head if need be. The lock is held.
func (s *Store) find(id string) (*entry, error) {
	if s.closed {
		return nil, errClosed()
	}
	e, ok := s.entries[id]
	if !ok {
		var err error
		if e, err = s.readHead(id); err != nil {
			return nil, err
		}
		s.entries[id] = e
	}
	if e.deleted {
		return nil, errPurged(id)
	}
	s.settle(e)
	return e, nil
}

// settle puts e where its state belongs: out of memory's reach of the cache while it is used, at the cache's front
// otherwise; and lets go of what was used longest ago.
func (s *Store) settle(e *entry) {
	if e.cached != nil {
		s.cache.Remove(e.cached)
		s.cacheSize -= e.headBytes
		e.cached = nil
	}
	if e.dirty || e.flushing || e.refs > 0 {
		return
	}
	if e.deleted || s.entries[e.id] != e {
		if s.entries[e.id] == e {
			delete(s.entries, e.id)
		}
		return
	}
	e.cached = s.cache.PushFront(e)
	s.cacheSize += e.headBytes
	for s.cache.Len() > cacheEntries || s.cacheSize > cacheBytes && s.cache.Len() > 1 {
		oldest, _ := s.cache.Back().Value.(*entry)
		s.cache.Remove(oldest.cached)
		s.cacheSize -= oldest.headBytes
		delete(s.entries, oldest.id)
	}
}

// touch marks e as changed. The lock is held.
func (s *Store) touch(e *entry) {
	e.dirty = true
	s.settle(e)
	s.dirty[e] = struct{}{}
	select {
	case s.changed <- struct{}{}:
	default:
	}
	e.wakeAll()
}

// apply folds items, whose Seq and Time are set, into e. The lock is held.
func (s *Store) apply(e *entry, items []item) {
	head := *e.head
	for _, it := range items {
		head.Apply(it.event)
		head.LogBytes += int64(len(it.raw))
		head.LastEventTime = it.event.Time
	}
	e.head = &head
	e.pending = append(e.pending, items...)
	s.touch(e)
}

// matches is a Filter without its paging.
func matches(f executor.Filter, owner string, status executor.Status) bool {
	return (f.Owner == "" || f.Owner == owner) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, status))
}

func now(last time.Time) time.Time {
	t := time.Now().UTC().Round(0)
	if t.Before(last) {
		return last
	}
	return t
}
