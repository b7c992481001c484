package boltstore

import (
	"errors"
	"time"
)

// checkpointDelay is Store.delay, but in tests.
const checkpointDelay = time.Second

// checkpoints moves what has gathered into bbolt, until quit is closed.
func (s *Store) checkpoints() {
	timer := time.NewTimer(s.delay)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.changed:
		}
		timer.Reset(s.delay)
		full := s.full
		if s.isStuck() {
			full = nil // after a failure a moment passes in any case
		}
		select {
		case <-s.quit:
			return
		case <-full:
		case <-timer.C:
		}
		if err := s.checkpoint(true); err != nil {
			s.log.Error("the store cannot move its log, it tries again", "path", s.path, "error", err)
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}
	}
}

// isDirty reports whether bbolt lacks something. The lock is held.
func (s *Store) isDirty() bool { return len(s.dirty) > 0 || len(s.dirtySessions) > 0 }

func (s *Store) isStuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck != nil
}

// checkpoint moves what is in memory into bbolt and drops the write-ahead log up to there. rotate: the log goes on in a
// new segment.
func (s *Store) checkpoint(rotate bool) (err error) {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	defer func() { s.settleCheckpoint(err) }()
	var fresh *segment
	if rotate {
		s.mu.Lock()
		number, empty := s.current().number+1, s.current().last == 0
		// A full segment that bbolt has already is dropped all the same: writers wait for its end.
		idle := !s.isDirty() && s.current().size < maxWaitingBytes
		s.mu.Unlock()
		if idle {
			return nil
		}
		if !empty { // else the checkpoint before failed after it had made this one
			if fresh, err = createSegment(s.path, number); err != nil {
				return err
			}
		}
	}
	work, old := s.beginCheckpoint(fresh)
	if len(work.jobs) == 0 && len(work.sessions) == 0 { // every record made something dirty, so bbolt has them all
		return s.removeSegments(old)
	}
	if err := s.flush(work); err != nil {
		s.putBack(work)
		return err
	}
	s.endCheckpoint(work)
	return s.removeSegments(old)
}

// settleCheckpoint notes how a checkpoint ended and lets writers look.
func (s *Store) settleCheckpoint(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = err
	s.wakeWriters()
}

func (s *Store) wakeWriters() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// beginCheckpoint takes over what is dirty. old are the segments that are of no use once it is in bbolt.
func (s *Store) beginCheckpoint(fresh *segment) (work batch, old []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	work = batch{sessions: s.takeSessions(), applied: s.lsn}
	for e := range s.dirty {
		e.dirty, e.flushing = false, true
		work.jobs = append(work.jobs, &job{entry: e, head: e.head, spec: e.spec, deleted: e.deleted, items: e.pending[:len(e.pending):len(e.pending)]})
	}
	clear(s.dirty)
	if fresh != nil {
		old = s.segments[:len(s.segments):len(s.segments)]
		s.segments = append(old, fresh)
		s.wakeWriters()
	}
	return work, old
}

// putBack makes the entries of a checkpoint that failed dirty again.
func (s *Store) putBack(work batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range work.sessions {
		s.dirtySessions[id] = struct{}{}
	}
	for _, j := range work.jobs {
		j.entry.flushing, j.entry.dirty = false, true
		s.dirty[j.entry] = struct{}{}
	}
}

// endCheckpoint lets go of what is in bbolt now.
func (s *Store) endCheckpoint(work batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range work.jobs {
		e := j.entry
		e.flushing = false
		if !e.deleted {
			// A copy, so that the array with what was flushed can go.
			e.pending = append([]item(nil), e.pending[len(j.items):]...)
			e.headBytes, e.spec = j.size, nil
		}
		if key := j.head.Spec.IdempotencyKey; key != "" && !j.deleted {
			if at := string(ownerKey(j.head.Owner, key)); s.keys[at] == e.id {
				delete(s.keys, at)
			}
		}
		s.settle(e)
	}
	s.synced = max(s.synced, work.applied)
	s.syncDone.Broadcast()
}

// removeSegments drops segments whose records are in bbolt. It takes the place of whoever syncs, so that nobody syncs a
// file that is being closed.
func (s *Store) removeSegments(old []*segment) error {
	if len(old) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.syncing {
		s.syncDone.Wait()
	}
	s.syncing = true
	s.segments = s.segments[len(old):]
	s.mu.Unlock()
	var errs []error
	for _, segment := range old {
		errs = append(errs, segment.remove())
	}
	s.mu.Lock()
	s.syncing = false
	s.syncDone.Broadcast()
	return errors.Join(errs...)
}
