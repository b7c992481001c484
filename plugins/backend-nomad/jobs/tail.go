package jobs

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// tail reads a file of an allocation while it grows, across broken connections and restarts of servers and nodes. It ends with io.EOF
// when the allocation is over and the file was read to its end. A file that does not exist then, or is on a lost node, ends where it is.
type tail struct {
	ctx     context.Context //nolint:containedctx // io.Reader has none
	cluster *cluster
	alloc   string
	path    string
	offset  int64
	// life ends when the allocation is over.
	life context.Context //nolint:containedctx // it is the allocation's
	// patience is how long the file may be out of reach. It is longer than Nomad waits for a node.
	patience time.Duration

	body io.ReadCloser
	last bool // body has all that the file will ever have
	stop func()
}

// Read implements io.Reader. Codes: unavailable (Nomad is away for longer than patience), or the cause of ctx.
func (t *tail) Read(p []byte) (int, error) {
	since := time.Now()
	for attempt := 0; ; attempt++ {
		err := t.open()
		if err == nil {
			var n int
			n, err = t.body.Read(p)
			t.offset += int64(n)
			if n > 0 {
				return n, nil
			}
			t.close()
			if t.last && errors.Is(err, io.EOF) {
				if err = t.whole(); err == nil {
					return 0, io.EOF
				}
			}
		}
		ended := t.life.Err() != nil
		switch {
		case t.ctx.Err() != nil:
			return 0, context.Cause(t.ctx)
		case errors.Is(err, errChanged):
			return 0, executor.Errorf(executor.Unavailable, "read %s: %w", t.path, err)
		case ended && missing(err), errors.Is(context.Cause(t.life), errLost) && temporary(err):
			return 0, io.EOF
		case err != nil && !missing(err) && !temporary(err) && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled):
			return 0, refusal("read "+t.path, err)
		case time.Since(since) > t.patience:
			return 0, refusal("read "+t.path, err)
		}
		if ended && !t.last {
			t.last = true
			attempt = -1
			continue // at once, and to the end
		}
		wait, cancel := context.WithCancelCause(t.ctx)
		free := context.AfterFunc(t.life, func() {
			if !ended {
				cancel(errOver)
			}
		})
		_ = t.cluster.pause(wait, min(attempt, 2)) // the runner makes the file when it starts
		free()
		cancel(nil)
		if t.ctx.Err() != nil {
			return 0, context.Cause(t.ctx)
		}
	}
}

// whole returns nil if the file was read to its end.
func (t *tail) whole() error {
	size, err := t.cluster.size(t.ctx, t.alloc, t.path)
	if err == nil && t.offset < size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// open makes sure that there is a body.
func (t *tail) open() (err error) {
	if t.body != nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(t.ctx)
	t.stop = func() { cancel(nil) }
	if t.last = t.last || t.life.Err() != nil; !t.last {
		free := context.AfterFunc(t.life, func() { cancel(errOver) })
		t.stop = func() { free(); cancel(nil) }
	}
	if t.body, err = t.cluster.open(ctx, t.alloc, t.path, t.offset, !t.last); err != nil {
		t.body = nil
		t.stop()
	}
	return err
}

// close ends the connection.
func (t *tail) close() {
	if t.body != nil {
		_ = t.body.Close() // read only
		t.body = nil
		t.stop()
	}
}

// missing reports whether err says that a node has no such file or allocation, or not yet.
func missing(err error) bool {
	code, body := answer(err)
	body = strings.ToLower(body)
	return code != 0 && (strings.Contains(body, "no such file") || strings.Contains(body, "unknown allocation") || strings.Contains(body, "not found"))
}

// part reads a part of a file of an allocation that is whole, across broken connections.
type part struct {
	ctx          context.Context //nolint:containedctx // io.Reader has none
	cluster      *cluster
	alloc, path  string
	offset, left int64
	body         io.ReadCloser
}

// Read implements io.Reader.
func (s *part) Read(p []byte) (n int, err error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), s.left)]
	err = s.cluster.retry(s.ctx, func(context.Context) (err error) {
		if s.body == nil {
			if s.body, err = s.cluster.open(s.ctx, s.alloc, s.path, s.offset, false); err != nil {
				s.body = nil
				return err
			}
		}
		if n, err = s.body.Read(p); n > 0 {
			return nil
		}
		s.Close()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	s.offset += int64(n)
	s.left -= int64(n)
	if err != nil {
		err = refusal("read "+s.path, err)
	}
	return n, err
}

// Close ends the connection.
func (s *part) Close() {
	if s.body != nil {
		_ = s.body.Close() // read only
		s.body = nil
	}
}
