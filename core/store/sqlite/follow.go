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
	// maxBatchBytes bounds the large outputs that it reads at once from the Execution's file. One output always fits.
	maxBatchBytes = 1 << 20
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

// next waits for Events behind Seq after. They are copies. done reports whether nothing follows the batch. e is locked.
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
		latest := e.tail[uint64(len(e.tail))-missing:]
		latest = slices.Clone(latest[:min(maxBatch, len(latest))])
		if batch, err = s.copyLocked(e, latest); err != nil {
			return nil, false, err
		}
	} else if batch, err = s.readLocked(e, after+1); err != nil {
		return nil, false, err
	}
	return batch, e.head.Status.Terminal() && batch[len(batch)-1].Seq == e.head.LastSeq, nil
}

// copyLocked returns copies of the first of latest, with their Data, without e's lock meanwhile.
func (s *Store) copyLocked(e *entry, latest []kept) (events []executor.Event, err error) {
	e.mu.Unlock()
	bytes := 0
	for _, k := range latest {
		if bytes >= maxBatchBytes || err != nil {
			break
		}
		event := k.event.Clone()
		if k.size > 0 {
			event, err = s.readOutput(e.n, k)
		}
		events = append(events, event)
		bytes += k.size
	}
	e.mu.Lock()
	if e.gone != nil {
		return nil, e.gone
	}
	if err != nil {
		return nil, s.readError(err)
	}
	return events, nil
}

// readLocked is readEvents, without e's lock meanwhile. What e owes to the database is written before.
func (s *Store) readLocked(e *entry, first uint64) ([]executor.Event, error) {
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
	if err == nil && (len(events) == 0 || events[0].Seq != first) {
		err = executor.Errorf(executor.Internal, "the log of %s lacks event %d", e.id, first)
	}
	return events, err
}
