package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/python-executor/python-executor/core/executor"
)

// The buckets. The keys of heads, index and purged are ids, which sort by time.
var (
	bucketMeta   = []byte("meta")   // format, applied
	bucketHeads  = []byte("heads")  // id → storedHead as JSON, its Spec in brief
	bucketSpecs  = []byte("specs")  // id → the whole Spec as JSON, where the head has not all of it
	bucketIndex  = []byte("index")  // id → status and owner
	bucketKeys   = []byte("keys")   // owner and idempotency key → id
	bucketEvents = []byte("events") // id, 0, first Seq → chunk
	bucketPurged = []byte("purged") // id → nothing
	// Session id → executor.SessionRecord as JSON
	bucketSessions = []byte("sessions")

	keyFormat  = []byte("format")
	keyApplied = []byte("applied")
)

const (
	// format is what this version writes. In format1 every head holds its whole Spec; such heads are read as they are.
	format  = "python-executor 2"
	format1 = "python-executor 1"
	// chunkBytes is about how much a chunk holds; one larger Event is a chunk of its own.
	chunkBytes = 64 << 10
	// maxPurged bounds how many deleted ids are remembered; the oldest go first.
	maxPurged = 10_000
)

// prepare makes the buckets and returns the lsn up to which the write-ahead log is in bbolt.
func (s *Store) prepare() (applied uint64, err error) {
	err = s.db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketMeta, bucketHeads, bucketSpecs, bucketIndex, bucketKeys, bucketEvents, bucketPurged, bucketSessions} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		switch found := meta.Get(keyFormat); {
		case found == nil || string(found) == format1:
			if err := meta.Put(keyFormat, []byte(format)); err != nil {
				return err
			}
		case string(found) != format:
			return fmt.Errorf("its format is %q, this version reads %q", found, format)
		}
		if raw := meta.Get(keyApplied); len(raw) == 8 {
			applied = binary.BigEndian.Uint64(raw)
		}
		if err := s.loadSessions(tx.Bucket(bucketSessions)); err != nil {
			return err
		}
		return tx.Bucket(bucketPurged).ForEach(func(_, _ []byte) error {
			s.purged++
			return nil
		})
	})
	return applied, err
}

// readHead reads an entry from bbolt. Codes: not_found, purged.
func (s *Store) readHead(id string) (e *entry, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		raw := tx.Bucket(bucketHeads).Get([]byte(id))
		if raw == nil {
			if id != "" && tx.Bucket(bucketPurged).Get([]byte(id)) != nil {
				return errPurged(id)
			}
			return executor.Errorf(executor.NotFound, "no execution has the id %s", id)
		}
		head, spec, err := decodeHead(raw)
		e = &entry{id: id, head: head, spec: spec, headBytes: len(raw)}
		return err
	})
	return e, readError(err)
}

// readKey returns the id that an idempotency key has in bbolt; empty: none.
func (s *Store) readKey(owner, key string) (id string, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		id = string(tx.Bucket(bucketKeys).Get(ownerKey(owner, key)))
		return nil
	})
	return id, readError(err)
}

// readEvents returns some Events from Seq first on: those of one chunk. None: they are not in bbolt (any more).
func (s *Store) readEvents(id string, first uint64) (items []item, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		cursor := tx.Bucket(bucketEvents).Cursor()
		// The chunk that holds first is the last one that does not begin behind it.
		key, value := cursor.Seek(eventKey(id, first))
		if seq, ok := seqOf(key, id); !ok || seq != first {
			if key == nil {
				key, value = cursor.Last()
			} else {
				key, value = cursor.Prev()
			}
		}
		if _, ok := seqOf(key, id); !ok {
			return nil
		}
		var err error
		items, err = decodeChunk(bytes.Clone(value)) // value is gone when this transaction is
		return err
	})
	for len(items) > 0 && items[0].event.Seq < first {
		items = items[1:]
	}
	return items, readError(err)
}

func readError(err error) error {
	if _, ok := errors.AsType[*executor.Error](err); ok || err == nil {
		return err
	}
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return errClosed()
	}
	return executor.Errorf(executor.Internal, "read the store: %w", err)
}

