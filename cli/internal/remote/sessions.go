package remote

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// OpenSession implements executor.Sessions.
func (s *Service) OpenSession(ctx context.Context, asked executor.Session) (executor.Session, error) {
	return session(s.client.OpenSession(ctx, toSessionSpec(asked)))
}

// GetSession implements executor.Sessions.
func (s *Service) GetSession(ctx context.Context, id string) (executor.Session, error) {
	return session(s.client.Session(ctx, id))
}

// ListSessions implements executor.Sessions.
func (s *Service) ListSessions(ctx context.Context) ([]executor.Session, error) {
	list, err := s.client.Sessions(ctx)
	if err != nil {
		return nil, toError(err)
	}
	out := make([]executor.Session, len(list))
	for i, one := range list {
		out[i] = toSession(one)
	}
	return out, nil
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
	if err != nil {
		return executor.Session{}, toError(err)
	}
	return executor.Session{ID: id, Status: executor.SessionStatus(status)}, nil
}

// Variables implements executor.SessionTools.
func (s *Service) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	list, err := s.client.Variables(ctx, id)
	if err != nil {
		return nil, toError(err)
	}
	out := make([]executor.Variable, len(list))
	for i, v := range list {
		out[i] = executor.Variable(v)
	}
	return out, nil
}

// AddRequirements implements executor.SessionTools.
func (s *Service) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	list, err := s.client.AddRequirements(ctx, id, requirements)
	if err != nil {
		return nil, toError(err)
	}
	return list, nil
}

// ListFiles implements executor.SessionFiles.
func (s *Service) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	list, err := s.client.ListFiles(ctx, id, path, recursive)
	if err != nil {
		return nil, toError(err)
	}
	out := make([]executor.File, len(list))
	for i, f := range list {
		out[i] = executor.File(f)
	}
	return out, nil
}

// ReadFile implements executor.SessionFiles.
func (s *Service) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	f, r, err := s.client.DownloadFile(ctx, id, path)
	if err != nil {
		return executor.File{}, nil, toError(err)
	}
	return executor.File(f), r, nil
}

// WriteFile implements executor.SessionFiles.
func (s *Service) WriteFile(ctx context.Context, id, path string, size int64, r io.Reader) (executor.File, error) {
	if _, seeks := r.(io.Seeker); size >= 0 && !seeks {
		r = sized{io.LimitReader(r, size), size}
	}
	f, err := s.client.UploadFile(ctx, id, path, r)
	if err != nil {
		return executor.File{}, toError(err)
	}
	return executor.File(f), nil
}

// sized tells how long it is, so that the upload says so, too.
type sized struct {
	io.Reader
	size int64
}

// Len returns the length.
func (s sized) Len() int { return int(s.size) }

// RemoveFile implements executor.SessionFiles.
func (s *Service) RemoveFile(ctx context.Context, id, path string) error {
	if err := s.client.RemoveFile(ctx, id, path); err != nil {
		return toError(err)
	}
	return nil
}

// Scripts implements executor.Service.
func (s *Service) Scripts(context.Context) ([]executor.Script, error) {
	return nil, executor.Errorf(executor.Unimplemented, "the HTTP API has no list of scripts")
}

func session(s *pyexec.Session, err error) (executor.Session, error) {
	if err != nil {
		return executor.Session{}, toError(err)
	}
	return toSession(*s), nil
}

// toSessionSpec returns what the API is asked; zero fields are not sent.
func toSessionSpec(s executor.Session) pyexec.SessionSpec {
	language := s.Language
	if language == executor.LanguageDefault {
		language = s.Spec.Language
	}
	return pyexec.SessionSpec{
		Name: s.Name, Description: s.Description, Language: string(language), PythonVersion: s.Spec.PythonVersion,
		DockerImage: s.Spec.Image, RequirementsTxt: s.Spec.Requirements, PreCommands: s.Spec.PreCommands, Env: s.Spec.Env,
		Config: toConfig(s.Spec.Limits, s.Spec.Network), Backend: s.Spec.Backend,
		IdleTimeoutSeconds: s.IdleTimeout.Seconds(), MaxLifeSeconds: s.MaxLife.Seconds(),
	}
}

func toSession(s pyexec.Session) executor.Session {
	return executor.Session{
		ID: s.SessionID, Name: s.Name, Description: s.Description, Language: executor.Language(s.Language), Backend: s.Backend,
		Generation: s.Generation, Status: executor.SessionStatus(s.Status), Reason: s.Reason,
		CreatedAt: s.CreatedAt, LastUsed: s.LastUsed, ExpiresAt: s.ExpiresAt,
		IdleTimeout: seconds(s.IdleTimeoutSeconds), MaxLife: seconds(s.MaxLifeSeconds),
		PythonVersion: s.PythonVersion, Requirements: s.ResolvedRequirements, ImageDigest: s.ImageDigest,
		Limits: toLimits(s.Limits), Restarts: s.Restarts, Running: s.Running, Waiting: s.Waiting,
	}
}

func toLimits(l pyexec.Limits) executor.Limits {
	return executor.Limits{
		Timeout: seconds(l.TimeoutSeconds), MemoryBytes: int64(l.MemoryMB * (1 << 20)), DiskBytes: int64(l.DiskMB * (1 << 20)),
		CPUShares: l.CPUShares, PIDs: l.PIDs, OutputBytes: l.OutputBytes, KillGrace: seconds(l.KillGraceSeconds),
	}
}
