package boltstore

import (
	"context"
	"errors"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
)

// makeRoom waits until the write-ahead log has room. The lock is held.
func (s *Store) makeRoom(ctx context.Context) error {
	for {
		switch {
		case s.closed:
			return errClosed()
		case s.broken != nil:
			return executor.Errorf(executor.Unavailable, "the store's disk failed: %w", s.broken)
		case s.current().size < maxWaitingBytes:
			return nil
		case s.stuck != nil:
			return executor.Errorf(executor.Unavailable, "the store cannot write: %w", s.stuck)
		}
		if err := s.sleep(ctx, &s.room); err != nil {
			return err
		}
	}
}

func (s *Store) current() *segment { return s.segments[len(s.segments)-1] }

// write adds a record to the write-ahead log. The lock is held.
func (s *Store) write(o op, id string, body []byte) (lsn uint64, err error) {
	lsn = s.lsn + 1
	s.buffer = appendRecord(s.buffer[:0], lsn, o, id, body)
	fatal, err := s.current().write(s.buffer, lsn)
	if cap(s.buffer) > checkpointBytes {
		s.buffer = nil
	}
	if err != nil {
		if fatal {
			s.broken = err
		}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return 0, executor.Errorf(executor.Unavailable, "no space left on the disk of %s: %w", s.path, err)
		}
		return 0, executor.Errorf(executor.Unavailable, "write to the log of %s: %w", s.path, err)
	}
	s.lsn = lsn
	if s.current().size >= checkpointBytes {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
	return lsn, nil
}

// waitSynced returns when the records up to lsn are on disk. Whoever comes first syncs for all who wait; the lock is held
// before and after, not meanwhile.
func (s *Store) waitSynced(lsn uint64) error {
	for s.synced < lsn {
		if s.broken != nil {
			return executor.Errorf(executor.Unavailable, "the store's disk failed: %w", s.broken)
		}
		if s.syncing {
			s.syncDone.Wait()
			continue
		}
		s.syncing = true
		target := s.lsn
		// In order, so that a record on disk has all before it on disk too.
		var files []*segment
		for _, segment := range s.segments {
			if segment.last > s.synced {
				files = append(files, segment)
			}
		}
		s.mu.Unlock()
		var err error
		for _, segment := range files {
			if err = segment.file.Sync(); err != nil {
				break
			}
		}
		s.mu.Lock()
		s.syncing = false
		if err != nil {
			// What an fsync failed to write may be gone from memory too: nothing that follows could be trusted.
			s.broken = err
		} else {
			s.synced = max(s.synced, target)
		}
		s.syncDone.Broadcast()
	}
	return nil
}

// replay is write backwards: it applies a record that was read.
func (s *Store) replay(rec record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lsn = rec.lsn
	switch rec.op {
	case opCreate:
		head, spec, err := decodeHead(rec.body)
		if err != nil {
			return err
		}
		s.create(head, spec, len(rec.body))
		return nil
	case opPutSession, opDeleteSession:
		return s.replaySession(rec)
	case opUpdate, opAppend, opDelete:
	default:
		return executor.Errorf(executor.Internal, "the log of %s has a record of kind %d: it was written by a newer version", s.path, rec.op)
	}
	e, err := s.find(rec.id)
	if err != nil {
		return err
	}
	switch rec.op {
	case opUpdate:
		if e.head, _, err = decodeHead(rec.body); err != nil {
			return err
		}
		s.touch(e)
	case opAppend:
		items, err := decodeChunk(rec.body)
		if err != nil {
			return err
		}
		s.apply(e, items)
	case opDelete:
		s.delete(e)
	case opCreate, opPutSession, opDeleteSession:
	}
	return nil
}
