package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/python-executor/python-executor/core/executor"
)

// format is the version of schema, in the database's user_version.
const format = 1

// executions.ended is the status of an Execution that has ended, else empty: the status of any other is in memory.
// executions.log has the first Events, as events.body, if the Execution was added with any.
// events.seq is the number of a row's first Event, body the row's Events as JSON. An Output with Data of size bytes, which
// lies in the Execution's file from file_at on, is a row of its own; size is 0 for all others.
// purged are the ids of deleted Executions, in the order of their deletion.
const schema = `
CREATE TABLE executions (
	n INTEGER PRIMARY KEY, id TEXT NOT NULL, owner TEXT NOT NULL, idempotency_key TEXT, ended TEXT NOT NULL,
	head BLOB NOT NULL, log BLOB);
CREATE INDEX executions_list ON executions (id, owner, ended);
CREATE UNIQUE INDEX executions_key ON executions (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TABLE specs (n INTEGER PRIMARY KEY, spec BLOB NOT NULL);
CREATE TABLE events (
	n INTEGER, seq INTEGER, body BLOB NOT NULL, file_at INTEGER NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (n, seq)) WITHOUT ROWID;
CREATE TABLE purged (n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE sessions (id TEXT PRIMARY KEY, owner TEXT NOT NULL, created TEXT NOT NULL, record BLOB NOT NULL);
`

// transact runs change in a transaction, which is rolled back if change fails or panics. commit is its number for the
// method sync of the log.
func (s *Store) transact(change func() error) (commit uint64, err error) {
	return s.commit(false, change)
}

// commit is transact. A change that is a single statement is a transaction without more.
func (s *Store) commit(single bool, change func() error) (commit uint64, err error) {
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	if err := s.wal.sync(0); err != nil {
		return 0, err
	}
	committed := single
	defer func() {
		if !committed {
			_ = s.exec("ROLLBACK") // It fails if SQLite has rolled back already.
		}
	}()
	if !single {
		err = s.exec("BEGIN")
	}
	if err == nil {
		err = change()
	}
	if err == nil && !single {
		err = s.exec("COMMIT")
	}
	if err != nil {
		return 0, s.writeError(err)
	}
	committed = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later(&s.flushing, flushDelay, s.flush)
	return s.wal.wrote(), nil
}

// exec runs a statement. dbLock is held.
func (s *Store) exec(query string, args ...any) error {
	stmt, err := s.prepare(query)
	if err == nil {
		_, err = stmt.Exec(args...)
	}
	return err
}

// query calls each for every row of an answer. dbLock is held.
func (s *Store) query(each func(rows *sql.Rows) error, query string, args ...any) (err error) {
	stmt, err := s.prepare(query)
	if err != nil {
		return s.readError(err)
	}
	rows, err := stmt.Query(args...)
	if err != nil {
		return s.readError(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return s.readError(err)
		}
	}
	if err := rows.Err(); err != nil {
		return s.readError(err)
	}
	return nil
}

// one reads the only row of an answer, and reports whether there is one. dbLock is held.
func (s *Store) one(query string, args, into []any) (found bool, err error) {
	err = s.query(func(rows *sql.Rows) error {
		found = true
		return rows.Scan(into...)
	}, query, args...)
	return found, err
}

// prepare returns a statement, which is prepared at its first use. dbLock is held.
func (s *Store) prepare(query string) (*sql.Stmt, error) {
	if s.db == nil {
		return nil, errClosed()
	}
	if stmt := s.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.db.PrepareContext(context.Background(), query)
	if err == nil {
		s.prepared[query] = stmt
	}
	return stmt, err
}

func (s *Store) readError(err error) error {
	if _, ok := errors.AsType[*executor.Error](err); ok {
		return err
	}
	return executor.Errorf(executor.Internal, "read the store %s: %w", s.path, err)
}

func (s *Store) writeError(err error) error {
	if _, ok := errors.AsType[*executor.Error](err); ok {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || sqliteCode(err) == sqlite3.SQLITE_FULL {
		return executor.Errorf(executor.Unavailable, "no space left on the disk of %s: %w", s.path, err)
	}
	return executor.Errorf(executor.Unavailable, "write to the store %s: %w", s.path, err)
}

// sqliteCode returns the primary result code of an error of SQLite, or 0.
func sqliteCode(err error) int {
	if failed, ok := errors.AsType[*sqlite.Error](err); ok {
		return failed.Code() & 0xff
	}
	return 0
}
