package boltstore

import (
	"container/list"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// checkpointBytes of the write-ahead log start a checkpoint before its time.
	checkpointBytes = 1 << 20
	// maxWaitingBytes of the write-ahead log stop all writers until a checkpoint has begun.
	maxWaitingBytes = 4 << 20
	maxIDBytes      = 256
)

// Options are for Open; the zero value is usable.
type Options struct {
	// Log receives what an operator should know (a log that was cut by a power failure, a disk that is full). nil: nothing.
	Log *slog.Logger
}

// Store implements executor.Store.
type Store struct {
	path string
	log  *slog.Logger
	db   *bolt.DB

	// changed and full tell the checkpointer that there is work, and that it should not wait; quit that it should end.
	changed chan struct{}
	full    chan struct{}
	quit    chan struct{}
	worker  sync.WaitGroup
	// delay is how long changes gather before they are moved to bbolt.
	delay time.Duration
	// checkpointing is held by a checkpoint; it guards purged, the number of deleted ids that bbolt remembers.
	checkpointing sync.Mutex
	purged        int

	mu     sync.Mutex
	closed bool
	// broken is set when the disk's state is not known any more; nothing is written then.
	broken error
	// stuck is why the last checkpoint failed; nil if it did not.
	stuck error
	// room is closed when a writer that found the write-ahead log full may look again; nil while nobody waits.
	room chan struct{}

	entries   map[string]*entry
	dirty     map[*entry]struct{}
	cache     *list.List
	cacheSize int
	// keys are the idempotency keys of Executions that may not be in bbolt yet.
	keys map[string]string

	// sessions are all there are. A record is never changed, only replaced. dirtySessions are the ids of those that changed
	// since the last checkpoint began.
	sessions      map[string]*executor.SessionRecord
	dirtySessions map[string]struct{}

	// lsn is that of the last record. segments are those of the write-ahead log, the last one is written to.
	lsn      uint64
	segments []*segment
	buffer   []byte
	// Records up to synced are on disk. syncing: somebody is at an fsync, or removes segments; syncDone wakes the others.
	synced   uint64
	syncing  bool
	syncDone *sync.Cond
}

var _ executor.Store = (*Store)(nil)