// job is what a checkpoint writes of one entry, as it was when the checkpoint began.
type job struct {
	entry   *entry
	head    *storedHead
	spec    *executor.Spec
	deleted bool
	items   []item
	// size is head's on disk.
	size int
}

// batch is what a checkpoint writes: the entries, the Sessions (nil: deleted), and the lsn up to which bbolt has it all then.
type batch struct {
	jobs     []*job
	sessions map[string]*executor.SessionRecord
	applied  uint64
}

// flush writes work into bbolt.
func (s *Store) flush(work batch) error {
	purged := 0
	err := s.db.Update(func(tx *bolt.Tx) error {
		t := tables{
			heads: tx.Bucket(bucketHeads), specs: tx.Bucket(bucketSpecs), index: tx.Bucket(bucketIndex), keys: tx.Bucket(bucketKeys),
			events: tx.Bucket(bucketEvents), purged: tx.Bucket(bucketPurged), purgedCount: s.purged,
		}
		// Deletions first: an id or a key that was deleted may have been given again.
		for _, j := range work.jobs {
			if j.deleted {
				if err := t.remove(j); err != nil {
					return err
				}
			}
		}
		for _, j := range work.jobs {
			if !j.deleted {
				if err := t.put(j); err != nil {
					return err
				}
			}
		}
		if err := t.forget(); err != nil {
			return err
		}
		if err := flushSessions(tx.Bucket(bucketSessions), work.sessions); err != nil {
			return err
		}
		purged = t.purgedCount
		return tx.Bucket(bucketMeta).Put(keyApplied, binary.BigEndian.AppendUint64(nil, work.applied))
	})
	if err == nil {
		s.purged = purged
	}
	return err
}

// tables are the buckets in one transaction.
type tables struct {
	heads, specs, index, keys, events, purged *bolt.Bucket
	purgedCount                               int
}

func (t *tables) put(j *job) error {
	id := []byte(j.entry.id)
	raw, err := encodeHead(j.head)
	if err != nil {
		return err
	}
	j.size = len(raw)
	errs := []error{t.heads.Put(id, raw), t.index.Put(id, indexValue(j.head))}
	if j.spec != nil {
		spec, err := encodeSpec(j.spec)
		if err != nil {
			return err
		}
		errs = append(errs, t.specs.Put(id, spec))
	}
	if key := j.head.Spec.IdempotencyKey; key != "" {
		errs = append(errs, t.keys.Put(ownerKey(j.head.Owner, key), id))
	}
	if t.purged.Get(id) != nil {
		t.purgedCount--
		errs = append(errs, t.purged.Delete(id))
	}
	for items := j.items; len(items) > 0; {
		first := items[0].event.Seq
		var chunk []byte
		for len(items) > 0 && (chunk == nil || len(chunk)+len(items[0].raw) <= chunkBytes) {
			chunk = appendBytes(chunk, items[0].raw)
			items = items[1:]
		}
		errs = append(errs, t.events.Put(eventKey(j.entry.id, first), chunk))
	}
	return errors.Join(errs...)
}

func (t *tables) remove(j *job) error {
	id := []byte(j.entry.id)
	errs := []error{t.heads.Delete(id), t.specs.Delete(id), t.index.Delete(id)}
	if key := j.head.Spec.IdempotencyKey; key != "" {
		at := ownerKey(j.head.Owner, key)
		if bytes.Equal(t.keys.Get(at), id) {
			errs = append(errs, t.keys.Delete(at))
		}
	}
	cursor := t.events.Cursor()
	prefix := eventPrefix(j.entry.id)
	// Seek again each time: a cursor that deletes skips its next key.
	for key, _ := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = cursor.Seek(prefix) {
		if err := cursor.Delete(); err != nil {
			return err
		}
	}
	if t.purged.Get(id) == nil {
		t.purgedCount++
		errs = append(errs, t.purged.Put(id, []byte{}))
	}
	return errors.Join(errs...)
}

// forget drops the oldest deleted ids beyond maxPurged.
func (t *tables) forget() error {
	for t.purgedCount > maxPurged {
		id, _ := t.purged.Cursor().First()
		if err := t.purged.Delete(id); err != nil {
			return err
		}
		t.purgedCount--
	}
	return nil
}
