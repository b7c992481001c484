package apijson

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Session is a Session as its owner sees it. Code, environment and requirements that it was opened with are not in it.
type Session struct {
	SessionID            string                 `json:"session_id"`
	Name                 string                 `json:"name"`
	Description          string                 `json:"description"`
	Language             executor.Language      `json:"language"`
	Backend              *string                `json:"backend"`
	Generation           *int                   `json:"generation"`
	Status               executor.SessionStatus `json:"status"`
	Reason               *string                `json:"reason"`
	CreatedAt            *time.Time             `json:"created_at"`
	LastUsed             *time.Time             `json:"last_used"`
	ExpiresAt            *time.Time             `json:"expires_at"`
	IdleTimeoutSeconds   *float64               `json:"idle_timeout_seconds"`
	MaxLifeSeconds       *float64               `json:"max_life_seconds"`
	PythonVersion        *string                `json:"python_version"`
	ResolvedRequirements []string               `json:"resolved_requirements"`
	ImageDigest          *string                `json:"image_digest"`
	Limits               Limits                 `json:"limits"`
	Restarts             int                    `json:"restarts"`
	Running              *string                `json:"running"`
	Waiting              int                    `json:"waiting"`
}

// Limits are resolved limits in the units of a request's config. MB are 2^20 bytes.
type Limits struct {
	TimeoutSeconds   float64 `json:"timeout_seconds"`
	MemoryMB         float64 `json:"memory_mb"`
	DiskMB           float64 `json:"disk_mb"`
	CPUShares        int64   `json:"cpu_shares"`
	PIDs             int64   `json:"pids"`
	OutputBytes      int64   `json:"output_bytes"`
	KillGraceSeconds float64 `json:"kill_grace_seconds"`
}

// SessionOf returns s as JSON.
func SessionOf(s executor.Session) Session {
	language := s.Language
	if language == executor.LanguageDefault {
		language = executor.LanguagePython
	}
	return Session{
		SessionID: s.ID, Name: s.Name, Description: s.Description, Language: language, Backend: known(s.Backend),
		Generation: known(s.Generation), Status: s.Status, Reason: known(s.Reason),
		CreatedAt: instant(s.CreatedAt), LastUsed: instant(s.LastUsed), ExpiresAt: instant(s.ExpiresAt),
		IdleTimeoutSeconds: knownSeconds(s.IdleTimeout), MaxLifeSeconds: knownSeconds(s.MaxLife),
		PythonVersion: known(s.PythonVersion), ResolvedRequirements: list0(s.Requirements), ImageDigest: known(s.ImageDigest),
		Limits: limitsOf(s.Limits), Restarts: s.Restarts, Running: known(s.Running), Waiting: s.Waiting,
	}
}

func limitsOf(l executor.Limits) Limits {
	const mb = 1 << 20
	return Limits{
		TimeoutSeconds: l.Timeout.Seconds(), MemoryMB: float64(l.MemoryBytes) / mb, DiskMB: float64(l.DiskBytes) / mb,
		CPUShares: l.CPUShares, PIDs: l.PIDs, OutputBytes: l.OutputBytes, KillGraceSeconds: l.KillGrace.Seconds(),
	}
}

func knownSeconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return seconds(d)
}

// File is one entry of a Session's work folder.
type File struct {
	Path      string `json:"path"`
	Directory bool   `json:"directory"`
	SizeBytes int64  `json:"size_bytes"`
	// Mode holds the permission bits, as a number.
	Mode    uint32     `json:"mode"`
	ModTime *time.Time `json:"mod_time"`
}

// FileOf returns f as JSON.
func FileOf(f executor.File) File {
	return File{Path: f.Path, Directory: f.Directory, SizeBytes: f.SizeBytes, Mode: f.Mode, ModTime: instant(f.ModTime)}
}

// Variable is a name in a Session's interpreter.
type Variable struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Preview string `json:"preview"`
}

// VariableOf returns v as JSON.
func VariableOf(v executor.Variable) Variable { return Variable(v) }
