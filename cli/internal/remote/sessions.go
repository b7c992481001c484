package remote

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// OpenSession implements executor.Sessions.
func (s *Service) OpenSession(ctx context.Context, asked executor.Session) (executor.Session, error) {
	return session(s.client.OpenSession(ctx, apijson.SessionSpecOf(asked)))
}

// GetSession implements executor.Sessions.
func (s *Service) GetSession(ctx context.Context, id string) (executor.Session, error) {
	return session(s.client.Session(ctx, id))
}

// ListSessions implements executor.Sessions.
func (s *Service) ListSessions(ctx context.Context) ([]executor.Session, error) {
	list, err := s.client.Sessions(ctx)
	return all(list, err, apijson.ToSession)
}

// InterruptSession implements executor.Sessions.
func (s *Service) InterruptSession(ctx context.Context, id string) (executor.Session, error) {
	return session(s.client.InterruptSession(ctx, id))
}

// RestartSession implements executor.Sessions.
func (s *Service) RestartSession(ctx context.Context, id string, wipe bool) (executor.Session, error) {
	return session(s.client.RestartSession(ctx, id, wipe))
}

// CloseSession implements executor.Sessions. The API answers with the status only, and so does this.
func (s *Service) CloseSession(ctx context.Context, id string) (executor.Session, error) {
	status, err := s.client.CloseSession(ctx, id)
	return one(status, err, func(status string) executor.Session {
		return executor.Session{ID: id, Status: executor.SessionStatus(status)}
	})
}

// Variables implements executor.SessionTools.
func (s *Service) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	list, err := s.client.Variables(ctx, id)
	return all(list, err, func(v pyexec.Variable) executor.Variable { return executor.Variable(v) })
}

// AddRequirements implements executor.SessionTools.
func (s *Service) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	list, err := s.client.AddRequirements(ctx, id, requirements)
	return list, toError(err)
}

// ListFiles implements executor.SessionFiles.
func (s *Service) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	list, err := s.client.ListFiles(ctx, id, path, recursive)
	return all(list, err, toFile)
}

// ReadFile implements executor.SessionFiles.
func (s *Service) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	f, r, err := s.client.DownloadFile(ctx, id, path)
	return executor.File(f), r, toError(err)
}

// WriteFile implements executor.SessionFiles.
func (s *Service) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	size := file.SizeBytes
	if _, seeks := r.(io.Seeker); size >= 0 && !seeks && !file.Directory {
		r = sized{io.LimitReader(r, size), size}
	}
	f, err := s.client.WriteFile(ctx, id, pyexec.File(file), r)
	return one(f, err, toFile)
}

// sized has a known length, which the upload announces.
type sized struct {
	io.Reader
	size int64
}

// Len returns the length.
func (s sized) Len() int { return int(s.size) }

// RemoveFile implements executor.SessionFiles.
func (s *Service) RemoveFile(ctx context.Context, id, path string) error {
	return toError(s.client.RemoveFile(ctx, id, path))
}

// Scripts implements executor.Service.
func (s *Service) Scripts(context.Context) ([]executor.Script, error) {
	return nil, executor.Errorf(executor.Unimplemented, "the HTTP API has no list of scripts")
}

func session(s *pyexec.Session, err error) (executor.Session, error) {
	return one(s, err, func(s *pyexec.Session) executor.Session { return apijson.ToSession(*s) })
}

func toFile(f pyexec.File) executor.File { return executor.File(f) }
