package pyexec

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The statuses of a Session. A newer server may have others.
const (
	SessionActive = "active"
	SessionLost   = "lost"
	SessionClosed = "closed"
)

// What an Execution did to its Session's interpreter (Execution.SessionState).
const (
	SessionStateKept      = "kept"
	SessionStateRestarted = "restarted"
	SessionStateLost      = "lost"
)

// SessionSpec says what a Session has for its whole life. What is not set is not sent, and the server's default holds.
type SessionSpec struct {
	Name        string `json:"name,omitzero"`
	Description string `json:"description,omitzero"`
	// Language of its interpreter: "python" (default), "javascript", "shell".
	Language string `json:"language,omitzero"`
	// PythonVersion is an exact minor version, "3.12".
	PythonVersion string `json:"python_version,omitzero"`
	// DockerImage is a container image, "python:3.12-slim".
	DockerImage string `json:"docker_image,omitzero"`
	// RequirementsTxt is text in requirements.txt form.
	RequirementsTxt string `json:"requirements_txt,omitzero"`
	// PreCommands are shell commands that prepare the image.
	PreCommands []string `json:"pre_commands,omitempty"`
	// Env is added to the interpreter's environment.
	Env map[string]string `json:"env,omitempty"`
	// Config bounds it; TimeoutSeconds, OutputBytes and KillGraceSeconds are the defaults of its Executions.
	Config Config `json:"config,omitzero"`
	// Backend names the backend to open it on.
	Backend string `json:"backend,omitzero"`
	// IdleTimeoutSeconds closes it when it was not used for so long, MaxLifeSeconds whatever happens.
	IdleTimeoutSeconds float64 `json:"idle_timeout_seconds,omitzero"`
	MaxLifeSeconds     float64 `json:"max_life_seconds,omitzero"`
}

