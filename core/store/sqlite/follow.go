package sqlitestore

import (
	"context"
	"iter"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// maxBatch bounds how many Events a follower takes at once from memory.
	maxBatch = 64
	// maxBatchRows bounds how many rows it takes from the database.
	maxBatchRows = 16
)

// Events implements executor.Store. Large Data is read when its Event is yielded, so a follower holds that of one Output.
func (s *Store) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		e, err := s.find(id)
		if err != nil {
			yield(executor.Event{}, err)
			return
		}
		defer s.unlock(e)
		outputs := &outputReader{store: s, entry: e, again: executor.DataIsBorrowed(ctx)}
		for {
			batch, done, err := s.next(ctx, e, after)
			if more := e.deliver(ctx, batch, outputs, err, yield); !more || done {
				return
			}
			after += uint64(len(batch))
		}
	}
}

// deliver yields copies of events, and then err if there is one, without e's lock. It reports whether more may follow.
func (e *entry) deliver(ctx context.Context, events []kept, outputs *outputReader, err error, yield func(executor.Event, error) bool) bool {
	e.mu.Unlock()
	defer e.mu.Lock()
	for _, k := range events {
		if err = ctx.Err(); err != nil {
			break
		}
		var event executor.Event
		if event, err = e.copyOf(k, outputs); err != nil {
			break
		}
		if !yield(event, nil) {
			return false
		}
	}
	if err != nil {
		yield(executor.Event{}, err)
		return false
	}
	return true
}

// copyOf returns a copy of k with its Data. e is not locked.
func (e *entry) copyOf(k kept, outputs *outputReader) (executor.Event, error) {
	if k.size == 0 {
		return k.event.Clone(), nil
	}
	event, err := outputs.read(k)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone != nil { // then the file may be gone, too
		err = e.gone
	}
	return event, err
}

// next waits for Events behind Seq after. done reports whether nothing follows the batch. e is locked.
func (s *Store) next(ctx context.Context, e *entry, after uint64) (batch []kept, done bool, err error) {
	for {
		if e.gone != nil {
			return nil, false, e.gone
		}
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		if after < e.head.LastSeq {
			break
		}
		if e.head.Status.Terminal() {
			return nil, true, nil
		}
		if err := e.sleep(ctx); err != nil {
			return nil, false, err
		}
	}
	if missing := e.head.LastSeq - after; missing <= uint64(len(e.tail)) {
		latest := e.tail[uint64(len(e.tail))-missing:]
		batch = slices.Clone(latest[:min(maxBatch, len(latest))])
	} else if batch, err = s.readLocked(e, after+1); err != nil {
		return nil, false, err
	}
	return batch, e.head.Status.Terminal() && batch[len(batch)-1].event.Seq == e.head.LastSeq, nil
}

// readLocked is readEvents, without e's lock meanwhile. What e owes to the database is written before.
func (s *Store) readLocked(e *entry, first uint64) ([]kept, error) {
	if !e.saved || len(e.unsaved) > 0 {
		if _, err := s.save(e, change{head: e.head, rows: e.unsaved, stale: e.stale}); err != nil {
			return nil, err
		}
	}
	e.mu.Unlock()
	events, err := s.readEvents(e.n, first)
	e.mu.Lock()
	if e.gone != nil {
		return nil, e.gone
	}
	if err == nil && (len(events) == 0 || events[0].event.Seq != first) {
		err = executor.Errorf(executor.Internal, "the log of %s lacks event %d", e.id, first)
	}
	return events, err
}
