package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// folder is what a Session has besides its interpreter: the tools and files of "ctx-1".
type folder struct {
	admit func(ctx context.Context, id string) error
	read  func(ctx context.Context) (io.ReadCloser, error)
	write func(ctx context.Context, size int64, r io.Reader) error
}

var (
	theVariables = []executor.Variable{{Name: "a", Type: "int", Preview: "1"}, {Name: "b", Type: "str"}}
	theFile      = executor.File{Path: "x/\xff.bin", SizeBytes: 3, Mode: 0o640}
	theFolder    = executor.File{Path: "x", Directory: true, Mode: 0o755}
)

func (f *folder) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	return theVariables, f.admit(ctx, id)
}

func (f *folder) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	if requirements != "attrs\n" {
		return nil, executor.FieldErrorf(executor.Invalid, "requirements_txt", "no %q", requirements)
	}
	return []string{"attrs==1"}, f.admit(ctx, id)
}

func (f *folder) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	if recursive {
		return []executor.File{theFolder, theFile}, f.admit(ctx, id)
	}
	return []executor.File{{Path: path}}, f.admit(ctx, id)
}

func (f *folder) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	if err := f.admit(ctx, id); err != nil {
		return executor.File{}, nil, err
	}
	file := theFile
	file.Path = path
	rc, err := f.read(ctx)
	return file, rc, err
}

func (f *folder) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	if err := f.admit(ctx, id); err != nil {
		return executor.File{}, err
	}
	if file.Mode != theFile.Mode && file.Mode != 0 || file.Directory != (r == nil) {
		return executor.File{}, executor.Errorf(executor.Invalid, "got %+v", file)
	}
	if file.Directory {
		return theFolder, nil
	}
	written := theFile
	written.Path = file.Path
	return written, f.write(ctx, file.SizeBytes, r)
}

func (f *folder) RemoveFile(ctx context.Context, id, path string) error {
	if path != theFile.Path {
		return executor.Errorf(executor.NotFound, "no %q", path)
	}
	return f.admit(ctx, id)
}

// sessionStub is a backend with sessions.
type sessionStub struct {
	stub
	*folder
	calls []string
}

var _ executor.SessionBackend = (*sessionStub)(nil)

var theOpened = executor.OpenedSession{
	Handle: []byte("handle\x00"), PythonVersion: "3.12.1", Requirements: []string{"attrs==1"}, ImageDigest: "sha256:1",
}

func (s *sessionStub) OpenSession(_ context.Context, session executor.Session) (executor.OpenedSession, error) {
	s.calls = append(s.calls, "open "+session.ID)
	return theOpened, nil
}

func (s *sessionStub) AdoptSession(_ context.Context, session executor.Session, handle []byte) (executor.OpenedSession, error) {
	s.calls = append(s.calls, "adopt "+session.ID)
	if !bytes.Equal(handle, theOpened.Handle) {
		return executor.OpenedSession{}, executor.Errorf(executor.NotFound, "gone")
	}
	return theOpened, nil
}

func (s *sessionStub) RestartSession(_ context.Context, id string, wipe bool) error {
	if wipe {
		id += " wiped"
	}
	s.calls = append(s.calls, "restart "+id)
	return nil
}

func (s *sessionStub) CloseSession(_ context.Context, id string) error {
	s.calls = append(s.calls, "close "+id)
	return nil
}

func TestSessionsOfABackendCross(t *testing.T) {
	t.Parallel()
	s := &sessionStub{}
	b, ok := plugintest.Wire(t, s).(executor.SessionBackend)
	if !ok {
		t.Fatal("no sessions")
	}
	opened, err := b.OpenSession(t.Context(), executor.Session{ID: "ctx-1"})
	if err != nil || !reflect.DeepEqual(opened, theOpened) {
		t.Errorf("open: %+v, %v", opened, err)
	}
	adopted, err := b.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, opened.Handle)
	if err != nil || !reflect.DeepEqual(adopted, theOpened) {
		t.Errorf("adopt: %+v, %v", adopted, err)
	}
	if _, err := b.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, nil); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("adopt without its handle: %v", err)
	}
	err = errors.Join(b.RestartSession(t.Context(), "ctx-1", false), b.RestartSession(t.Context(), "ctx-1", true), b.CloseSession(t.Context(), "ctx-1"))
	if err != nil {
		t.Error(err)
	}
	want := []string{"open ctx-1", "adopt ctx-1", "adopt ctx-1", "restart ctx-1", "restart ctx-1 wiped", "close ctx-1"}
	if !reflect.DeepEqual(s.calls, want) {
		t.Errorf("calls %q", s.calls)
	}
}

