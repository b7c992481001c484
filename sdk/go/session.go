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

// The states of a Session's interpreter after an Execution (Execution.SessionState).
const (
	SessionStateKept      = "kept"
	SessionStateRestarted = "restarted"
	SessionStateLost      = "lost"
)

// SessionSpec says what a Session has for its whole life. A field that is not set is not sent, and the server's default holds.
type SessionSpec struct {
	Name               string            `json:"name,omitzero" pattern:"^[^\\x00]*$" doc:"Name for people. It need not be unique."`
	Description        string            `json:"description,omitzero" pattern:"^[^\\x00]*$" doc:"Purpose of the session."`
	Language           string            `json:"language,omitzero" enum:"python,javascript,shell" doc:"Language of the interpreter. Default: python."`
	PythonVersion      string            `json:"python_version,omitzero" pattern:"^([0-9]+\\.[0-9]+)?$" patternDescription:"a minor version such as 3.12" doc:"Minor version of Python, \"3.12\". Default: the backend's."`
	DockerImage        string            `json:"docker_image,omitzero" pattern:"^[^\\x00]*$" doc:"Container image, \"python:3.12-slim\". A backend without images may map some images to its interpreters. It refuses the others with 501."`
	RequirementsTxt    string            `json:"requirements_txt,omitzero" doc:"Requirements in the form of a requirements.txt."`
	PreCommands        []string          `json:"pre_commands,omitempty" pattern:"^[^\\x00]*$" doc:"Shell commands that prepare the image."`
	Env                map[string]string `json:"env,omitempty" doc:"Environment variables of the interpreter, added to its own (PATH, HOME, TMPDIR, LANG, PYTHONUNBUFFERED). An empty PYTHONUNBUFFERED removes that variable."`
	Config             Config            `json:"config,omitzero" doc:"Limits. A limit that is not given is the server's default. A limit above the server's maximum is 422. timeout_seconds, cpu_seconds, output_bytes and kill_grace_seconds are the defaults of the executions."`
	Backend            string            `json:"backend,omitzero" pattern:"^[^\\x00]*$" doc:"Name of the backend. Default: the server's."`
	IdleTimeoutSeconds float64           `json:"idle_timeout_seconds,omitzero" exclusiveMinimum:"0" maximum:"4294967296" doc:"The server closes the session when it is not used for this time. Default and maximum: the server's."`
	MaxLifeSeconds     float64           `json:"max_life_seconds,omitzero" exclusiveMinimum:"0" maximum:"4294967296" doc:"The server closes the session at this age. Default and maximum: the server's."`
}

// Restart says how to restart a Session.
type Restart struct {
	Wipe bool `json:"wipe" required:"false" doc:"Whether to remove the files too. Default: the files stay."`
}

// Requirements asks for requirements besides those that a Session has.
type Requirements struct {
	RequirementsTxt string `json:"requirements_txt" pattern:"^[^\\x00]*[^\\x00\\s][^\\x00]*$" patternDescription:"a list of requirements that is not empty" doc:"Requirements to install, in the form of a requirements.txt."`
}

// Session is a sandbox that outlives an Execution: Executions that name it in Spec.SessionID share its interpreter and its
// files, one at a time, in the order in which they came. A member that the server does not know is zero here and null in JSON.
type Session struct {
	SessionID            string    `json:"session_id" doc:"Id of the session, \"ctx-…\"."`
	Name                 string    `json:"name"`
	Description          string    `json:"description"`
	Language             string    `json:"language" enum:"python,javascript,shell"`
	Backend              string    `json:"backend" nullable:"true" doc:"Backend that holds the session."`
	Generation           int       `json:"generation" nullable:"true" doc:"Number of the backend's process that holds the session, from 1."`
	Status               string    `json:"status" enum:"active,lost,closed" doc:"lost: its interpreter died or its sandbox is gone."`
	Reason               string    `json:"reason" nullable:"true" doc:"Why the session is lost or closed."`
	CreatedAt            time.Time `json:"created_at" nullable:"true"`
	LastUsed             time.Time `json:"last_used" nullable:"true" doc:"End of its last execution or file operation."`
	ExpiresAt            time.Time `json:"expires_at" nullable:"true" doc:"When the server closes the session unless it is used. null: never, or it is busy."`
	IdleTimeoutSeconds   float64   `json:"idle_timeout_seconds" nullable:"true" doc:"The server closes the session when it is not used for this time."`
	MaxLifeSeconds       float64   `json:"max_life_seconds" nullable:"true" doc:"The server closes the session at this age."`
	PythonVersion        string    `json:"python_version" nullable:"true" doc:"Full version of its interpreter."`
	ResolvedRequirements []string  `json:"resolved_requirements" doc:"Installed requirements, \"requests==2.32.3\"."`
	ImageDigest          string    `json:"image_digest" nullable:"true" doc:"Digest of its image, on backends with images."`
	Limits               Limits    `json:"limits" doc:"Limits of the session. timeout_seconds, output_bytes and kill_grace_seconds are the defaults of its executions."`
	Restarts             int       `json:"restarts" doc:"Number of restarts of its interpreter."`
	Running              string    `json:"running" nullable:"true" doc:"Execution that runs in the session now."`
	Waiting              int       `json:"waiting" doc:"Number of executions that wait behind the running one."`
}