// Create implements executor.Store.
func (s *Store) Create(ctx context.Context, r executor.Record) (executor.Record, bool, error) {
	if err := checkID(r.ID); err != nil {
		return executor.Record{}, false, err
	}
	r.LastSeq, r.LogBytes, r.SpecBytes = 0, 0, r.Spec.Size()
	r.CreatedAt = r.CreatedAt.UTC().Round(0)
	raw, err := encodeHead(&storedHead{Record: r})
	if err != nil {
		return executor.Record{}, false, executor.Errorf(executor.Invalid, "the record cannot be stored: %w", err)
	}
	// What is kept is what was encoded: a copy, and the same as after a restart.
	head, spec, err := decodeHead(raw)
	if err != nil {
		return executor.Record{}, false, executor.Errorf(executor.Internal, "create %s: %w", r.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(ctx); err != nil {
		return executor.Record{}, false, err
	}
	if existing, err := s.byKey(head.Owner, head.Spec.IdempotencyKey); err != nil || existing != nil {
		if err != nil {
			return executor.Record{}, false, err
		}
		return existing.head.Clone(), false, nil
	}
	switch _, err := s.find(r.ID); executor.CodeOf(err) {
	case executor.NotFound, executor.Purged:
	case "":
		return executor.Record{}, false, executor.Errorf(executor.Conflict, "execution %s exists", r.ID)
	default:
		return executor.Record{}, false, err
	}
	lsn, err := s.write(opCreate, r.ID, raw)
	if err != nil {
		return executor.Record{}, false, err
	}
	s.create(head, spec, len(raw))
	if head.Spec.Durable {
		err = s.waitSynced(lsn)
	}
	return head.Clone(), true, err
}

// create adds an entry. The lock is held.
func (s *Store) create(head *storedHead, spec *executor.Spec, size int) {
	e := &entry{id: head.ID, head: head, spec: spec, headBytes: size}
	s.entries[e.id] = e
	if key := head.Spec.IdempotencyKey; key != "" {
		s.keys[string(ownerKey(head.Owner, key))] = e.id
	}
	s.touch(e)
}

// byKey returns the Execution that has an idempotency key, or nil. The lock is held.
func (s *Store) byKey(owner, key string) (*entry, error) {
	if key == "" {
		return nil, nil
	}
	id, ok := s.keys[string(ownerKey(owner, key))]
	if !ok {
		var err error
		if id, err = s.readKey(owner, key); err != nil {
			return nil, err
		}
	}
	if id == "" {
		return nil, nil
	}
	e, err := s.find(id)
	switch executor.CodeOf(err) {
	case "":
		// The id may have been deleted and given to another Execution before the key's removal reached bbolt.
		if e.head.Owner == owner && e.head.Spec.IdempotencyKey == key {
			return e, nil
		}
		return nil, nil
	case executor.NotFound, executor.Purged:
		return nil, nil
	default:
		return nil, err
	}
}

// Get implements executor.Store.
func (s *Store) Get(_ context.Context, id string) (executor.Record, error) {
	s.mu.Lock()
	e, err := s.find(id)
	if err != nil {
		s.mu.Unlock()
		return executor.Record{}, err
	}
	head := e.head
	s.mu.Unlock()
	return head.Clone(), nil
}

// Spec implements executor.Store.
func (s *Store) Spec(_ context.Context, id string) (executor.Spec, error) {
	s.mu.Lock()
	e, err := s.find(id)
	if err != nil {
		s.mu.Unlock()
		return executor.Spec{}, err
	}
	head, spec := e.head, e.spec
	if spec == nil && head.SpecBytes <= executor.BriefBytes {
		spec = &head.Spec
	}
	if spec != nil {
		s.mu.Unlock()
		return spec.Clone(), nil
	}
	// A transaction of this moment has it, and the lock is not held while a large one is read.
	tx, err := s.db.Begin(false)
	s.mu.Unlock()
	if err != nil {
		return executor.Spec{}, readError(err)
	}
	defer func() { _ = tx.Rollback() }() // a read transaction has nothing to lose
	whole, err := decodeSpec(tx.Bucket(bucketSpecs).Get([]byte(id)))
	return whole, readError(err)
}

// ByKey implements executor.Store.
func (s *Store) ByKey(_ context.Context, owner, key string) (executor.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return executor.Record{}, errClosed()
	}
	e, err := s.byKey(owner, key)
	if err == nil && e == nil {
		err = executor.Errorf(executor.NotFound, "no execution has that idempotency key")
	}
	if err != nil {
		return executor.Record{}, err
	}
	return e.head.Clone(), nil
}

// Update implements executor.Store. change is called once, with the Store locked: it must not call the Store.
func (s *Store) Update(ctx context.Context, id string, change func(*executor.Record)) (executor.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(ctx); err != nil {
		return executor.Record{}, err
	}
	e, err := s.find(id)
	if err != nil {
		return executor.Record{}, err
	}
	next := storedHead{Record: e.head.Clone(), LastEventTime: e.head.LastEventTime}
	change(&next.Record)
	next.KeepFolded(e.head.Record)
	raw, err := encodeHead(&next)
	if err != nil {
		return executor.Record{}, executor.Errorf(executor.Invalid, "the record cannot be stored: %w", err)
	}
	head, _, err := decodeHead(raw)
	if err != nil {
		return executor.Record{}, executor.Errorf(executor.Internal, "update %s: %w", id, err)
	}
	lsn, err := s.write(opUpdate, id, raw)
	if err != nil {
		return executor.Record{}, err
	}
	e.head = head
	s.touch(e)
	if head.Spec.Durable {
		err = s.waitSynced(lsn)
	}
	return head.Clone(), err
}

// Append implements executor.Store.
func (s *Store) Append(ctx context.Context, id string, events ...executor.Event) error {
	finished := false
	for i, e := range events {
		if err := e.Check(); err != nil {
			return err
		}
		if _, ok := e.Body.(executor.Finished); ok {
			if finished = true; i < len(events)-1 {
				return s.refuse(id)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(events) > 0 {
		if err := s.makeRoom(ctx); err != nil {
			return err
		}
	}
	e, err := s.find(id)
	if err != nil || len(events) == 0 {
		return err
	}
	if e.head.Status.Terminal() {
		return errFinished(id)
	}
	items := make([]item, len(events))
	var chunk []byte
	seq, last := e.head.LastSeq, e.head.LastEventTime
	for i, event := range events {
		seq, last = seq+1, now(last)
		event.Seq, event.Time = seq, last
		if items[i], err = newItem(event); err != nil {
			return err
		}
		chunk = appendBytes(chunk, items[i].raw)
	}
	lsn, err := s.write(opAppend, id, chunk)
	if err != nil {
		return err
	}
	s.apply(e, items)
	if finished && e.head.Spec.Durable {
		return s.waitSynced(lsn)
	}
	return nil
}

// refuse is the answer to Events behind a Finished: conflict, unless there is no such Execution.
func (s *Store) refuse(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find(id); err != nil {
		return err
	}
	return errFinished(id)
}

// Delete implements executor.Store.
func (s *Store) Delete(ctx context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	e, err := s.find(id)
	switch executor.CodeOf(err) {
	case "":
	case executor.NotFound, executor.Purged:
		return nil
	default:
		return err
	}
	if _, err := s.write(opDelete, id, nil); err != nil {
		return err
	}
	s.delete(e)
	return nil
}

func (s *Store) delete(e *entry) {
	e.deleted = true
	e.pending = nil
	if key := e.head.Spec.IdempotencyKey; key != "" {
		if at := string(ownerKey(e.head.Owner, key)); s.keys[at] == e.id {
			delete(s.keys, at)
		}
	}
	s.touch(e)
}

func checkID(id string) error {
	if id == "" || len(id) > maxIDBytes || strings.ContainsRune(id, 0) {
		return executor.FieldErrorf(executor.Invalid, "id", "must have 1 to %d bytes, none of them zero", maxIDBytes)
	}
	return nil
}

func errClosed() error { return executor.Errorf(executor.Unavailable, "the store is closed") }

func errPurged(id string) error {
	return executor.Errorf(executor.Purged, "execution %s was removed", id)
}

func errFinished(id string) error {
	return executor.Errorf(executor.Conflict, "execution %s has finished", id)
}
