package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/python-executor/python-executor/core/executor"
)

// Open opens the Store in the file path, or makes it and its folder. Beside it lie path-wal (SQLite's log), path.output
// (a folder of large outputs) and path.owner (the process that has it open, for the error of the next one that tries).
// Codes: unavailable (another process has it open), internal.
func Open(path string, o Options) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if o.sync == nil {
		o.sync = syncPath
	}
	if isFormer(path) {
		if err := convert(path, o); err != nil {
			return nil, openError(path, err)
		}
	}
	s := &Store{
		path: path, log: o.Log, sync: o.sync, prepared: map[string]*sql.Stmt{},
		entries: map[string]*entry{}, keys: map[ownerKey]string{}, dirty: map[*entry]struct{}{}, quit: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(outputDir(path), 0o700); err != nil {
		return nil, openError(path, err)
	}
	if err := s.open(); err != nil {
		err = errors.Join(openError(path, err), s.closeFiles())
		_ = os.Remove(outputDir(path)) // It fails if the folder holds something.
		return nil, err
	}
	// The file is only a hint for people. The Store works without it.
	_ = os.WriteFile(ownerPath(path), fmt.Appendf(nil, "process %d (%s)", os.Getpid(), filepath.Base(os.Args[0])), 0o600)
	return s, nil
}

// open locks the database's file, connects to it, and reads what is kept in memory. The lock is flock(2), because a process
// loses SQLite's own lock as soon as it closes any descriptor of the file.
func (s *Store) open() (err error) {
	if s.file, err = os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := syscall.Flock(int(s.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	if s.wal, err = newWAL(s.path, s.sync); err != nil {
		return err
	}
	return s.restore()
}

// connect opens the one connection: with an exclusive lock SQLite needs no shared memory and no locking calls. SQLite caches 100 pages
// (400 KiB), which is more than a new Execution touches.
func (s *Store) connect() (err error) {
	ctx := context.Background()
	dsn := url.URL{Scheme: "file", Path: s.path, RawQuery: url.Values{"_pragma": {
		"locking_mode(exclusive)", "journal_mode(wal)", "synchronous(normal)", "wal_autocheckpoint(4000)", "journal_size_limit(16777216)",
		"cache_size(100)",
	}}.Encode()}
	if s.pool, err = sql.Open("sqlite", dsn.String()); err != nil {
		return err
	}
	if s.db, err = s.pool.Conn(ctx); err != nil {
		return err
	}
	var found int
	if err := s.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found); err != nil {
		return err
	}
	switch found {
	case format:
		return nil
	case 0:
		_, err := s.db.ExecContext(ctx, fmt.Sprintf("BEGIN; %s PRAGMA user_version = %d; COMMIT", schema, format))
		return err
	default:
		return fmt.Errorf("format: must be %d (got %d)", format, found)
	}
}

// restore reads the Executions that have not ended, and removes the files of those that are gone.
func (s *Store) restore() error {
	var last int64
	var living []string
	s.dbLock.Lock()
	_, err := s.one("SELECT coalesce((SELECT max(n) FROM executions), 0), coalesce((SELECT max(id) FROM executions), '')", nil, []any{&last, &s.lastID})
	if err == nil {
		err = s.query(func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			living = append(living, id)
			return err
		}, "SELECT id FROM executions WHERE ended = ''")
	}
	s.dbLock.Unlock()
	if err != nil {
		return err
	}
	s.lastNumber.Store(last)
	for _, id := range living {
		e, err := s.find(id)
		if err != nil {
			return err
		}
		s.unlock(e)
	}
	return s.removeStrayOutput()
}

// Close implements executor.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	entries := slices.Collect(maps.Values(s.entries))
	s.mu.Unlock()
	close(s.quit)
	s.running.Wait()
	s.saveAll()
	for _, e := range entries {
		e.mu.Lock()
		e.gone = errClosed()
		e.closeOutput()
		e.wakeAll()
		e.mu.Unlock()
	}
	err := errors.Join(s.wal.syncAll(), s.closeFiles())
	_ = os.Remove(ownerPath(s.path)) // a hint, see Open
	_ = os.Remove(outputDir(s.path)) // It fails if the folder holds something.
	if err != nil {
		return executor.Errorf(executor.Internal, "close the store %s: %w", s.path, err)
	}
	return nil
}

// closeFiles closes the database, which then copies its log into its file and removes the log, and gives up the lock.
func (s *Store) closeFiles() error {
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	var errs []error
	if s.wal != nil {
		errs = append(errs, s.wal.file.Close())
	}
	for _, stmt := range s.prepared { // SQLite stays open as long as it has a statement.
		errs = append(errs, stmt.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
		s.db = nil
	}
	if s.pool != nil {
		errs = append(errs, s.pool.Close())
	}
	if s.file != nil {
		// A process that is being started has the file open too, until its exec. The lock must not wait for that.
		errs = append(errs, syscall.Flock(int(s.file.Fd()), syscall.LOCK_UN), s.file.Close()) //nolint:gosec // a descriptor is small
	}
	return errors.Join(errs...)
}

func ownerPath(path string) string { return path + ".owner" }

func openError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, bolterrors.ErrTimeout):
		holder := "another process, probably a python-executor server with the same data folder"
		if raw, readErr := os.ReadFile(ownerPath(path)); readErr == nil && len(raw) > 0 {
			holder = strings.TrimSpace(string(raw[:min(len(raw), 200)]))
		}
		return executor.Errorf(executor.Unavailable, "the store %s is in use by %s: stop it, or use another data_dir", path, holder)
	case sqliteCode(err) == sqlite3.SQLITE_NOTADB, errors.Is(err, errDamaged):
		return executor.Errorf(executor.Internal, "the store %[1]s is damaged, or no store. To start without its executions: "+
			"`mkdir %[2]s/old && mv %[1]s* %[2]s/old/`: %[3]w", path, filepath.Dir(path), err)
	default:
		return executor.Errorf(executor.Internal, "open the store %s: %w", path, err)
	}
}