func TestABackendWithoutSessionsSaysSo(t *testing.T) {
	t.Parallel()
	b, _ := plugintest.Wire(t, &stub{}).(executor.SessionBackend)
	_, open := b.OpenSession(t.Context(), executor.Session{})
	_, adopt := b.AdoptSession(t.Context(), executor.Session{}, nil)
	_, variables := b.Variables(t.Context(), "ctx-1")
	_, requirements := b.AddRequirements(t.Context(), "ctx-1", "")
	_, list := b.ListFiles(t.Context(), "ctx-1", "", false)
	_, _, read := b.ReadFile(t.Context(), "ctx-1", "a")
	_, write := b.WriteFile(t.Context(), "ctx-1", executor.File{Path: "a", SizeBytes: -1}, strings.NewReader(""))
	for method, err := range map[string]error{
		"open": open, "adopt": adopt, "restart": b.RestartSession(t.Context(), "ctx-1", true), "close": b.CloseSession(t.Context(), "ctx-1"),
		"variables": variables, "add requirements": requirements,
		"list files": list, "read file": read, "write file": write, "remove file": b.RemoveFile(t.Context(), "ctx-1", "a"),
	} {
		if executor.CodeOf(err) != executor.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// bothWays gives do the folder f as a service's and as a backend's, at the far end of a wire.
func bothWays(t *testing.T, f *folder, do func(t *testing.T, ctx context.Context, tools toolsAndFiles)) {
	t.Helper()
	t.Run("service", func(t *testing.T) {
		t.Parallel()
		f := *f
		f.admit = func(ctx context.Context, id string) error { return ask(ctx, id, "ctx-1") }
		do(t, ada(t.Context()), plugintest.WireService(t, &service{t: t, folder: &f}))
	})
	t.Run("backend", func(t *testing.T) {
		t.Parallel()
		f := *f
		f.admit = func(_ context.Context, id string) error {
			if id != "ctx-1" {
				return executor.Errorf(executor.NotFound, "no %s", id)
			}
			return nil
		}
		b, _ := plugintest.Wire(t, &sessionStub{folder: &f}).(executor.SessionBackend)
		do(t, t.Context(), b)
	})
}

type toolsAndFiles interface {
	executor.SessionTools
	executor.SessionFiles
}

func TestTheToolsAndFilesOfASessionCross(t *testing.T) {
	t.Parallel()
	f := &folder{
		read:  func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abc")), nil },
		write: func(_ context.Context, _ int64, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
	}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		if got, err := tools.Variables(ctx, "ctx-1"); err != nil || !reflect.DeepEqual(got, theVariables) {
			t.Errorf("variables: %+v, %v", got, err)
		}
		if got, err := tools.AddRequirements(ctx, "ctx-1", "attrs\n"); err != nil || !reflect.DeepEqual(got, []string{"attrs==1"}) {
			t.Errorf("requirements: %q, %v", got, err)
		}
		_, err := tools.AddRequirements(ctx, "ctx-1", "nothing")
		if e, ok := errors.AsType[*executor.Error](err); !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "requirements_txt" {
			t.Errorf("requirements that cannot be had: %#v", err)
		}
		if got, err := tools.ListFiles(ctx, "ctx-1", "a\xff", false); err != nil || len(got) != 1 || got[0].Path != "a\xff" {
			t.Errorf("list: %+v, %v", got, err)
		}
		if got, err := tools.ListFiles(ctx, "ctx-1", "", true); err != nil || !reflect.DeepEqual(got, []executor.File{theFolder, theFile}) {
			t.Errorf("list all: %+v, %v", got, err)
		}
		if err := tools.RemoveFile(ctx, "ctx-1", theFile.Path); err != nil {
			t.Errorf("remove: %v", err)
		}
		if err := tools.RemoveFile(ctx, "ctx-1", "other"); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("remove what is not there: %v", err)
		}
		file, rc, err := tools.ReadFile(ctx, "ctx-1", theFile.Path)
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		content, err := io.ReadAll(rc)
		if file != theFile || string(content) != "abc" || errors.Join(err, rc.Close()) != nil {
			t.Errorf("read %+v with %q, %v", file, content, err)
		}
		if file, err := tools.WriteFile(ctx, "ctx-1", theFile, strings.NewReader("abc")); err != nil || file != theFile {
			t.Errorf("write: %+v, %v", file, err)
		}
		_, err = tools.Variables(ctx, "other")
		_, e2 := tools.ListFiles(ctx, "other", "", false)
		_, _, e3 := tools.ReadFile(ctx, "other", "a")
		_, e4 := tools.WriteFile(ctx, "other", executor.File{Path: "a", SizeBytes: -1}, strings.NewReader(""))
		for _, err := range []error{err, e2, e3, e4} {
			if executor.CodeOf(err) != executor.NotFound {
				t.Errorf("of another session: %v", err)
			}
		}
	})
}

