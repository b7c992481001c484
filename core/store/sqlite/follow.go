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
	// maxBatchRows bounds how many rows it takes from the database: at most 4 MiB of large outputs.
	maxBatchRows = 16
)

// Events implements executor.Store.
func (s *Store) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		e, err := s.find(id)
		if err != nil {
			yield(executor.Event{}, err)
			return
		}
		defer s.unlock(e)
		for {
			batch, done, err := s.next(ctx, e, after)
			if more := e.deliver(ctx, batch, err, yield); !more || done {
				return
			}
			after += uint64(len(batch))
		}
	}
}

// deliver yields events, and then err if there is one, without e's lock. It reports whether more may follow.
func (e *entry) deliver(ctx context.Context, events []executor.Event, err error, yield func(executor.Event, error) bool) bool {
	e.mu.Unlock()
	defer e.mu.Lock()
	for _, event := range events {
		if err := ctx.Err(); err != nil {
			yield(executor.Event{}, err)
			return false
		}
		if !yield(event.Clone(), nil) {
			return false
		}
	}
	if err != nil {
		yield(executor.Event{}, err)
		return false
	}
	return true
}

// next waits for Events behind Seq after. done reports whether nothing follows the batch. e is locked.
func (s *Store) next(ctx context.Context, e *entry, after uint64) (batch []executor.Event, done bool, err error) {
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
		batch = e.tail[uint64(len(e.tail))-missing:]
		batch = slices.Clone(batch[:min(maxBatch, len(batch))])
	} else if batch, err = s.readLocked(e, after+1); err != nil {
		return nil, false, err
	}
	return batch, e.head.Status.Terminal() && batch[len(batch)-1].Seq == e.head.LastSeq, nil
}

// readLocked is readEvents, without e's lock meanwhile.
func (s *Store) readLocked(e *entry, first uint64) ([]executor.Event, error) {
	e.mu.Unlock()
	events, err := s.readEvents(e.n, first)
	e.mu.Lock()
	if e.gone != nil {
		return nil, e.gone
	}
	if err == nil && (len(events) == 0 || events[0].Seq != first) {
		err = executor.Errorf(executor.Internal, "the log of %s lacks event %d", e.id, first)
	}
	return events, err
}
