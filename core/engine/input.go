package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"sync"

	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
)

// streamed is an input that goes from the caller straight to the backend. Submit returns when all of it is consumed; after that the
// caller's streams are not touched any more.
type streamed struct {
	// consumed is closed when every part was read to its end or closed.
	consumed chan struct{}
	parts    []*part

	mu sync.Mutex
	// left counts the parts that are not consumed.
	left int
	// cut: Submit has returned, so the caller's streams must not be touched.
	cut bool
	// opened: a part was opened, so there is no input for another attempt.
	opened bool
	err    error
}

// part is one Source of a streamed input.
type part struct {
	input *streamed
	src   *executor.Source
	field string
	hash  hash.Hash // nil: the digest is known or not needed
	whole bool      // read to its end
	done  bool
}

// stream wraps in for a run that starts now. hashed: digests are computed while the input is read.
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
		// Without Path: of a file that the backend opens itself, the Engine does not see the end.
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

var errInputGone error = executor.Errorf(executor.Unavailable, "the caller of this input is gone")

func (p *part) open() (io.ReadCloser, error) {
	s := p.input
	s.mu.Lock()
	if s.cut || p.done {
		s.mu.Unlock()
		return nil, errInputGone
	}
	s.opened = true
	s.mu.Unlock()
	r, err := calls.Guard(p.src.Open)
	if err != nil {
		p.finish(err)
		return nil, err
	}
	return &partReader{part: p, r: r}, nil
}

// finish notes that p is consumed. err is the error of the caller's stream, if it had one.
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

// failure is the error with which the caller's stream broke; nil if it did not.
func (s *streamed) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// close makes later reads of the caller's streams fail.
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

// digests returns the parts of the SpecDigest about the input, which is consumed.
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

// partReader reads a part for the backend. At its end the caller's stream is closed before the part counts as consumed, because Submit then
// returns.
type partReader struct {
	part *part
	r    io.ReadCloser
	once sync.Once
	err  error // of every later Read; guarded by the lock of the input
}

// Read implements io.Reader. Close may be called meanwhile.
func (r *partReader) Read(b []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	// Guarded here, because the caller may be a goroutine of the backend.
	n, err := calls.Guard(func() (int, error) { return r.r.Read(b) })
	if r.part.hash != nil {
		_, _ = r.part.hash.Write(b[:n]) // never fails
	}
	if err == nil {
		return n, nil
	}
	r.fail(err)
	if errors.Is(err, io.EOF) {
		r.end(nil)
	} else {
		r.end(err)
	}
	return n, err
}

// ended returns the reason why nothing more is read; nil if there is none.
func (r *partReader) ended() error {
	s := r.part.input
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.err == nil && s.cut {
		r.err = errInputGone
	}
	return r.err
}

// fail makes every later Read return err, unless one has failed before. At io.EOF the part is whole.
func (r *partReader) fail(err error) {
	s := r.part.input
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	if errors.Is(err, io.EOF) {
		r.part.whole = true
	}
}

func (r *partReader) end(err error) {
	r.once.Do(func() {
		if !r.part.input.isCut() {
			_ = r.r.Close() // the stream was read, so an error of its Close loses nothing
		}
		r.part.finish(err)
	})
}

// Close implements io.Closer.
func (r *partReader) Close() error {
	r.end(nil)
	r.fail(errors.New("read after Close"))
	return nil
}

// inputError returns the error for a caller whose input cannot be read: the stream's own typed error, else invalid.
func inputError(field string, err error) error {
	if typed, ok := errors.AsType[*executor.Error](err); ok {
		return typed
	}
	if _, panicked := errors.AsType[*calls.PanicError](err); panicked {
		return &executor.Error{Code: executor.Internal, Message: "internal error", Err: err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return executor.Errorf(executor.Unavailable, "%s: the upload ended early: %w", field, err)
	}
	e := executor.FieldErrorf(executor.Invalid, field, "cannot be read: %v", err)
	e.Err = err
	return e
}