func TestAFileCrossesInPiecesBothWays(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 256 << 10, 256<<10 + 1, 9 << 20} {
		f := &folder{
			read: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(patterned(size)), nil },
			write: func(_ context.Context, announced int64, r io.Reader) error {
				if got := digest(t, r); got != digest(t, patterned(size)) || announced != size {
					return executor.Errorf(executor.Internal, "got %s, announced as %d bytes", got, announced)
				}
				return nil
			},
		}
		bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
			_, rc, err := tools.ReadFile(ctx, "ctx-1", "a")
			if err != nil {
				t.Fatal(err)
			}
			if got := digest(t, rc); got != digest(t, patterned(size)) {
				t.Errorf("%d bytes came as %s", size, got)
			}
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
			if _, err := tools.WriteFile(ctx, "ctx-1", executor.File{Path: "a", SizeBytes: size}, patterned(size)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAFileWhoseReaderFailsIsNotWhole(t *testing.T) {
	t.Parallel()
	seen := make(chan error, 2)
	f := &folder{write: func(_ context.Context, _ int64, r io.Reader) error {
		n, err := io.Copy(io.Discard, r)
		if n != 3 {
			err = errors.Join(err, executor.Errorf(executor.Internal, "%d bytes", n))
		}
		seen <- err
		return err
	}}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		broken := executor.Errorf(executor.Exhausted, "the disk of the sender")
		_, err := tools.WriteFile(ctx, "ctx-1", executor.File{Path: "a", SizeBytes: -1}, io.MultiReader(strings.NewReader("abc"), iterReader(func([]byte) (int, error) {
			return 0, broken
		})))

		if !errors.Is(err, broken) {
			t.Errorf("the writer got %v, not the reader's own error", err)
		}
		if err := <-seen; executor.CodeOf(err) != executor.Exhausted {
			t.Errorf("the far end read %v", err)
		}
	})
}

func TestAWriterThatGoesAwayLeavesNoWholeFile(t *testing.T) {
	t.Parallel()
	seen := make(chan error, 2)
	f := &folder{write: func(_ context.Context, _ int64, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		seen <- err
		return err
	}}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		sent := int64(0)
		_, err := tools.WriteFile(ctx, "ctx-1", executor.File{Path: "a", SizeBytes: -1}, iterReader(func(b []byte) (int, error) {
			if sent += int64(len(b)); sent > 4<<20 {
				cancel(nil)
			}
			return len(b), nil
		}))

		if !errors.Is(err, context.Canceled) {
			t.Errorf("the writer got %v", err)
		}
		if err := <-seen; err == nil {
			t.Error("the far end took half a file for a whole one")
		}
	})
}

func TestAFileThatIsRefusedIsNotSentToItsEnd(t *testing.T) {
	t.Parallel()
	f := &folder{write: func(_ context.Context, _ int64, r io.Reader) error {
		_, err := io.CopyN(io.Discard, r, 1<<20)
		return errors.Join(err, executor.FieldErrorf(executor.Exhausted, "config.disk_mb", "full"))
	}}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		_, err := tools.WriteFile(ctx, "ctx-1", executor.File{Path: "a", SizeBytes: -1}, patterned(1<<60))
		e, ok := errors.AsType[*executor.Error](err)
		if !ok || e.Code != executor.Exhausted || len(e.Fields) != 1 || e.Fields[0].Field != "config.disk_mb" {
			t.Errorf("got %#v", err)
		}
	})
}

func TestAReaderOfAFileThatClosesEndsTheFarEnd(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 2)
	f := &folder{read: func(context.Context) (io.ReadCloser, error) {
		return &closing{Reader: patterned(1 << 60), closed: closed}, nil
	}}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		_, rc, err := tools.ReadFile(ctx, "ctx-1", "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, rc, 1<<20); err != nil {
			t.Error(err)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
		<-closed
	})
}

type closing struct {
	io.Reader
	closed chan struct{}
}

func (c *closing) Close() error {
	c.closed <- struct{}{}
	return nil
}

func TestTheEndOfAReadersCtxIsItsError(t *testing.T) {
	t.Parallel()
	f := &folder{read: func(ctx context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(patterned(5), iterReader(func([]byte) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}))), nil
	}}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		_, rc, err := tools.ReadFile(ctx, "ctx-1", "a")
		if err != nil {
			t.Fatal(err)
		}
		cancel(nil)
		if _, err := io.ReadAll(rc); !errors.Is(err, context.Canceled) {
			t.Errorf("read on to %v", err)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAFileThatFailsOnTheWaySaysWhy(t *testing.T) {
	t.Parallel()
	f := &folder{read: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(patterned(300<<10), iterReader(func([]byte) (int, error) {
			return 0, executor.Errorf(executor.Conflict, "closed meanwhile")
		}))), nil
	}}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		_, rc, err := tools.ReadFile(ctx, "ctx-1", "a")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, rc)
		if n != 300<<10 || executor.CodeOf(err) != executor.Conflict {
			t.Errorf("%d bytes, then %v", n, err)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	})
}
