package boltstore

import (
	"context"
	"iter"

	"github.com/python-executor/python-executor/core/executor"
)

// followBatch bounds how many Events a follower takes from memory at once.
const followBatch = 64

// Events implements executor.Store.
func (s *Store) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		e, err := s.pin(id)
		if err != nil {
			yield(executor.Event{}, err)
			return
		}
		defer s.unpin(e)
		for {
			batch, done, err := s.next(ctx, e, after)
			for _, it := range batch {
				if err := ctx.Err(); err != nil {
					yield(executor.Event{}, err)
					return
				}
				if !yield(it.event.Clone(), nil) {
					return
				}
				after = it.event.Seq
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
}

// pin keeps an entry in memory while it is followed.
func (s *Store) pin(id string) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(id)
	if err != nil {
		return nil, err
	}
	e.refs++
	s.settle(e)
	return e, nil
}

func (s *Store) unpin(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.refs--
	if !s.closed {
		s.settle(e)
	}
}

// next waits for Events behind Seq after. done says that nothing follows the batch.
func (s *Store) next(ctx context.Context, e *entry, after uint64) (batch []item, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.gone(e); err != nil {
			return nil, false, err
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
		if err := s.sleep(ctx, &e.wake); err != nil {
			return nil, false, err
		}
	}
	if len(e.pending) > 0 && e.pending[0].event.Seq <= after+1 {
		from := after + 1 - e.pending[0].event.Seq
		to := min(from+followBatch, uint64(len(e.pending)))
		batch = append(batch, e.pending[from:to]...)
	} else {
		// Older than what is in memory, so it is in bbolt. The lock is not held while reading, so that a reader of old
		// logs holds up nobody; the transaction ends before anything is yielded, so that it pins no pages either.
		s.mu.Unlock()
		batch, err = s.readEvents(e.id, after+1)
		s.mu.Lock()
		if gone := s.gone(e); gone != nil {
			return nil, false, gone
		}
		if err == nil && (len(batch) == 0 || batch[0].event.Seq != after+1) {
			err = executor.Errorf(executor.Internal, "the log of %s lacks event %d", e.id, after+1)
		}
		if err != nil {
			return nil, false, err
		}
	}
	return batch, e.head.Status.Terminal() && batch[len(batch)-1].event.Seq == e.head.LastSeq, nil
}

// gone says why e can be followed no longer. The lock is held.
func (s *Store) gone(e *entry) error {
	if s.closed {
		return errClosed()
	}
	if e.deleted {
		return errPurged(e.id)
	}
	return nil
}
