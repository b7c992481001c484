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

// writeOutput writes data at the end of e's file. What an Append wrote there before and failed to commit is overwritten.
func (s *Store) writeOutput(e *entry, data []byte) error {
	f, err := os.OpenFile(outputPath(s.path, e.n), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return s.writeError(err)
	}
	_, err = f.WriteAt(data, e.fileBytes)
	if err = errors.Join(err, f.Close()); err != nil {
		return s.writeError(err)
	}
	return nil
}

// readOutput returns k with its Data, which lies in the file of Execution n. If the file does not have the data any
// more, as after a power failure, a Progress that says so takes the place of the Output.
func (s *Store) readOutput(n int64, k kept) (executor.Event, error) {
	event, data := k.event, make([]byte, k.size)
	f, err := os.Open(outputPath(s.path, n))
	if err == nil {
		_, err = f.ReadAt(data, k.fileAt)
		err = errors.Join(err, f.Close())
	}
	o, _ := event.Body.(executor.Output)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF):
		event.Body = executor.Progress{Phase: executor.PhaseRun, Message: fmt.Sprintf("%d bytes of %s are lost: the server's disk does not have them", k.size, o.Stream)}
	case err != nil:
		return event, err
	default:
		o.Data = data
		event.Body = o
	}
	return event, nil
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
	err := syncPath(outputPath(s.path, n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncPath(outputDir(s.path)) // its name
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
