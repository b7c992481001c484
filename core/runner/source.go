package runner

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// SourceReader reads a Source, which it opens at the first Read. So stdin is opened only after the Workspace was read to its
// end. Close ends a Read that blocks, as far as the Source's own Close does.
type SourceReader struct {
	from *executor.Source

	mu     sync.Mutex
	r      io.ReadCloser
	err    error
	closed bool
}

// NewSourceReader returns a SourceReader of from, which may be nil.
func NewSourceReader(from *executor.Source) *SourceReader { return &SourceReader{from: from} }

// Reader returns s, or nil without a Source.
func (s *SourceReader) Reader() io.Reader {
	if s.from == nil {
		return nil
	}
	return s
}

// Opened reports whether s has tried to open the Source. Until then another attempt may read it.
func (s *SourceReader) Opened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r != nil || s.err != nil
}

// Read implements io.Reader. Only one goroutine reads.
func (s *SourceReader) Read(p []byte) (int, error) {
	s.mu.Lock()
	r, err, closed := s.r, s.err, s.closed
	s.mu.Unlock()
	if r == nil && err == nil && !closed {
		r, err = s.open()
	}
	if err != nil {
		return 0, err
	}
	if r == nil {
		return 0, io.ErrClosedPipe
	}
	return r.Read(p)
}

// TakeFile implements executor.FileStream, so that the runner reads a file or a socket itself.
func (s *SourceReader) TakeFile() *os.File {
	s.mu.Lock()
	r, err, closed := s.r, s.err, s.closed
	s.mu.Unlock()
	if r == nil && err == nil && !closed {
		r, _ = s.open() // Read says why not
	}
	if stream, ok := r.(executor.FileStream); ok {
		return stream.TakeFile()
	}
	return nil
}

// open opens the Source without holding the lock, so that Close does not wait. If Close comes meanwhile, open closes what it
// has opened.
func (s *SourceReader) open() (io.ReadCloser, error) {
	r, err := s.from.Open()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.closed {
		return nil, errors.Join(io.ErrClosedPipe, r.Close())
	}
	s.r, s.err = r, err
	return r, err
}

// Close implements io.Closer.
func (s *SourceReader) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.r == nil {
		return nil
	}
	return s.r.Close()
}
