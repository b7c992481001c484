package backendtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// entry is an entry of a Workspace's tar.
type entry struct {
	name string
	text string
	mode int64 // 0 = 0644
	kind byte  // 0 = a regular file
	link string
}

// archive returns a tar with these entries.
func archive(entries ...entry) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Typeflag: e.kind, Linkname: e.link}
		if e.mode == 0 {
			h.Mode = 0o644
		}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
			h.Size = int64(len(e.text))
		}
		if h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock {
			h.Devmajor, h.Devminor = 1, 3
		}
		if err := errors.Join(w.WriteHeader(h), writeAll(w, e.text)); err != nil {
			panic(err) // the suite's own table is wrong
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func writeAll(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// source checks how a Backend uses a Source (BE-92).
type source struct {
	c     *Case
	what  string
	open  func() io.ReadCloser
	after *source // must have been read to its end before this one is opened

	mu     sync.Mutex
	opened int
	closed int
	ended  bool
}

// workspace makes these bytes the Workspace of job.
func (c *Case) workspace(job *executor.Job, tar []byte) {
	job.Workspace = c.source("workspace", nil, func() io.ReadCloser { return io.NopCloser(bytes.NewReader(tar)) })
}

// stdin makes these bytes the standard input of job.
func (c *Case) stdin(job *executor.Job, data []byte) {
	job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) })
}

// source returns a Source that can be opened once.
func (c *Case) source(what string, after *source, open func() io.ReadCloser) *executor.Source {
	s := &source{c: c, what: what, open: open, after: after}
	c.Cleanup(s.verdict)
	return s.source()
}

func (s *source) source() *executor.Source {
	return &executor.Source{Open: s.Open, SizeBytes: -1}
}

// Open implements executor.Source.
func (s *source) Open() (io.ReadCloser, error) {
	s.mu.Lock()
	s.opened++
	n := s.opened
	s.mu.Unlock()
	if n > 1 {
		s.c.suite.violate("BE-92", "%s: %s was opened %d times and is not replayable", s.c.rule.ID, s.what, n)
		return nil, errors.New("the source cannot be opened again")
	}
	if s.after != nil && !s.after.wasRead() {
		s.c.suite.violate("BE-92", "%s: %s was opened before %s had been read to its end", s.c.rule.ID, s.what, s.after.what)
	}
	r := &reader{ReadCloser: s.open(), source: s}
	if _, ok := r.ReadCloser.(executor.FileStream); ok {
		return fileReader{r}, nil
	}
	return r, nil
}

func (s *source) wasRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// verdict checks the use of the Source at the end of the case.
func (s *source) verdict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened > 0 && s.closed == 0 {
		s.c.suite.violate("BE-92", "%s: %s was opened and not closed", s.c.rule.ID, s.what)
	}
}

type reader struct {
	io.ReadCloser
	source *source
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		r.source.mu.Lock()
		r.source.ended = true
		r.source.mu.Unlock()
	}
	return n, err
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.source.mu.Lock()
	r.source.closed++
	r.source.mu.Unlock()
	return r.ReadCloser.Close()
}

// fileReader is the reader of an executor.FileStream.
type fileReader struct{ *reader }

// TakeFile implements executor.FileStream.
func (r fileReader) TakeFile() *os.File {
	return r.ReadCloser.(executor.FileStream).TakeFile() //nolint:forcetypeassert // Open has looked
}

// endless is a reader that returns zeros until it is closed.
type endless struct{ closed chan struct{} }

func newEndless() *endless { return &endless{make(chan struct{})} }

// Read implements io.Reader.
func (e *endless) Read(p []byte) (int, error) {
	select {
	case <-e.closed:
		return 0, io.ErrClosedPipe
	default:
		clear(p)
		return len(p), nil
	}
}

// Close implements io.Closer.
func (e *endless) Close() error {
	close(e.closed)
	return nil
}