// Session is a sandbox that outlives an Execution: Executions that name it in Spec.SessionID share its interpreter and its
// files, one at a time, in the order in which they came.
type Session struct {
	SessionID   string `json:"session_id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Language    string `json:"language"`
	Backend     string `json:"backend"`
	// Generation is that of the backend's process; 0 = unknown.
	Generation int    `json:"generation"`
	Status     string `json:"status"`
	// Reason says why it is lost or closed.
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
	// LastUsed is zero before its first use, ExpiresAt while it is busy.
	LastUsed  time.Time `json:"last_used"`
	ExpiresAt time.Time `json:"expires_at"`
	// IdleTimeoutSeconds and MaxLifeSeconds are 0 where there is no bound.
	IdleTimeoutSeconds   float64  `json:"idle_timeout_seconds"`
	MaxLifeSeconds       float64  `json:"max_life_seconds"`
	PythonVersion        string   `json:"python_version"`
	ResolvedRequirements []string `json:"resolved_requirements"`
	ImageDigest          string   `json:"image_digest"`
	Limits               Limits   `json:"limits"`
	// Restarts counts how often its interpreter was started again.
	Restarts int `json:"restarts"`
	// Running is the id of the Execution that runs in it now; Waiting counts those behind it.
	Running string `json:"running"`
	Waiting int    `json:"waiting"`
}

// Limits are what holds for a Session. MB are 2^20 bytes.
type Limits struct {
	TimeoutSeconds   float64 `json:"timeout_seconds"`
	MemoryMB         float64 `json:"memory_mb"`
	DiskMB           float64 `json:"disk_mb"`
	CPUShares        int64   `json:"cpu_shares"`
	PIDs             int64   `json:"pids"`
	OutputBytes      int64   `json:"output_bytes"`
	KillGraceSeconds float64 `json:"kill_grace_seconds"`
}

// Variable is a name in a Session's interpreter.
type Variable struct {
	Name string `json:"name"`
	// Type as the language names it.
	Type string `json:"type"`
	// Preview is a short text form.
	Preview string `json:"preview"`
}

// OpenSession opens a Session and returns when its interpreter is ready. Codes: invalid, denied, exhausted, unavailable,
// unimplemented (the backend has no sessions).
func (c *Client) OpenSession(ctx context.Context, spec SessionSpec) (*Session, error) {
	return c.session(ctx, call{operation: "open session", method: http.MethodPost, path: sessionsPath}, spec)
}

// Session returns the present state of a Session.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	path, err := sessionPath(id, "")
	if err != nil {
		return nil, err
	}
	return c.session(ctx, get("get session", path, nil), nil)
}

// Sessions lists the active and lost ones, and those that were closed not long ago, newest first.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	var answer struct {
		Sessions []Session `json:"sessions"`
	}
	err := c.json(ctx, get("list sessions", sessionsPath, nil), &answer)
	return answer.Sessions, err
}

// RunInSession runs code in the Session's interpreter and returns how it ended, with its output and displays. It is Run
// with spec.SessionID; use Submit and Events to see output as it comes.
func (c *Client) RunInSession(ctx context.Context, id, code string) (*Execution, error) {
	if id == "" { // it would run, in a sandbox of its own
		_, err := sessionPath(id, "")
		return nil, err
	}
	return c.Run(ctx, Spec{SessionID: id, Code: code}, Input{})
}

// InterruptSession stops what runs in it, and waits for that. The interpreter keeps its state, unless it does not stop in
// time (Execution.SessionState). Nothing runs, nothing happens. It is never repeated: it could meet the next Execution.
func (c *Client) InterruptSession(ctx context.Context, id string) (*Session, error) {
	path, err := sessionPath(id, "/interrupt")
	if err != nil {
		return nil, err
	}
	return c.session(ctx, call{operation: "interrupt session", method: http.MethodPost, path: path}, nil)
}

// RestartSession starts its interpreter anew: names and imports are gone, what runs is killed, the files stay unless wipe.
// It brings a lost Session back where its sandbox is still there. Codes: not_found, conflict, unavailable.
func (c *Client) RestartSession(ctx context.Context, id string, wipe bool) (*Session, error) {
	path, err := sessionPath(id, "/restart")
	if err != nil {
		return nil, err
	}
	return c.session(ctx, call{operation: "restart session", method: http.MethodPost, path: path}, map[string]bool{"wipe": wipe})
}

// CloseSession kills what runs, ends the sandbox and removes its files. It returns the status, "closed". A Session that was
// closed before is no error.
func (c *Client) CloseSession(ctx context.Context, id string) (status string, err error) {
	path, err := sessionPath(id, "")
	if err != nil {
		return "", err
	}
	var answer struct {
		Status string `json:"status"`
	}
	err = c.json(ctx, call{operation: "close session", method: http.MethodDelete, path: path, idempotent: true}, &answer)
	return answer.Status, err
}

// Variables lists the names of its interpreter, sorted. It waits for what runs. Codes: not_found, conflict (not active),
// exhausted, unimplemented (the language has none).
func (c *Client) Variables(ctx context.Context, id string) ([]Variable, error) {
	path, err := sessionPath(id, "/variables")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Variables []Variable `json:"variables"`
	}
	err = c.json(ctx, get("variables", path, nil), &answer)
	return answer.Variables, err
}

// AddRequirements installs requirements (text in requirements.txt form) besides those it has, without a restart, and
// returns the whole resolved list. Codes: not_found, conflict, exhausted, invalid (unresolvable), unimplemented.
func (c *Client) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	path, err := sessionPath(id, "/requirements")
	if err != nil {
		return nil, err
	}
	body, err := jsonUpload(map[string]string{"requirements_txt": requirements})
	if err != nil {
		return nil, err
	}
	var answer struct {
		ResolvedRequirements []string `json:"resolved_requirements"`
	}
	// What is installed already is not installed again.
	err = c.json(ctx, call{operation: "add requirements", method: http.MethodPost, path: path, idempotent: true, upload: body}, &answer)
	return answer.ResolvedRequirements, err
}

// session makes a call whose answer is a Session; body nil: none.
func (c *Client) session(ctx context.Context, what call, body any) (*Session, error) {
	if body != nil {
		var err error
		if what.upload, err = jsonUpload(body); err != nil {
			return nil, err
		}
	}
	var s Session
	if err := c.json(ctx, what, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

const sessionsPath = "/api/v1/sessions"

var errNoSession = errors.New("no session has that id")

// sessionPath is the path of a Session, or of something of its. An id that is no segment of a path names nothing.
func sessionPath(id, rest string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", &Error{Code: CodeNotFound, Status: http.StatusNotFound, Message: "no session has the id " + strconv.Quote(id), Err: errNoSession}
	}
	return sessionsPath + "/" + url.PathEscape(id) + rest, nil
}
