package httpfrontend

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
)

// spool keeps a byte stream that cannot be passed on yet. Up to a bound it keeps the bytes in memory, beyond it in a file. The
// file's name is removed before the first byte is written, so that a crash leaves no file.
type spool struct {
	mem   []byte
	file  *os.File
	size  int64
	limit int
	dir   string
	sum   hash.Hash
}

func newSpool(dir string, memory int) *spool {
	return &spool{limit: memory, dir: dir, sum: sha256.New()}
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && len(s.mem)+len(p) > s.limit {
		file, err := os.CreateTemp(s.dir, "upload-*")
		if err != nil {
			return 0, spoolError(err)
		}
		s.file = file
		if err := os.Remove(file.Name()); err != nil {
			return 0, spoolError(err)
		}
		if _, err := file.Write(s.mem); err != nil {
			return 0, spoolError(err)
		}
		s.mem = nil
	}
	s.sum.Write(p)
	s.size += int64(len(p))
	if s.file == nil {
		s.mem = append(s.mem, p...)
		return len(p), nil
	}
	n, err := s.file.Write(p)
	if err != nil {
		return n, spoolError(err)
	}
	return n, nil
}

// spoolError gives a failed write its code: unavailable for a full disk, because a later attempt may succeed.
func spoolError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return &executor.Error{Code: executor.Unavailable, Message: "no disk space for the upload: try again", Err: err}
	}
	return fmt.Errorf("spool an upload: %w", err)
}

// source returns the written bytes as a Source that is valid until close.
func (s *spool) source() *executor.Source {
	return &executor.Source{
		Open:       func() (io.ReadCloser, error) { return io.NopCloser(s.reader()), nil },
		Digest:     "sha256:" + hex.EncodeToString(s.sum.Sum(nil)),
		SizeBytes:  s.size,
		Replayable: true,
	}
}

func (s *spool) reader() io.Reader {
	if s.file != nil {
		return io.NewSectionReader(s.file, 0, s.size)
	}
	return bytes.NewReader(s.mem)
}

// close closes the file. Idempotent; it does nothing for the nil spool.
func (s *spool) close() {
	if s != nil && s.file != nil {
		_ = s.file.Close() // the file has no name, so an error loses nothing
		s.file = nil
	}
}

// textSource is a Source of bytes in memory.
func textSource(data []byte) *executor.Source {
	sum := sha256.Sum256(data)
	return &executor.Source{
		Open:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		Digest:     "sha256:" + hex.EncodeToString(sum[:]),
		SizeBytes:  int64(len(data)),
		Replayable: true,
	}
}
