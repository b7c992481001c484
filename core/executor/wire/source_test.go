package wire_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// patterned is n bytes that differ along the way.
func patterned(n int64) io.Reader {
	var at int64
	return iterReader(func(b []byte) (int, error) {
		if at >= n {
			return 0, io.EOF
		}
		b = b[:min(int64(len(b)), n-at, 10_007)]
		for i := range b {
			b[i] = byte((at + int64(i)) * 31 >> 3)
		}
		at += int64(len(b))
		return len(b), nil
	})
}

func digest(t *testing.T, r io.Reader) string {
	t.Helper()
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%d %x", n, h.Sum(nil))
}

// tracked counts openings and closings.
type tracked struct {
	opened, closed atomic.Int32
	make           func() (io.Reader, error)
}

func (s *tracked) source() *executor.Source {
	return &executor.Source{SizeBytes: -1, Replayable: true, Digest: "sha256:x", Open: func() (io.ReadCloser, error) {
		s.opened.Add(1)
		r, err := s.make()
		if err != nil {
			return nil, err
		}
		return &trackedReader{r, s}, nil
	}}
}

type trackedReader struct {
	io.Reader
	s *tracked
}

func (r *trackedReader) Close() error {
	r.s.closed.Add(1)
	if c, ok := r.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func readAll(t *testing.T, s *executor.Source) string {
	t.Helper()
	r, err := s.Open()
	if err != nil {
		t.Errorf("open: %v", err)
		return ""
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	return digest(t, r)
}

// runWith runs body as a backend that gets a job with these sources.
func runWith(t *testing.T, workspace, stdin *executor.Source, body func(job executor.Job) error) error {
	t.Helper()
	backend := plugintest.Wire(t, &stub{run: func(_ context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
		return succeeded, body(job)
	}})
	_, err := backend.Run(t.Context(), executor.Job{Workspace: workspace, Stdin: stdin}, &recorder{t: t})
	return err
}

func TestSourcesCrossByteForByte(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 256 << 10, 256<<10 + 1, 20 << 20} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			t.Parallel()
			workspace := &tracked{make: func() (io.Reader, error) { return patterned(size), nil }}
			stdin := &tracked{make: func() (io.Reader, error) { return patterned(size / 2), nil }}
			err := runWith(t, workspace.source(), stdin.source(), func(job executor.Job) error {
				if got := readAll(t, job.Workspace); got != digest(t, patterned(size)) {
					t.Errorf("workspace: %s", got)
				}
				if got := readAll(t, job.Stdin); got != digest(t, patterned(size/2)) {
					t.Errorf("stdin: %s", got)
				}
				// Replayable: once more.
				if got := readAll(t, job.Workspace); got != digest(t, patterned(size)) {
					t.Errorf("workspace again: %s", got)
				}
				if job.Workspace.Digest != "sha256:x" || job.Workspace.SizeBytes != -1 || !job.Workspace.Replayable {
					t.Errorf("announced %+v", job.Workspace)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if workspace.opened.Load() != 2 || workspace.closed.Load() != 2 || stdin.closed.Load() != 1 {
				t.Errorf("workspace opened %d closed %d, stdin closed %d", workspace.opened.Load(), workspace.closed.Load(), stdin.closed.Load())
			}
		})
	}
}

func TestASourceOfKnownSizeCrossesByteForByte(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 256<<10 - 1, 256 << 10} {
		for _, said := range []int64{size, 0} { // the size is only what the caller says
			stdin := &tracked{make: func() (io.Reader, error) { return patterned(size), nil }}
			source := stdin.source()
			source.SizeBytes = said
			if err := runWith(t, source, source, func(job executor.Job) error {
				want := digest(t, patterned(size))
				if got := readAll(t, job.Workspace); got != want {
					t.Errorf("workspace of %d bytes, said to have %d: %s", size, said, got)
				}
				if got := readAll(t, job.Stdin); got != want {
					t.Errorf("stdin of %d bytes, said to have %d: %s", size, said, got)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestASourceThatNobodyReadsIsNotOpened(t *testing.T) {
	t.Parallel()
	workspace := &tracked{make: func() (io.Reader, error) { return strings.NewReader("x"), nil }}
	if err := runWith(t, workspace.source(), nil, func(job executor.Job) error {
		if job.Stdin != nil {
			t.Error("stdin that is nil came as one that is not")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if workspace.opened.Load() != 0 {
		t.Error("it was opened")
	}
}

func TestABackendThatStopsReadingHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	bodies := map[string]func(r io.ReadCloser) error{
		"and closes":   func(r io.ReadCloser) error { return r.Close() },
		"and does not": func(io.ReadCloser) error { return nil },
		"after some, fails": func(r io.ReadCloser) error {
			_, err := io.CopyN(io.Discard, r, 3<<20)
			return errors.Join(err, io.ErrShortBuffer)
		},
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endless := &tracked{make: func() (io.Reader, error) { return patterned(1 << 60), nil }}
			err := runWith(t, endless.source(), nil, func(job executor.Job) error {
				r, err := job.Workspace.Open()
				if err != nil {
					return err
				}
				return body(r)
			})
			if (err != nil) != (name == "after some, fails") {
				t.Error(err)
			}
			if endless.opened.Load() != endless.closed.Load() {
				t.Error("it was not closed")
			}
		})
	}
}

func TestASourceThatDeliversNothingHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	silent, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	source := &tracked{make: func() (io.Reader, error) { return silent, nil }}
	if err := runWith(t, source.source(), nil, func(job executor.Job) error {
		r, err := job.Workspace.Open()
		if err != nil {
			return err
		}
		return r.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

func TestStdinArrivesAsItIsWritten(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	source := &tracked{make: func() (io.Reader, error) { return reader, nil }}
	if err := runWith(t, nil, source.source(), func(job executor.Job) error {
		r, err := job.Stdin.Open()
		if err != nil {
			return err
		}
		for _, want := range []string{"a", "bc"} {
			go func() { _, _ = writer.Write([]byte(want)) }()
			got := make([]byte, len(want))
			// The next is written only when this one has arrived: no chunk waits to be full.
			if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
				t.Errorf("got %q, %v", got, err)
			}
		}
		_ = writer.Close()
		_, err = r.Read(make([]byte, 1))
		if !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		return r.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

func TestASourceThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	cases := map[string]*tracked{
		"to open": {make: func() (io.Reader, error) { return nil, executor.Errorf(executor.Purged, "blob is gone") }},
		"to read": {make: func() (io.Reader, error) {
			return io.MultiReader(strings.NewReader("abc"), iterReader(func([]byte) (int, error) {
				return 0, executor.Errorf(executor.Purged, "blob is gone")
			})), nil
		}},
	}
	for name, source := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := runWith(t, source.source(), nil, func(job executor.Job) error {
				r, err := job.Workspace.Open()
				if err != nil {
					return err
				}
				got, err := io.ReadAll(r)
				if name == "to read" && !bytes.Equal(got, []byte("abc")) {
					t.Errorf("read %q before the error", got)
				}
				return err
			})
			if executor.CodeOf(err) != executor.Purged || !strings.Contains(err.Error(), "blob is gone") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestALocalFileCrossesAsAPathWhereTheBackendSharesOurFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "w.tar")
	if err := os.WriteFile(path, []byte("tar"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprintf("local_path %t", local), func(t *testing.T) {
			t.Parallel()
			file := &tracked{make: func() (io.Reader, error) { return strings.NewReader("tar"), nil }}
			source := file.source()
			source.Path = path
			stdin := *source
			backend := plugintest.Wire(t, &stub{
				info: func(context.Context) (executor.Info, error) {
					return executor.Info{Capabilities: executor.Capabilities{LocalPath: local}}, nil
				},
				run: func(_ context.Context, job executor.Job, _ executor.Sink) (executor.Result, error) {
					if (job.Workspace.Path == path) != local || (job.Stdin.Path == path) != local {
						t.Errorf("paths %q and %q", job.Workspace.Path, job.Stdin.Path)
					}
					if got := readAll(t, job.Workspace); got != digest(t, strings.NewReader("tar")) {
						t.Errorf("content %s", got)
					}
					return succeeded, nil
				},
			})
			for range 2 {
				if _, err := backend.Run(t.Context(), executor.Job{Workspace: source, Stdin: &stdin}, &recorder{t: t}); err != nil {
					t.Fatal(err)
				}
			}
			if opened := file.opened.Load() == 2; opened == local {
				t.Errorf("streamed: %t", opened)
			}
		})
	}
}

func TestASourceThatIsClosedEarlyIsClosedWhereItIs(t *testing.T) {
	t.Parallel()
	s := &tracked{make: func() (io.Reader, error) { return patterned(1 << 40), nil }}
	err := runWith(t, s.source(), nil, func(job executor.Job) error {
		r, err := job.Workspace.Open()
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
			return err
		}
		if err := r.Close(); err != nil {
			return err
		}
		awaittest.Until(t, "the close of the source while the call goes on", func() bool { return s.closed.Load() > 0 })
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
