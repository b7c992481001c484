package executor

import (
	"context"
	"io"
	"time"
)

// SessionStatus is the state of a Session.
type SessionStatus string

// The session statuses.
const (
	SessionUnknown SessionStatus = ""
	// SessionActive: its sandbox is there. An Execution may be running in it.
	SessionActive SessionStatus = "active"
	// SessionLost: its interpreter died, or its sandbox is gone; Reason says which. RestartSession revives it where the sandbox, with
	// its files, is still there.
	SessionLost SessionStatus = "lost"
	// SessionClosed: it was closed; Reason says why.
	SessionClosed SessionStatus = "closed"
)

// Session is a Sandbox that outlives an Execution: Executions that name it in Spec.Session share its interpreter (Code)
// and its files (Code and Command). They run one at a time, in the order of their Submit.
type Session struct {
	// ID is "ctx-" and a UUIDv4.
	ID          string `json:"id"`
	Owner       string `json:"owner"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	// Language of its interpreter. Default python.
	Language Language `json:"language"`
	Backend  string   `json:"backend"`
	// Generation is that of the backend's plugin process that holds the sandbox (Info.Generation); 0 = unknown.
	Generation int           `json:"generation"`
	Status     SessionStatus `json:"status"`
	// Reason says why it is lost or closed.
	Reason    string    `json:"reason,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	// LastUsed is the end of its last Execution or file operation; before the first one, CreatedAt.
	LastUsed time.Time `json:"last_used,omitzero"`
	// ExpiresAt is when it is closed unless it is used. Zero means never, or that it is busy.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// IdleTimeout closes it when it was not used for that long, MaxLife in any case. In OpenSession 0 means the server's default; a
	// Service returns the resolved values.
	IdleTimeout time.Duration `json:"idle_timeout,omitzero"`
	MaxLife     time.Duration `json:"max_life,omitzero"`
	// Spec holds what is fixed for its life: Language, PythonVersion, Image, Requirements, PreCommands, Env, Network,
	// Backend, and of Limits all but Timeout, OutputBytes and KillGrace, which are the defaults of its Executions. Every
	// other field is refused (invalid). A Service returns it in brief (Spec.Brief).
	Spec Spec `json:"spec"`
	// Limits are Spec.Limits resolved: no zero fields.
	Limits Limits `json:"limits"`
	// Preload names Python modules that its interpreter imports before it is ready, also at a restart. Modules that it does not have
	// are skipped. The Engine sets Preload from the configuration's sessions.preload.
	Preload []string `json:"preload,omitempty"`
	// PythonVersion, Requirements and ImageDigest describe its sandbox, as in a Result.
	PythonVersion string   `json:"python_version,omitzero"`
	Requirements  []string `json:"requirements,omitempty"`
	ImageDigest   string   `json:"image_digest,omitzero"`
	// Restarts counts how often its interpreter was started again.
	Restarts int `json:"restarts"`
	// Running is the id of the Execution that runs in it now; Waiting counts those behind it.
	Running string `json:"running,omitzero"`
	Waiting int    `json:"waiting"`
}

// SessionState is the state of a Session's interpreter after an Execution.
type SessionState string

// The session states.
const (
	// SessionStateKept: names, variables and imports are as the Execution left them; or it ran in no Session.
	SessionStateKept SessionState = ""
	// SessionStateRestarted: it did not stop in time and was restarted. Its state is gone, its files are there.
	SessionStateRestarted SessionState = "restarted"
	// SessionStateLost: it died. The Session is SessionLost until RestartSession.
	SessionStateLost SessionState = "lost"
)

// Variable is a name in a Session's interpreter.
type Variable struct {
	Name string `json:"name"`
	// Type as the language names it ("int", "DataFrame", "Array").
	Type string `json:"type"`
	// Preview is a short text form, at most 200 characters.
	Preview string `json:"preview,omitzero"`
}

// File is one entry of a Session's work folder.
type File struct {
	// Path is relative to the work folder, with slashes.
	Path      string    `json:"path"`
	Directory bool      `json:"directory"`
	SizeBytes int64     `json:"size_bytes"`
	Mode      uint32    `json:"mode"`
	ModTime   time.Time `json:"mod_time"`
}

// Sessions is the part of Service about the life of Sessions. Where a method of a Service, or Spec.Session, takes an id, it also takes
// the name of one of the caller's own Sessions. Codes of all: not_found (unknown, or another owner's), conflict (several open Sessions
// have that name).
type Sessions interface {
	// OpenSession creates one from Name, Description, Language, IdleTimeout, MaxLife and Spec; all other fields are the
	// Engine's. It returns when the interpreter is ready. Codes: invalid, denied, exhausted (limits per owner and in
	// total), unavailable, unimplemented.
	OpenSession(ctx context.Context, s Session) (Session, error)
	// GetSession returns the present state.
	GetSession(ctx context.Context, id string) (Session, error)
	// ListSessions returns the owner's active and lost ones, and those that were closed not long ago, newest first.
	ListSessions(ctx context.Context) ([]Session, error)
	// InterruptSession stops the running Execution as Cancel does, and waits for its end. Idempotent.
	InterruptSession(ctx context.Context, id string) (Session, error)
	// RestartSession starts its interpreter anew: the state is gone, the running Execution is killed, and those that wait go on. The
	// files stay, unless wipe. Codes: conflict (closed, or lost with its sandbox), unavailable.
	RestartSession(ctx context.Context, id string, wipe bool) (Session, error)
	// CloseSession kills the running Execution, ends the sandbox and removes its files. Idempotent.
	CloseSession(ctx context.Context, id string) (Session, error)
}

