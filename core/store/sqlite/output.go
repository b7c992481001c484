package sqlitestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/python-executor/python-executor/core/executor"
)

// maxInlineBytes is the longest Output that lies in the database. SQLite writes each of its pages twice, a file only once.
const maxInlineBytes = 4 << 10

func outputDir(path string) string { return path + ".output" }

func outputPath(path string, n int64) string {
	return filepath.Join(outputDir(path), strconv.FormatInt(n, 10))
}

// openOutput returns the file of e, which stays open while e may be written to or is in use. create reports whether a missing file
// is made. e is locked.
func (s *Store) openOutput(e *entry, create bool) (f *os.File, err error) {
	if e.output != nil {
		return e.output, nil
	}
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	if f, err = os.OpenFile(outputPath(s.path, e.n), flags, 0o600); err == nil {
		e.output = f
	}
	return f, err
}

// closeOutput closes the file of e if it is open. e is locked.
func (e *entry) closeOutput() {
	if e.output != nil {
		_ = e.output.Close() // what must be on disk was synced
		e.output = nil
	}
}

// writeOutput writes data at the end of e's file. What an Append wrote there before and failed to commit is overwritten.
func (s *Store) writeOutput(e *entry, data []byte) error {
	f, err := s.openOutput(e, true)
	if err == nil {
		_, err = f.WriteAt(data, e.fileBytes)
	}
	if err != nil {
		return s.writeError(err)
	}
	return nil
}

// outputReader reads the large Outputs of an entry for one follower.
type outputReader struct {
	store *Store
	entry *entry
	// again reports whether the Data of one Output may be overwritten by that of the next. buffer has it then.
	again  bool
	buffer []byte
}

// read returns k with its Data, which lies in the file of the Execution. If the file does not have the data any more, as after a
// power failure, a Progress that says so takes the place of the Output. The entry is not locked.
func (r *outputReader) read(k kept) (executor.Event, error) {
	r.entry.mu.Lock()
	f, err := r.store.openOutput(r.entry, false)
	r.entry.mu.Unlock()
	data := r.room(k.size)
	if err == nil {
		_, err = f.ReadAt(data, k.fileAt)
	}
	event := k.event
	o, _ := event.Body.(executor.Output)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF):
		event.Body = executor.Progress{Phase: executor.PhaseRun, Message: fmt.Sprintf("%d bytes of %s are lost: the server's disk does not have them", k.size, o.Stream)}
	case err != nil:
		return event, r.store.readError(err)
	default:
		o.Data = data
		event.Body = o
	}
	return event, nil
}

// room returns n bytes for the Data of an Output.
func (r *outputReader) room(n int) []byte {
	if !r.again {
		return make([]byte, n)
	}
	if n > len(r.buffer) {
		r.buffer = make([]byte, max(n, min(2*n, executor.MaxOutputData)))
	}
	return r.buffer[:n:n]
}

// outputSize returns the size of Execution n's file, 0 if it has none.
func (s *Store) outputSize(n int64) (int64, error) {
	info, err := os.Stat(outputPath(s.path, n))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, s.readError(err)
	}
	return info.Size(), nil
}

// syncOutput brings the file of Execution n to disk, if it has one.
func (s *Store) syncOutput(n int64) error {
	err := s.sync(outputPath(s.path, n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.sync(outputDir(s.path)) // its name
	}
	if err != nil {
		return s.writeError(err)
	}
	return nil
}

func (s *Store) removeOutput(n int64) error {
	if err := os.Remove(outputPath(s.path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return executor.Errorf(executor.Internal, "remove an execution's output: %w", err)
	}
	return nil
}

// removeStrayOutput removes the files of Executions that are gone, as a kill within Delete leaves them.
func (s *Store) removeStrayOutput() error {
	files, err := os.ReadDir(outputDir(s.path))
	if err != nil {
		return err
	}
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	for _, file := range files {
		n, err := strconv.ParseInt(file.Name(), 10, 64)
		if err != nil {
			continue
		}
		found, err := s.one("SELECT 1 FROM executions WHERE n = ?", []any{n}, []any{new(int)})
		if err == nil && !found {
			err = s.removeOutput(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
