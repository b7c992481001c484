package httpfrontend

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

const testSession = "ctx-6f1c0a3e-8f0b-4c1d-9b1e-2f6f8b6f0a11"

// memorySessions is the session part of a Service, in memory: one Session, testSession, with its files. fail, if set,
// answers everything.
type memorySessions struct {
	fail error

	mu    sync.Mutex
	asked executor.Session
	s     executor.Session
	wiped bool
	files map[string]string
	added string
}

func newMemorySessions() *memorySessions {
	return &memorySessions{files: map[string]string{"a b.txt": "text"}, s: executor.Session{ID: testSession, Owner: executor.LocalOwner, Name: "one",
		Language: executor.LanguagePython, Backend: "fake", Status: executor.SessionActive, CreatedAt: t0}}
}

func (m *memorySessions) one(id string) (executor.Session, error) {
	if m.fail != nil {
		return executor.Session{}, m.fail
	}
	if id != testSession {
		return executor.Session{}, executor.FieldErrorf(executor.NotFound, "session", "no session has the id %s", id)
	}
	return m.s, nil
}

func (m *memorySessions) OpenSession(_ context.Context, s executor.Session) (executor.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = s
	return m.one(testSession)
}

func (m *memorySessions) GetSession(_ context.Context, id string) (executor.Session, error) {
	return m.one(id)
}

func (m *memorySessions) ListSessions(context.Context) ([]executor.Session, error) {
	s, err := m.one(testSession)
	return []executor.Session{s}, err
}

func (m *memorySessions) InterruptSession(_ context.Context, id string) (executor.Session, error) {
	return m.one(id)
}

func (m *memorySessions) RestartSession(_ context.Context, id string, wipe bool) (executor.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wiped = wipe
	return m.one(id)
}

func (m *memorySessions) CloseSession(_ context.Context, id string) (executor.Session, error) {
	s, err := m.one(id)
	s.Status = executor.SessionClosed
	return s, err
}

func (m *memorySessions) Variables(_ context.Context, id string) ([]executor.Variable, error) {
	_, err := m.one(id)
	return []executor.Variable{{Name: "x", Type: "int", Preview: "100"}}, err
}

func (m *memorySessions) AddRequirements(_ context.Context, id, requirements string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.added = requirements
	_, err := m.one(id)
	return []string{"idna==3.10"}, err
}

func (m *memorySessions) ListFiles(_ context.Context, id, path string, recursive bool) ([]executor.File, error) {
	if _, err := m.one(id); err != nil {
		return nil, err
	}
	if path == "none" {
		return nil, executor.FieldErrorf(executor.NotFound, "path", "there is no such folder")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []executor.File
	for name, text := range m.files {
		if recursive || !strings.Contains(name, "/") {
			list = append(list, executor.File{Path: name, SizeBytes: int64(len(text)), Mode: 0o644, ModTime: t0})
		}
	}
	slices.SortFunc(list, func(a, b executor.File) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

func (m *memorySessions) ReadFile(_ context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	if _, err := m.one(id); err != nil {
		return executor.File{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.files[path]
	if !ok {
		return executor.File{}, nil, executor.Errorf(executor.NotFound, "there is no such file")
	}
	return executor.File{Path: path, SizeBytes: int64(len(text)), Mode: 0o755, ModTime: t0}, io.NopCloser(strings.NewReader(text)), nil
}

func (m *memorySessions) WriteFile(_ context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	if _, err := m.one(id); err != nil {
		return executor.File{}, err
	}
	if file.Directory {
		return executor.File{Path: file.Path, Directory: true, Mode: 0o755, ModTime: t0}, nil
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return executor.File{}, executor.Errorf(executor.Internal, "the upload broke: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[file.Path] = string(data)
	return executor.File{Path: file.Path, SizeBytes: int64(len(data)), Mode: cmp.Or(file.Mode, 0o644), ModTime: t0}, nil
}

func (m *memorySessions) RemoveFile(_ context.Context, id, path string) error {
	if _, err := m.one(id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[path]; !ok {
		return executor.Errorf(executor.NotFound, "there is no such file")
	}
	delete(m.files, path)
	return nil
}
