package engine

import (
	"context"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/store/memory"
)

// slowStore takes an hour over output, as one does whose reader has stopped reading.
type slowStore struct{ executor.Store }

func (s *slowStore) wrap() executor.Store {
	s.Store = memorystore.New(memorystore.Options{})
	return s
}

func (s *slowStore) Append(ctx context.Context, id string, events ...executor.Event) error {
	if _, ok := events[0].Body.(executor.Output); ok {
		select {
		case <-time.After(time.Hour):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Store.Append(ctx, id, events...)
}

// failingStore fails what fail says.
type failingStore struct {
	executor.Store
	mu   sync.Mutex
	fail func(op string, events ...executor.Event) error
}

func newFailingStore() *failingStore {
	return &failingStore{Store: memorystore.New(memorystore.Options{})}
}

func (s *failingStore) set(fail func(op string, events ...executor.Event) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *failingStore) check(op string, events ...executor.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		return nil
	}
	return s.fail(op, events...)
}

func (s *failingStore) Create(ctx context.Context, r executor.Record, events ...executor.Event) (executor.Record, bool, error) {
	if err := s.check("create"); err != nil {
		return executor.Record{}, false, err
	}
	return s.Store.Create(ctx, r, events...)
}

func (s *failingStore) Update(ctx context.Context, id string, change func(*executor.Record)) (executor.Record, error) {
	if err := s.check("update"); err != nil {
		return executor.Record{}, err
	}
	return s.Store.Update(ctx, id, change)
}

func (s *failingStore) Append(ctx context.Context, id string, events ...executor.Event) error {
	if err := s.check("append", events...); err != nil {
		return err
	}
	return s.Store.Append(ctx, id, events...)
}

func (s *failingStore) Delete(ctx context.Context, id string) error {
	if err := s.check("delete"); err != nil {
		return err
	}
	return s.Store.Delete(ctx, id)
}

func (s *failingStore) CreateSession(ctx context.Context, r executor.SessionRecord) error {
	if err := s.check("create session"); err != nil {
		return err
	}
	return s.Store.CreateSession(ctx, r)
}

func (s *failingStore) UpdateSession(ctx context.Context, id string, change func(*executor.SessionRecord)) (executor.SessionRecord, error) {
	if err := s.check("update session"); err != nil {
		return executor.SessionRecord{}, err
	}
	return s.Store.UpdateSession(ctx, id, change)
}
