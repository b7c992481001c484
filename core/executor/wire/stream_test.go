package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// runStreamed runs body as a backend that shares our files, so that a workspace comes over a socket in dir.
func runStreamed(ctx context.Context, t *testing.T, dir string, workspace *executor.Source, body func(context.Context, executor.Job) error) error {
	t.Helper()
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) {
		wire.RegisterBackend(s, &stub{
			run: func(ctx context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
				return succeeded, body(ctx, job)
			},
		})
	})
	_, err := wire.NewBackend(conn, func() string { return dir }, nil).Run(ctx, executor.Job{Workspace: workspace}, &recorder{t: t})
	if left, readErr := os.ReadDir(dir); readErr == nil && len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
	return err
}

// socketDir is short: a socket's name has 108 bytes.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ws")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// taken is what r's descriptor has, and then r's own end.
func taken(t *testing.T, r io.ReadCloser) (content string, end error) {
	t.Helper()
	stream, ok := r.(executor.FileStream)
	if !ok {
		t.Fatalf("%T has no descriptor", r)
	}
	f := stream.TakeFile()
	if f == nil || stream.TakeFile() != nil {
		t.Fatal("not exactly one descriptor")
	}
	content = digest(t, f)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	n, end := r.Read(make([]byte, 1))
	if n > 0 {
		t.Error("the content is there twice")
	}
	return content, end
}

func TestAStreamedWorkspaceCrossesByteForByte(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 256<<10 + 1, 20 << 20} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			t.Parallel()
			source := &tracked{make: func() (io.Reader, error) { return patterned(size), nil }}
			want := digest(t, patterned(size))
			dir := socketDir(t)
			err := runStreamed(t.Context(), t, dir, source.source(), func(_ context.Context, job executor.Job) error {
				if got := readAll(t, job.Workspace); got != want {
					t.Errorf("streamed: %s", got)
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("after the one connection the socket has a name: %v, %v", left, err)
				}
				// The second opening of a replayable source comes in messages.
				if got := readAll(t, job.Workspace); got != want {
					t.Errorf("again: %s", got)
				}
				return nil
			})
			if err != nil || source.opened.Load() != 2 || source.closed.Load() != 2 {
				t.Errorf("%v, opened %d, closed %d", err, source.opened.Load(), source.closed.Load())
			}
		})
	}
}

func TestAStreamThatNobodyConnectsToLeavesNoName(t *testing.T) {
	t.Parallel()
	source := &tracked{make: func() (io.Reader, error) { return patterned(5 << 20), nil }}
	dir := socketDir(t)
	err := runStreamed(t.Context(), t, dir, source.source(), func(context.Context, executor.Job) error {
		if made, err := os.ReadDir(dir); err != nil || len(made) != 1 {
			t.Errorf("offered: %v, %v", made, err)
		}
		return nil
	})
	if left, readErr := os.ReadDir(dir); err != nil || readErr != nil || len(left) > 0 || source.opened.Load() != 0 {
		t.Errorf("left: %v, %v, %v, opened %d", left, err, readErr, source.opened.Load())
	}
}

func TestTheDescriptorOfAStreamHasItsBytes(t *testing.T) {
	t.Parallel()
	const size = 5 << 20
	source := &tracked{make: func() (io.Reader, error) { return patterned(size), nil }}
	err := runStreamed(t.Context(), t, socketDir(t), source.source(), func(_ context.Context, job executor.Job) error {
		r, err := job.Workspace.Open()
		if err != nil {
			return err
		}
		if got, end := taken(t, r); got != digest(t, patterned(size)) || !errors.Is(end, io.EOF) {
			t.Errorf("got %s and %v", got, end)
		}
		return r.Close()
	})
	if err != nil || source.closed.Load() != 1 {
		t.Error(err, source.closed.Load())
	}
}

