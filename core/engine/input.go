package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// streamed is an input that goes from the caller straight to the backend. It knows when all of it was consumed, which
// is when Submit may return, and cuts the caller's streams off once Submit has returned.
type streamed struct {
	// consumed is closed when every part was read to its end or given up.
	consumed chan struct{}
	parts    []*part

	mu sync.Mutex
	// left counts the parts that are not consumed.
	left int
	// cut: Submit has returned, the caller's streams must not be touched any more.
	cut bool
	// opened: the input cannot be given to another attempt.
	opened bool
	err    error
}

// part is one Source of a streamed input.
type part struct {
	input *streamed
	src   *executor.Source
	field string
	hash  hash.Hash // nil: nobody wants the digest
	whole bool      // read to its end
	done  bool
}

// stream wraps in for a run that starts now. hashed: the digests of what is read are wanted.
func stream(in executor.Input, hashed bool) (s *streamed, workspace, stdin *executor.Source) {
	s = &streamed{consumed: make(chan struct{})}
	wrap := func(src *executor.Source, field string) *executor.Source {
		p := &part{input: s, src: src, field: field}
		s.parts = append(s.parts, p)
		if src == nil {
			p.done = true
			return nil
		}
		if hashed && src.Digest == "" {
			p.hash = sha256.New()
		}
		s.left++
		// Without Path: a backend that opened the file itself would not tell when it is done with it.
		return &executor.Source{Open: p.open, Digest: src.Digest, SizeBytes: src.SizeBytes}
	}
	workspace, stdin = wrap(in.Workspace, fieldTar), wrap(in.Stdin, fieldStdin)
	if s.left == 0 {
		close(s.consumed)
	}
	return s, workspace, stdin
}

// The fields that name an input in an error.
const (
	fieldTar   = "tar"
	fieldStdin = "stdin"
)

func (p *part) open() (io.ReadCloser, error) {
	s := p.input
	s.mu.Lock()
	if s.cut || p.done {
		s.mu.Unlock()
		return nil, executor.Errorf(executor.Unavailable, "the caller of this input is gone")
	}
	s.opened = true
	s.mu.Unlock()
	r, err := guard(p.src.Open)
	if err != nil {
		p.finish(err)
		return nil, err
	}
	return &partReader{part: p, r: r}, nil
}

// finish notes that p is consumed; err says how it broke.
func (p *part) finish(err error) {
	s := p.input
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.err == nil && !s.cut {
		s.err = inputError(p.field, err)
	}
	if p.done {
		return
	}
	p.done = true
	if s.left--; s.left == 0 {
		close(s.consumed)
	}
}

// wasOpened reports whether any of the input may have been read.
func (s *streamed) wasOpened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (s *streamed) isConsumed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left == 0
}

// failure is why the input could not be read; nil if it could.
func (s *streamed) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// close cuts the caller's streams off.
func (s *streamed) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
}

func (s *streamed) isCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// digests are the parts of a SpecDigest, known now that the input is consumed.
func (s *streamed) digests() (workspace, stdin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := func(p *part) string {
		if p.hash != nil && p.whole {
			return "sha256:" + hex.EncodeToString(p.hash.Sum(nil))
		}
		return sourceDigest(p.src)
	}
	return digest(s.parts[0]), digest(s.parts[1])
}

// partReader reads a part for the backend. Once the end is reached the caller's stream is closed, before the part
// counts as consumed: Submit's return gives the stream back.
type partReader struct {
	part *part
	r    io.ReadCloser
	once sync.Once

	mu  sync.Mutex
	err error // of every later Read
}

// Read implements io.Reader. Close may be called meanwhile.
func (r *partReader) Read(b []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	if r.part.input.isCut() {
		return 0, r.fail(executor.Errorf(executor.Unavailable, "the caller of this input is gone"))
	}
	// Whoever reads here may be a goroutine of the backend, which nobody guards.
	n, err := guard(func() (int, error) { return r.r.Read(b) })
	if r.part.hash != nil {
		_, _ = r.part.hash.Write(b[:n]) // never fails
	}
	if err == nil {
		return n, nil
	}
	_ = r.fail(err)
	if errors.Is(err, io.EOF) {
		r.part.markWhole()
		r.end(nil)
	} else {
		r.end(err)
	}
	return n, err
}

func (r *partReader) ended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// fail makes every later Read return err, unless there is a reason already. It returns the reason.
func (r *partReader) fail(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	return r.err
}

func (p *part) markWhole() {
	p.input.mu.Lock()
	defer p.input.mu.Unlock()
	p.whole = true
}

func (r *partReader) end(err error) {
	r.once.Do(func() {
		if !r.part.input.isCut() {
			_ = r.r.Close() // nothing is lost by a stream that does not close well after it was read
		}
		r.part.finish(err)
	})
}

// Close implements io.Closer.
func (r *partReader) Close() error {
	r.end(nil)
	_ = r.fail(errors.New("read after Close"))
	return nil
}

// inputError is what a caller gets whose input cannot be read: its own typed error, else invalid.
func inputError(field string, err error) error {
	if typed, ok := errors.AsType[*executor.Error](err); ok {
		return typed
	}
	if _, panicked := errors.AsType[*panicError](err); panicked {
		return &executor.Error{Code: executor.Internal, Message: "internal error", Err: err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return executor.Errorf(executor.Unavailable, "%s: the upload ended early: %w", field, err)
	}
	e := executor.FieldErrorf(executor.Invalid, field, "cannot be read: %v", err)
	e.Err = err
	return e
}
