package wire

import (
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

func toSession(s executor.Session) *pb.Session {
	return &pb.Session{
		Id:            s.ID,
		Owner:         s.Owner,
		Name:          s.Name,
		Description:   s.Description,
		Language:      string(s.Language),
		Backend:       s.Backend,
		Generation:    int64(s.Generation),
		Status:        string(s.Status),
		Reason:        s.Reason,
		CreatedAt:     toTime(s.CreatedAt),
		LastUsed:      toTime(s.LastUsed),
		ExpiresAt:     toTime(s.ExpiresAt),
		IdleTimeout:   toDuration(s.IdleTimeout),
		MaxLife:       toDuration(s.MaxLife),
		Spec:          toSpec(s.Spec),
		Limits:        toLimits(s.Limits),
		Preload:       s.Preload,
		PythonVersion: s.PythonVersion,
		Requirements:  s.Requirements,
		ImageDigest:   s.ImageDigest,
		Restarts:      int64(s.Restarts),
		Running:       s.Running,
		Waiting:       int64(s.Waiting),
	}
}

func fromSession(s *pb.Session) executor.Session {
	if s == nil {
		return executor.Session{}
	}
	return executor.Session{
		ID:            s.Id,
		Owner:         s.Owner,
		Name:          s.Name,
		Description:   s.Description,
		Language:      executor.Language(s.Language),
		Backend:       s.Backend,
		Generation:    int(s.Generation),
		Status:        executor.SessionStatus(s.Status),
		Reason:        s.Reason,
		CreatedAt:     fromTime(s.CreatedAt),
		LastUsed:      fromTime(s.LastUsed),
		ExpiresAt:     fromTime(s.ExpiresAt),
		IdleTimeout:   s.IdleTimeout.AsDuration(),
		MaxLife:       s.MaxLife.AsDuration(),
		Spec:          fromSpec(s.Spec),
		Limits:        fromLimits(s.Limits),
		Preload:       s.Preload,
		PythonVersion: s.PythonVersion,
		Requirements:  s.Requirements,
		ImageDigest:   s.ImageDigest,
		Restarts:      int(s.Restarts),
		Running:       s.Running,
		Waiting:       int(s.Waiting),
	}
}

func toVariable(v executor.Variable) *pb.Variable {
	return &pb.Variable{Name: v.Name, Type: v.Type, Preview: v.Preview}
}

func fromVariable(v *pb.Variable) executor.Variable {
	return executor.Variable{Name: v.GetName(), Type: v.GetType(), Preview: v.GetPreview()}
}

func toFile(f executor.File) *pb.File {
	return &pb.File{Path: f.Path, Directory: f.Directory, SizeBytes: f.SizeBytes, Mode: f.Mode, ModTime: toTime(f.ModTime)}
}

func fromFile(f *pb.File) executor.File {
	return executor.File{
		Path: f.GetPath(), Directory: f.GetDirectory(), SizeBytes: f.GetSizeBytes(), Mode: f.GetMode(), ModTime: fromTime(f.GetModTime()),
	}
}

func toOpened(o executor.OpenedSession) *pb.SessionBackendServiceOpenSessionResponse {
	return &pb.SessionBackendServiceOpenSessionResponse{
		Handle: o.Handle, PythonVersion: o.PythonVersion, Requirements: o.Requirements, ImageDigest: o.ImageDigest,
	}
}

func toAdopted(o executor.OpenedSession) *pb.SessionBackendServiceAdoptSessionResponse {
	return &pb.SessionBackendServiceAdoptSessionResponse{
		Handle: o.Handle, PythonVersion: o.PythonVersion, Requirements: o.Requirements, ImageDigest: o.ImageDigest,
	}
}

// openedMessage is what the answers to OpenSession and AdoptSession have in common.
type openedMessage interface {
	GetHandle() []byte
	GetPythonVersion() string
	GetRequirements() []string
	GetImageDigest() string
}

func fromOpened[M openedMessage](m M) executor.OpenedSession {
	return executor.OpenedSession{
		Handle: m.GetHandle(), PythonVersion: m.GetPythonVersion(), Requirements: m.GetRequirements(), ImageDigest: m.GetImageDigest(),
	}
}
