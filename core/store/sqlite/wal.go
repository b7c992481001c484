package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// flushDelay is how long a commit may wait for its fsync.
const flushDelay = time.Second

// wal is SQLite's log. An fsync of it brings every commit so far to disk, whatever is committed meanwhile: SQLite syncs
// its log itself before it copies the log into the database. So commits do not wait for the fsync of others.
type wal struct {
	file *os.File
	// fsync is file.Sync, except in tests.
	fsync func() error

	mu   sync.Mutex
	done *sync.Cond
	// committed counts transactions. The first synced of them are on disk.
	committed, synced uint64
	syncing           bool
	// broken is the error of an fsync. What it failed to write may be gone from memory too, so nothing is written then.
	broken error
}

// newWAL opens the log of the database at path, and brings its name to disk: syncPath does that, which is no part of the later
// fsyncs.
func newWAL(path string, syncPath func(string) error) (*wal, error) {
	f, err := os.OpenFile(path+"-wal", os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	w := &wal{file: f, fsync: f.Sync}
	w.done = sync.NewCond(&w.mu)
	return w, syncPath(filepath.Dir(path))
}

// wrote notes a commit and returns its number.
func (w *wal) wrote() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed++
	return w.committed
}

// sync returns when the first commits are on disk, or an error if any fsync has failed. The first caller that waits syncs
// for all.
func (w *wal) sync(commits uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.broken == nil && w.synced < commits {
		if w.syncing {
			w.done.Wait()
			continue
		}
		w.syncing = true
		target := w.committed
		w.mu.Unlock()
		err := w.fsync()
		w.mu.Lock()
		w.syncing, w.broken = false, err
		if err == nil {
			w.synced = max(w.synced, target)
		}
		w.done.Broadcast()
	}
	if w.broken != nil {
		return executor.Errorf(executor.Unavailable, "the store's disk failed: %w", w.broken)
	}
	return nil
}

// syncAll is sync for all commits so far.
func (w *wal) syncAll() error {
	w.mu.Lock()
	commits := w.committed
	w.mu.Unlock()
	return w.sync(commits)
}

// flush brings what is committed to disk.
func (s *Store) flush() {
	if err := s.wal.syncAll(); err != nil {
		s.log.Error("the store's log is not on disk", "path", s.path, "error", err)
	}
}

// syncPath brings a file or a folder to disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
