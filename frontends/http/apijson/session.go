package apijson

import (
	"cmp"

	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// SessionOf returns the API's form of s. Its Spec and Owner are not in the API.
func SessionOf(s executor.Session) pyexec.Session {
	return pyexec.Session{
		SessionID: s.ID, Name: s.Name, Description: s.Description, Language: string(cmp.Or(s.Language, executor.LanguagePython)),
		Backend: s.Backend, Generation: s.Generation, Status: string(s.Status), Reason: s.Reason,
		CreatedAt: s.CreatedAt.UTC(), LastUsed: s.LastUsed.UTC(), ExpiresAt: s.ExpiresAt.UTC(),
		IdleTimeoutSeconds: s.IdleTimeout.Seconds(), MaxLifeSeconds: s.MaxLife.Seconds(),
		PythonVersion: s.PythonVersion, ResolvedRequirements: notNil(s.Requirements), ImageDigest: s.ImageDigest,
		Limits: limitsOf(s.Limits), Restarts: s.Restarts, Running: s.Running, Waiting: s.Waiting,
	}
}

// SessionsOf returns the API's form of a list.
func SessionsOf(list []executor.Session) pyexec.SessionList {
	return pyexec.SessionList{Sessions: convert(list, SessionOf)}
}

// ToSession returns the executor.Session of s.
func ToSession(s pyexec.Session) executor.Session {
	return executor.Session{
		ID: s.SessionID, Name: s.Name, Description: s.Description, Language: executor.Language(s.Language), Backend: s.Backend,
		Generation: s.Generation, Status: executor.SessionStatus(s.Status), Reason: s.Reason,
		CreatedAt: s.CreatedAt, LastUsed: s.LastUsed, ExpiresAt: s.ExpiresAt,
		IdleTimeout: seconds(s.IdleTimeoutSeconds), MaxLife: seconds(s.MaxLifeSeconds),
		PythonVersion: s.PythonVersion, Requirements: s.ResolvedRequirements, ImageDigest: s.ImageDigest,
		Limits: toLimits(s.Limits), Restarts: s.Restarts, Running: s.Running, Waiting: s.Waiting,
	}
}

func limitsOf(l executor.Limits) pyexec.Limits {
	return pyexec.Limits{
		TimeoutSeconds: l.Timeout.Seconds(), MemoryMB: float64(l.MemoryBytes) / mb, DiskMB: float64(l.DiskBytes) / mb,
		CPUShares: l.CPUShares, PIDs: l.PIDs, OutputBytes: l.OutputBytes, KillGraceSeconds: l.KillGrace.Seconds(), CPUSeconds: l.CPUTime.Seconds(),
	}
}

func toLimits(l pyexec.Limits) executor.Limits {
	return executor.Limits{
		Timeout: seconds(l.TimeoutSeconds), MemoryBytes: int64(l.MemoryMB * mb), DiskBytes: int64(l.DiskMB * mb),
		CPUShares: l.CPUShares, PIDs: l.PIDs, OutputBytes: l.OutputBytes, KillGrace: seconds(l.KillGraceSeconds), CPUTime: seconds(l.CPUSeconds),
	}
}

// FileOf returns the API's form of f.
func FileOf(f executor.File) pyexec.File {
	f.ModTime = f.ModTime.UTC()
	return pyexec.File(f)
}

// FilesOf returns the API's form of a list.
func FilesOf(list []executor.File) pyexec.FileList {
	return pyexec.FileList{Files: convert(list, FileOf)}
}

// VariablesOf returns the API's form of a list.
func VariablesOf(list []executor.Variable) pyexec.VariableList {
	return pyexec.VariableList{Variables: convert(list, func(v executor.Variable) pyexec.Variable { return pyexec.Variable(v) })}
}

// convert returns the converted values of a list. The result is not nil.
func convert[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}
