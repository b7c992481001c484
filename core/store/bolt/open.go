package boltstore

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/python-executor/python-executor/core/executor"
)

// lockTimeout is how long Open waits for another process to let go of the file.
const lockTimeout = time.Second

// Open opens the Store in the file path, or makes it and its folder. Beside it lie path.wal.* (the write-ahead log) and
// path.owner (who has it open, for the error of whoever comes second). Codes: unavailable (another process has it open),
// internal.
func Open(path string, o Options) (*Store, error) {
	return openDelayed(path, o, checkpointDelay)
}

func openDelayed(path string, o Options, delay time.Duration) (_ *Store, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, openError(path, err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{
		path: path, log: o.Log, db: db, delay: delay,
		changed: make(chan struct{}, 1), full: make(chan struct{}, 1), quit: make(chan struct{}),
		entries: map[string]*entry{}, dirty: map[*entry]struct{}{}, cache: list.New(), keys: map[string]string{},
		sessions: map[string]*executor.SessionRecord{}, dirtySessions: map[string]struct{}{},
	}
	s.syncDone = sync.NewCond(&s.mu)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.recover(); err != nil {
		return nil, errors.Join(openError(path, err), s.closeFiles())
	}
	// Only a hint for people: that it cannot be written must not keep us from working.
	_ = os.WriteFile(ownerPath(path), fmt.Appendf(nil, "process %d (%s)", os.Getpid(), filepath.Base(os.Args[0])), 0o600)
	s.worker.Go(s.checkpoints)
	return s, nil
}

// recover moves what a crash left in the write-ahead log into bbolt and begins a new log.
func (s *Store) recover() error {
	applied, err := s.prepare()
	if err != nil {
		return err
	}
	numbers, err := segments(s.path)
	if err != nil {
		return err
	}
	s.lsn, s.synced = applied, applied
	if err := s.replayAll(numbers); err != nil {
		return err
	}
	if s.isDirty() {
		if err := s.checkpoint(false); err != nil {
			return err
		}
	}
	next := uint64(1)
	for _, number := range numbers {
		if err := os.Remove(segmentPath(s.path, number)); err != nil {
			return err
		}
		next = number + 1
	}
	first, err := createSegment(s.path, next)
	if err != nil {
		return err
	}
	s.segments = []*segment{first}
	return nil
}

// replayAll applies the records that bbolt does not have. It ends at the first one that is missing: all before it are
// whole, and nothing that was promised to be on disk lies behind it.
func (s *Store) replayAll(numbers []uint64) error {
	errGap := errors.New("gap")
	size := 0
	for i, number := range numbers {
		torn, err := replaySegment(segmentPath(s.path, number), func(rec record) error {
			if rec.lsn <= s.lsn {
				return nil
			}
			if rec.lsn != s.lsn+1 {
				return errGap
			}
			if err := s.replay(rec); err != nil {
				return fmt.Errorf("replay record %d: %w", rec.lsn, err)
			}
			if size += len(rec.body); size < checkpointBytes {
				return nil
			}
			size = 0
			return s.checkpoint(false)
		})
		if errors.Is(err, errGap) {
			s.log.Warn("the end of the log was lost, as after a power failure; executions go on from before it",
				"path", s.path, "record", s.lsn, "segments", len(numbers)-i)
			return nil
		}
		if err != nil {
			return err
		}
		if torn {
			s.log.Info("the log ended in the middle of a record, as after a crash; the record is dropped", "path", s.path, "record", s.lsn)
		}
	}
	return nil
}

// Close implements executor.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for _, e := range s.entries {
		e.wakeAll()
	}
	s.wakeWriters()
	s.mu.Unlock()
	close(s.quit)
	s.worker.Wait()
	err := s.checkpoint(false)
	if err == nil {
		s.mu.Lock()
		for s.syncing {
			s.syncDone.Wait()
		}
		old := s.segments
		s.segments = nil
		s.mu.Unlock()
		for _, segment := range old {
			err = errors.Join(err, segment.remove())
		}
	} else {
		// bbolt cannot take it, so the write-ahead log must keep it.
		for _, segment := range s.segments {
			err = errors.Join(err, segment.file.Sync())
		}
	}
	_ = os.Remove(ownerPath(s.path)) // a hint, see Open
	if err = errors.Join(err, s.closeFiles()); err != nil {
		return executor.Errorf(executor.Internal, "close the store %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) closeFiles() error {
	var errs []error
	for _, segment := range s.segments {
		errs = append(errs, segment.file.Close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}

func ownerPath(path string) string { return path + ".owner" }

func openError(path string, err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		holder := "another process, probably a python-executor server with the same data folder"
		if raw, readErr := os.ReadFile(ownerPath(path)); readErr == nil && len(raw) > 0 { //nolint:gosec // beside the store
			holder = strings.TrimSpace(string(raw[:min(len(raw), 200)]))
		}
		return executor.Errorf(executor.Unavailable, "the store %s is in use by %s: stop it, or use another data_dir", path, holder)
	}
	return executor.Errorf(executor.Internal, "open the store %s: %w", path, err)
}