func TestWhyAStreamBrokeIsSaid(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*testing.T, io.ReadCloser) error{
		"to its reader":                   func(_ *testing.T, r io.ReadCloser) error { _, err := io.Copy(io.Discard, r); return err },
		"to who passed its descriptor on": func(t *testing.T, r io.ReadCloser) error { _, err := taken(t, r); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &tracked{make: func() (io.Reader, error) {
				return io.MultiReader(patterned(3<<20), iterReader(func([]byte) (int, error) {
					return 0, executor.FieldErrorf(executor.Invalid, "tar", "the upload broke off")
				})), nil
			}}
			err := runStreamed(t.Context(), t, socketDir(t), source.source(), func(_ context.Context, job executor.Job) error {
				r, err := job.Workspace.Open()
				if err != nil {
					return err
				}
				return errors.Join(read(t, r), r.Close())
			})
			if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "broke off") || source.closed.Load() != 1 {
				t.Errorf("%v, closed %d", err, source.closed.Load())
			}
		})
	}
}

func TestAStreamThatNobodyReadsToItsEndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func(context.Context, io.ReadCloser) error{
		"closed":             func(_ context.Context, r io.ReadCloser) error { return r.Close() },
		"forgotten":          func(context.Context, io.ReadCloser) error { return nil },
		"read in part":       func(_ context.Context, r io.ReadCloser) error { _, err := io.CopyN(io.Discard, r, 3<<20); return err },
		"taken, then closed": func(_ context.Context, r io.ReadCloser) error { return r.(executor.FileStream).TakeFile().Close() }, //nolint:forcetypeassert // a test
		"cancelled":          func(ctx context.Context, r io.ReadCloser) error { <-ctx.Done(); return r.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			endless := &tracked{make: func() (io.Reader, error) { return patterned(1 << 60), nil }}
			err := runStreamed(ctx, t, socketDir(t), endless.source(), func(ctx context.Context, job executor.Job) error {
				r, err := job.Workspace.Open()
				if err != nil {
					return err
				}
				if name == "cancelled" {
					cancel(nil)
				}
				return body(ctx, r)
			})
			if err != nil || endless.opened.Load() != endless.closed.Load() {
				t.Errorf("%v, opened %d, closed %d", err, endless.opened.Load(), endless.closed.Load())
			}
		})
	}
}

func TestASilentStreamEndsWithItsReader(t *testing.T) {
	t.Parallel()
	silent, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	source := &tracked{make: func() (io.Reader, error) { return silent, nil }}
	if err := runStreamed(t.Context(), t, socketDir(t), source.source(), func(_ context.Context, job executor.Job) error {
		r, err := job.Workspace.Open()
		if err != nil {
			return err
		}
		return r.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutASocketMessagesDo(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"a name that is too long": "/tmp/" + strings.Repeat("x", 108), "no folder": "/nowhere", "none shared": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &tracked{make: func() (io.Reader, error) { return patterned(3 << 20), nil }}
			err := runStreamed(t.Context(), t, dir, source.source(), func(_ context.Context, job executor.Job) error {
				r, err := job.Workspace.Open()
				if err != nil {
					return err
				}
				if r.(executor.FileStream).TakeFile() != nil { //nolint:forcetypeassert // a test
					t.Error("a descriptor out of nowhere")
				}
				if got := digest(t, r); got != digest(t, patterned(3<<20)) {
					t.Errorf("got %s", got)
				}
				return r.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAFileGivesItsDescriptor(t *testing.T) {
	t.Parallel()
	path := socketDir(t) + "/tar"
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := &executor.Source{Path: path, SizeBytes: 7, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
	if err := runStreamed(t.Context(), t, "/nowhere", source, func(_ context.Context, job executor.Job) error {
		r, err := job.Workspace.Open()
		if err != nil {
			return err
		}
		if got, end := taken(t, r); got != digest(t, strings.NewReader("content")) || !errors.Is(end, io.EOF) {
			t.Errorf("got %s and %v", got, end)
		}
		return r.Close()
	}); err != nil {
		t.Fatal(err)
	}
}
