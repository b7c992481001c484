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

func (f *folder) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	if err := f.admit(ctx, id); err != nil {
		return executor.File{}, err
	}
	file := theFile
	file.Path = path
	return file, f.write(ctx, size, r)
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
	_, write := b.WriteFile(t.Context(), "ctx-1", "a", -1, strings.NewReader(""))
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