// MarshalJSON writes s as the server does.
func (s Session) MarshalJSON() ([]byte, error) { return encode(s, true) }

// Limits are the limits of a Session. MB are 2^20 bytes.
type Limits struct {
	TimeoutSeconds   float64 `json:"timeout_seconds"`
	CPUSeconds       float64 `json:"cpu_seconds" doc:"0: no limit."`
	MemoryMB         float64 `json:"memory_mb"`
	DiskMB           float64 `json:"disk_mb"`
	CPUShares        int64   `json:"cpu_shares"`
	PIDs             int64   `json:"pids"`
	OutputBytes      int64   `json:"output_bytes"`
	KillGraceSeconds float64 `json:"kill_grace_seconds"`
}

// Variable is a name in a Session's interpreter.
type Variable struct {
	Name    string `json:"name"`
	Type    string `json:"type" doc:"Type as the language names it."`
	Preview string `json:"preview" doc:"Short text form, at most 200 characters."`
}

// SessionList is the answer to the call that lists Sessions.
type SessionList struct {
	Sessions []Session `json:"sessions" doc:"Newest first."`
}

// Closed is the answer to the call that closes a Session.
type Closed struct {
	Status string `json:"status" enum:"active,lost,closed"`
}

// VariableList is the answer to the call that lists Variables.
type VariableList struct {
	Variables []Variable `json:"variables" doc:"Sorted by name."`
}

// Installed is the answer to the call that installs requirements.
type Installed struct {
	ResolvedRequirements []string `json:"resolved_requirements" doc:"All requirements that are installed now."`
}

// OpenSession opens a Session and returns when its interpreter is ready. Codes: invalid, denied, exhausted, unavailable,
// unimplemented (the backend has no sessions).
func (c *Client) OpenSession(ctx context.Context, spec SessionSpec) (*Session, error) {
	return pointer(ask[Session](ctx, c, post("open session").at(sessionsPath, nil).with(spec)))
}

// Session returns the present state of a Session.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	return pointer(ask[Session](ctx, c, get("get session", nil).at(sessionPath(id, ""))))
}

// Sessions returns active and lost Sessions and those that were closed recently, newest first.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	answer, err := ask[SessionList](ctx, c, get("list sessions", nil).at(sessionsPath, nil))
	return answer.Sessions, err
}

// RunInSession runs code in the Session's interpreter and returns the finished Execution with its output and displays. It is Run
// with Spec.SessionID. Submit and Events show output as it arrives.
func (c *Client) RunInSession(ctx context.Context, id, code string) (*Execution, error) {
	if id == "" { // it would run, in a sandbox of its own
		_, err := sessionPath(id, "")
		return nil, err
	}
	return c.Run(ctx, Spec{SessionID: id, Code: code}, Input{})
}

// InterruptSession stops the running Execution and waits for its end. The interpreter keeps its state unless it does not stop in
// time (Execution.SessionState). Without a running Execution the call has no effect. The call is never retried, because it could
// stop the next Execution.
func (c *Client) InterruptSession(ctx context.Context, id string) (*Session, error) {
	return pointer(ask[Session](ctx, c, post("interrupt session").at(sessionPath(id, "/interrupt"))))
}

// RestartSession restarts the interpreter: names and imports are lost, the running Execution is killed, and the files stay unless
// wipe is true. A lost Session is active again if its sandbox still exists. Codes: not_found, conflict, unavailable.
func (c *Client) RestartSession(ctx context.Context, id string, wipe bool) (*Session, error) {
	return pointer(ask[Session](ctx, c, post("restart session").at(sessionPath(id, "/restart")).with(Restart{Wipe: wipe})))
}

// CloseSession kills the running Execution, ends the sandbox and removes its files. It returns the status, "closed". Closing a
// closed Session is no error.
func (c *Client) CloseSession(ctx context.Context, id string) (status string, err error) {
	answer, err := ask[Closed](ctx, c, remove("close session").at(sessionPath(id, "")))
	return answer.Status, err
}

// Variables returns the names of the interpreter, sorted. It waits for the running Execution. Codes: not_found, conflict (not
// active), exhausted, unimplemented (the language has none).
func (c *Client) Variables(ctx context.Context, id string) ([]Variable, error) {
	answer, err := ask[VariableList](ctx, c, get("variables", nil).at(sessionPath(id, "/variables")))
	return answer.Variables, err
}

// AddRequirements installs requirements (text in the form of a requirements.txt) without a restart. It returns all requirements of
// the Session. Codes: not_found, conflict, exhausted, invalid (unresolvable), unimplemented.
func (c *Client) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	what := post("add requirements").at(sessionPath(id, "/requirements")).with(Requirements{RequirementsTxt: requirements})
	what.idempotent = true // installed requirements are not installed again
	answer, err := ask[Installed](ctx, c, what)
	return answer.ResolvedRequirements, err
}

const sessionsPath = "/api/v1/sessions"

var errNoSession = errors.New("no session has that id")

// sessionPath returns the path of a Session, followed by rest. An id that cannot be a segment of a path is not found.
func sessionPath(id, rest string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", &Error{Code: CodeNotFound, Status: http.StatusNotFound, Message: "no session has the id " + strconv.Quote(id), Err: errNoSession}
	}
	return sessionsPath + "/" + url.PathEscape(id) + rest, nil
}

func (s Session) id() string { return s.SessionID }
