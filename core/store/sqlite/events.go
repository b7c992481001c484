package sqlitestore

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

// row is a row of the table events: some Events, one JSON document behind the other, or a single Output whose Data lies in
// the Execution's file.
type row struct {
	// seq is the number of the first Event.
	seq  uint64
	json []byte
	// size is the length of Data from fileAt on in the Execution's file; 0: all Data is in json.
	fileAt int64
	size   int
}

// add adds event to the events and rows of a change. Large Data goes to the end of e's file.
func (s *Store) add(e *entry, c *change, event executor.Event) (err error) {
	next := row{seq: event.Seq}
	if isLarge(event) {
		o := event.Body.(executor.Output) //nolint:forcetypeassert // isLarge has looked
		if err := s.writeOutput(e, o.Data); err != nil {
			return err
		}
		next.fileAt, next.size = e.fileBytes, len(o.Data)
		e.fileBytes += int64(len(o.Data))
		o.Data = nil
		event.Body = o
	}
	if next.json, err = event.MarshalJSON(); err != nil {
		return errNotStored(err)
	}
	c.rows = append(c.rows, next)
	c.events = append(c.events, kept{event, next.fileAt, next.size})
	return nil
}

// isLarge reports whether event is an Output whose Data goes to the Execution's file.
func isLarge(event executor.Event) bool {
	o, ok := event.Body.(executor.Output)
	return ok && len(o.Data) > maxInlineBytes
}

// joined returns rows with those that have no Data in the file made one with the row before.
func joined(rows []row) (fewer []row) {
	own := false // whether the JSON of the last one is not that of rows
	for _, r := range rows {
		last := len(fewer) - 1
		if last < 0 || fewer[last].size > 0 || r.size > 0 {
			fewer, own = append(fewer, r), false
			continue
		}
		if !own {
			fewer[last].json, own = slices.Clip(fewer[last].json), true
		}
		fewer[last].json = append(fewer[last].json, r.json...)
	}
	return fewer
}

// decode returns the Events of r. Data that lies in a file is missing.
func (r row) decode() (events []executor.Event, err error) {
	for d := json.NewDecoder(bytes.NewReader(r.json)); ; {
		var event executor.Event
		if err := d.Decode(&event); errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
}

// selectRows has the rows of an Execution from the one on that holds an Event.
const selectRows = `
SELECT seq, body, file_at, size FROM events
WHERE n = ?1 AND seq >= coalesce((SELECT max(seq) FROM events WHERE n = ?1 AND seq <= ?2), ?2) ORDER BY seq LIMIT ?3`

// readRows reads up to limit rows, from the one on that holds Event from. dbLock is held.
func (s *Store) readRows(n int64, from uint64, limit int) (found []row, err error) {
	err = s.query(func(rows *sql.Rows) error {
		var r row
		err := rows.Scan(&r.seq, &r.json, &r.fileAt, &r.size)
		found = append(found, r)
		return err
	}, selectRows, n, int64(from), limit)
	if err == nil && (len(found) == 0 || found[0].seq > from) {
		first := row{seq: 1}
		_, err = s.one("SELECT log FROM executions WHERE n = ?", []any{n}, []any{&first.json})
		found = slices.Insert(found, 0, first)
	}
	return found, err
}

// readEvents returns some Events from Seq first on.
func (s *Store) readEvents(n int64, first uint64) (events []kept, err error) {
	s.dbLock.Lock()
	rows, err := s.readRows(n, first, maxBatchRows)
	s.dbLock.Unlock()
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		some, err := r.decode()
		if err != nil {
			return nil, s.readError(err)
		}
		for _, event := range some {
			if event.Seq >= first {
				events = append(events, kept{event, r.fileAt, r.size})
			}
		}
	}
	return events, nil
}

// foldEvents brings the head of an Execution that has not ended up to its log: the head in the database is of its last
// Update. If a power failure took the end of its output, the log ends before that. dbLock is held.
func (s *Store) foldEvents(e *entry) error {
	var err error
	if e.fileBytes, err = s.outputSize(e.n); err != nil {
		return err
	}
	var lost sql.NullInt64
	_, err = s.one("SELECT min(seq) FROM events WHERE n = ? AND size > 0 AND file_at + size > ?", []any{e.n, e.fileBytes}, []any{&lost})
	if err != nil {
		return err
	}
	if lost.Valid {
		s.log.Warn("the end of an execution's output was lost, as after a power failure; its log goes on from before it",
			"execution", e.id, "event", lost.Int64)
		if err := s.exec("DELETE FROM events WHERE n = ? AND seq >= ?", e.n, lost.Int64); err != nil {
			return s.writeError(err)
		}
	}
	rows, err := s.readRows(e.n, e.head.LastSeq+1, -1)
	if err != nil {
		return err
	}
	for _, r := range rows {
		events, err := r.decode()
		if err != nil {
			return s.readError(err)
		}
		for _, event := range events {
			if event.Seq <= e.head.LastSeq {
				continue
			}
			if o, ok := event.Body.(executor.Output); ok && r.size > 0 {
				o.Offset += int64(r.size) // Data was not read, and only its end counts.
				event.Body = o
				e.head.LogBytes += int64(r.size)
			}
			e.head.add(event)
		}
	}
	return nil
}

func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, errNotStored(err)
	}
	return raw, nil
}

func errNotStored(err error) error {
	return executor.Errorf(executor.Invalid, "cannot be stored: %w", err)
}
