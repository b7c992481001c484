package boltstore

import (
	"context"
	"iter"
	"log/slog"

	"github.com/python-executor/python-executor/core/executor"
)

// Options are for Open; the zero value is usable.
type Options struct {
	// Log receives what an operator should know (a log that was cut by a power failure, a disk that is full). nil: nothing.
	Log *slog.Logger
}

// Store implements executor.Store.
type Store struct{}

var _ executor.Store = (*Store)(nil)

func errStub() error { return executor.Errorf(executor.Unimplemented, "boltstore") }

// Open opens the Store in the file path, or makes it; its folder must exist. The write-ahead log lies beside it.
// Codes: unavailable (another process has it open), internal.
func Open(path string, o Options) (*Store, error) { return nil, errStub() }

// Create implements executor.Store.
func (s *Store) Create(context.Context, executor.Record) (executor.Record, bool, error) {
	return executor.Record{}, false, errStub()
}

// Get implements executor.Store.
func (s *Store) Get(context.Context, string) (executor.Record, error) {
	return executor.Record{}, errStub()
}

// List implements executor.Store.
func (s *Store) List(context.Context, executor.Filter) ([]executor.Record, error) {
	return nil, errStub()
}

// Update implements executor.Store.
func (s *Store) Update(context.Context, string, func(*executor.Record)) (executor.Record, error) {
	return executor.Record{}, errStub()
}

// Append implements executor.Store.
func (s *Store) Append(context.Context, string, ...executor.Event) error { return errStub() }

// Events implements executor.Store.
func (s *Store) Events(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) { yield(executor.Event{}, errStub()) }
}

// Delete implements executor.Store.
func (s *Store) Delete(context.Context, string) error { return errStub() }

// Close implements executor.Store.
func (s *Store) Close() error { return nil }
