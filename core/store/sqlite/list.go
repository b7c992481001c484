package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

// selectPage has the newest Executions before an id, of an owner or of all, with the values of ended in a JSON array or with
// any.
const selectPage = `
SELECT id, iif(ended = '', NULL, head) FROM executions
WHERE id < ?1 AND (?2 = '' OR owner = ?2) AND (?3 = '[]' OR ended IN (SELECT value FROM json_each(?3)))
ORDER BY id DESC LIMIT ?4`

// listed is an Execution in the database. head is JSON, and nil if the Execution has not ended.
type listed struct {
	id   string
	head []byte
}

// List implements executor.Store. An index has what f asks for, but for the status of Executions that have not ended.
func (s *Store) List(ctx context.Context, f executor.Filter) ([]executor.Record, error) {
	s.saveAll()
	page, limit := f.NewPage(), f.PageSize()
	after := cmp.Or(f.After, string(utf8.MaxRune))
	values := make([]string, len(f.Statuses))
	for i, status := range f.Statuses {
		values[i] = ended(status)
	}
	statuses, err := encode(values)
	if err != nil {
		return nil, err
	}
	for {
		var found []listed
		s.dbLock.Lock()
		err := s.query(func(rows *sql.Rows) error {
			var x listed
			err := rows.Scan(&x.id, &x.head)
			found = append(found, x)
			return err
		}, selectPage, after, f.Owner, string(statuses), limit)
		s.dbLock.Unlock()
		for _, x := range found {
			h, err := s.headOf(x)
			if err = cmp.Or(ctx.Err(), err); err != nil {
				return nil, err
			}
			if h != nil && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, h.Status)) && page.Add(h.Record) {
				return page.Records, nil
			}
			after = x.id
		}
		if err != nil || len(found) < limit {
			return page.Records, err
		}
	}
}

// headOf returns the head of x, nil if x was deleted meanwhile.
func (s *Store) headOf(x listed) (*head, error) {
	if x.head != nil {
		h := &head{}
		if err := json.Unmarshal(x.head, h); err != nil {
			return nil, executor.Errorf(executor.Internal, "damaged record %s: %w", x.id, err)
		}
		return h, nil
	}
	e, err := s.find(x.id)
	if err != nil {
		if executor.CodeOf(err) == executor.Purged {
			err = nil
		}
		return nil, err
	}
	defer s.unlock(e)
	return e.head, nil
}