// SessionTools inspect and equip a Session. They wait for their turn, as an Execution does.
type SessionTools interface {
	// Variables lists the variables of the interpreter, sorted by name, at most 1,000. Codes: not_found, conflict (not active),
	// exhausted (too many wait), unimplemented (the language has none).
	Variables(ctx context.Context, id string) ([]Variable, error)
	// AddRequirements installs requirements (text in requirements.txt form) besides those it has, without a restart, and
	// returns the whole resolved list. Codes: not_found, conflict, exhausted, invalid (unresolvable: nothing changed),
	// unimplemented.
	AddRequirements(ctx context.Context, id, requirements string) ([]string, error)
}

// SessionFiles reach a Session's work folder, also while an Execution runs. Paths are relative, with slashes. A path that leads out of the
// folder, also by a link, is invalid. Codes of all: not_found (the Session or the path), conflict (closed).
type SessionFiles interface {
	// ListFiles lists the folder at path ("" or "." is the root), sorted by name; with recursive all below it. At most
	// 10,000 (exhausted).
	ListFiles(ctx context.Context, id, path string, recursive bool) ([]File, error)
	// ReadFile opens a regular file. The caller closes it.
	ReadFile(ctx context.Context, id, path string) (File, io.ReadCloser, error)
	// WriteFile replaces or makes the regular file f.Path, whole or not at all, and the folders on its way. f.SizeBytes < 0 = unknown.
	// f.Mode has its permission bits, at most 0777; 0 = 0644. With f.Directory it makes a folder, unless there is one, and reads
	// nothing. Codes: exhausted (Limits.DiskBytes, or the server's maximum for one file).
	WriteFile(ctx context.Context, id string, f File, r io.Reader) (File, error)
	// RemoveFile removes a file, or a folder with all that is in it.
	RemoveFile(ctx context.Context, id, path string) error
}

// OpenedSession describes a sandbox that a backend has opened or adopted.
type OpenedSession struct {
	// Handle is opaque, at most 4 KiB: AdoptSession finds the sandbox with it. Empty where no sandbox outlives the plugin.
	Handle        []byte
	PythonVersion string
	Requirements  []string
	ImageDigest   string
}

// SessionBackend is what a Backend with Capabilities.Sessions also implements. An Execution in a Session comes as a Run
// whose Job.Spec.Session is set: Spec.Code goes to the interpreter (an uncaught error is StatusFailed with exit code 1
// and the traceback on stderr; sys.exit ends the Execution with its code), Spec.Command is a process of its own in the
// same sandbox. The Engine calls Run, SessionTools and RestartSession for one Session one at a time, SessionFiles at any
// time. The end of Run's ctx, and Limits.Timeout, interrupt (SIGINT): the state is kept unless the interpreter does not
// stop within Limits.KillGrace (Result.SessionState). A Backend may first kill the programs that the code has started, and
// wait 2 s more. Every method answers not_found for a Session that this process does not hold; the Engine then tries
// AdoptSession once.
type SessionBackend interface {
	// OpenSession makes the sandbox of s (ID, Owner, Language, Spec and Limits are set) and starts its interpreter. Codes:
	// invalid (requirements among others; Fields names them), exhausted, unavailable, unimplemented.
	OpenSession(ctx context.Context, s Session) (OpenedSession, error)
	// AdoptSession takes over a sandbox that outlived its plugin. Codes: not_found, exhausted (the sandbox is gone because it ran out of
	// memory), unimplemented.
	AdoptSession(ctx context.Context, s Session, handle []byte) (OpenedSession, error)
	// RestartSession starts the interpreter anew, and empties the work folder if wipe. What runs is killed.
	RestartSession(ctx context.Context, id string, wipe bool) error
	// CloseSession ends the sandbox and all in it. Idempotent, safe for an unknown one.
	CloseSession(ctx context.Context, id string) error
	SessionTools
	SessionFiles
}

// SessionRecord is a Session as a Store keeps it.
type SessionRecord struct {
	Session
	// Handle of OpenedSession.
	Handle []byte `json:"handle,omitempty"`
	// EndedAt is when it was closed, or lost for good; zero before.
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// SessionStore is the part of a Store about Sessions. The rules are ST-… in docs/contract.md.
type SessionStore interface {
	// CreateSession adds r; it is on disk when CreateSession returns, as far as the Store has one. Codes: conflict.
	CreateSession(ctx context.Context, r SessionRecord) error
	// GetSessionRecord returns a copy. Codes: not_found.
	GetSessionRecord(ctx context.Context, id string) (SessionRecord, error)
	// ListSessionRecords returns copies, newest first (CreatedAt, then id); owner "" = all.
	ListSessionRecords(ctx context.Context, owner string) ([]SessionRecord, error)
	// UpdateSession changes a record atomically; ID, Owner and CreatedAt stay. Codes: not_found.
	UpdateSession(ctx context.Context, id string, change func(*SessionRecord)) (SessionRecord, error)
	// DeleteSession removes it. Idempotent.
	DeleteSession(ctx context.Context, id string) error
}
