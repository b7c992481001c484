package boltstore

import (
	"context"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/python-executor/python-executor/core/executor"
)

// List implements executor.Store. It goes down the index from the newest id, or from f.After, until the page is full;
// only the heads of the page are read.
func (s *Store) List(ctx context.Context, f executor.Filter) ([]executor.Record, error) {
	page := f.NewPage()
	fresh, known, tx, err := s.snapshot(f)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // a read transaction has nothing to lose
	heads, cursor := tx.Bucket(bucketHeads), tx.Bucket(bucketIndex).Cursor()
	var id, value []byte
	if f.After == "" {
		id, value = cursor.Last()
	} else if id, _ = cursor.Seek([]byte(f.After)); id == nil {
		id, value = cursor.Last()
	} else {
		id, value = cursor.Prev()
	}
	for full := false; !full && (id != nil || len(fresh) > 0); {
		switch {
		case len(fresh) > 0 && fresh[0].ID > string(id):
			full = page.Add(fresh[0].Record)
			fresh = fresh[1:]
			continue
		case !known[string(id)] && matchesIndex(value, f):
			head, _, err := decodeHead(heads.Get(id))
			if err != nil {
				return nil, executor.Errorf(executor.Internal, "list: %s: %w", id, err)
			}
			full = page.Add(head.Record)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id, value = cursor.Prev()
	}
	return page.Records, nil
}

// snapshot returns the heads in memory that f selects, newest first; the ids of all entries in memory;
// and a transaction on bbolt of the same moment, in which entries that memory does not have are.
func (s *Store) snapshot(f executor.Filter) (fresh []*storedHead, known map[string]bool, tx *bolt.Tx, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, nil, errClosed()
	}
	known = make(map[string]bool, len(s.entries))
	for id, e := range s.entries {
		known[id] = true
		if !e.deleted && (f.After == "" || id < f.After) && matches(f, e.head.Owner, e.head.Status) {
			fresh = append(fresh, e.head)
		}
	}
	slices.SortFunc(fresh, func(a, b *storedHead) int { return strings.Compare(b.ID, a.ID) })
	tx, err = s.db.Begin(false)
	return fresh[:min(len(fresh), f.PageSize())], known, tx, readError(err)
}
