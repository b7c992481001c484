package sessions

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// useFiles begins a file operation in s; done ends it. The files of a lost Session can be reached as long as its sandbox is there.
func (s *Session) useFiles() (done func(), err error) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.closed != nil {
		return nil, s.refusalLocked()
	}
	s.files++
	s.armLocked()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.files--
		s.usedLocked()
		s.armLocked()
	}), nil
}

// useSandbox calls f, a file operation in s, for at most limit.
func useSandbox[T any](ctx context.Context, s *Session, doing string, limit time.Duration, f func(context.Context, executor.SessionBackend) (T, error)) (T, error) {
	var none T
	done, err := s.useFiles()
	if err != nil {
		return none, err
	}
	defer done()
	got, err := inSandbox(ctx, s, doing+" of "+s.ID, limit, f)
	if err != nil {
		return none, s.explain(doing, err)
	}
	return got, nil
}

// ListFiles lists a folder of s.
func (s *Session) ListFiles(ctx context.Context, path string, recursive bool) ([]executor.File, error) {
	return useSandbox(ctx, s, "list the files", s.registry.options.Stop, func(ctx context.Context, b executor.SessionBackend) ([]executor.File, error) {
		return b.ListFiles(ctx, s.ID, path, recursive)
	})
}

// ReadFile opens a file of s. The reader ends with ctx.
func (s *Session) ReadFile(ctx context.Context, path string) (executor.File, io.ReadCloser, error) {
	done, err := s.useFiles()
	if err != nil {
		return executor.File{}, nil, err
	}
	// The reader lives longer than the call that opens it, so its ctx does, too.
	work, stop := context.WithCancelCause(ctx)
	end := func() {
		stop(nil)
		done()
	}
	type opened struct {
		file   executor.File
		reader io.ReadCloser
	}
	got, err := inSandbox(ctx, s, "read a file of "+s.ID, s.registry.options.Stop, func(_ context.Context, b executor.SessionBackend) (opened, error) {
		file, reader, err := b.ReadFile(work, s.ID, path)
		return opened{file, reader}, err
	})
	if err != nil {
		end()
		return executor.File{}, nil, s.explain("read a file", err)
	}
	return got.file, &fileReader{got.reader, end}, nil
}

// fileReader ends its file operation when it is closed.
type fileReader struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (r *fileReader) Close() error {
	defer r.end()
	return r.ReadCloser.Close()
}

// WriteFile writes a file of s. It reads no more than Rules.MaxFileBytes. Another reader must not use r before r's own Read has
// returned, which may be after WriteFile has.
func (s *Session) WriteFile(ctx context.Context, file executor.File, r io.Reader) (executor.File, error) {
	s.registry.mu.Lock()
	limit := s.registry.options.Rules.MaxFileBytes
	s.registry.mu.Unlock()
	if limit > 0 {
		r = &boundedReader{r: r, left: limit, limit: limit}
	}
	// A second attempt is possible as long as nothing was read.
	first := &firstRead{r: r}
	return useSandbox(ctx, s, "write a file", s.registry.options.Upload, func(ctx context.Context, b executor.SessionBackend) (executor.File, error) {
		switch {
		case limit > 0 && file.SizeBytes > limit:
			return executor.File{}, errTooLarge(limit)
		case first.read.Load():
			return executor.File{}, executor.Errorf(executor.Unavailable, "the backend lost the session while the file was written")
		}
		return b.WriteFile(ctx, s.ID, file, first)
	})
}

// RemoveFile removes a file or a folder of s.
func (s *Session) RemoveFile(ctx context.Context, path string) error {
	_, err := useSandbox(ctx, s, "remove a file", s.registry.options.Stop, func(ctx context.Context, b executor.SessionBackend) (struct{}, error) {
		return struct{}{}, b.RemoveFile(ctx, s.ID, path)
	})
	return err
}

func errTooLarge(limit int64) error {
	return executor.FieldErrorf(executor.Exhausted, "file", "is larger than %d bytes", limit)
}

// boundedReader fails where more than limit bytes come.
type boundedReader struct {
	r           io.Reader
	left, limit int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge(b.limit)
	}
	return n, err
}

// firstRead notes whether anything was read.
type firstRead struct {
	r    io.Reader
	read atomic.Bool
}

// Read implements io.Reader.
func (f *firstRead) Read(p []byte) (int, error) {
	f.read.Store(true)
	return f.r.Read(p)
}
