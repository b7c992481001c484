package runner

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// SessionStart asks a runner to open a session: a work folder that lives as long as the session, and in it an interpreter
// that keeps what one Execution leaves for the next.
type SessionStart struct {
	SessionID string `json:"session_id"`
	// Language says which of the embedded drivers the interpreter runs. Default python.
	Language executor.Language `json:"language,omitempty"`
	// Interpreter is an argv prefix: python, node, or bash (else sh), with options if need be. Interpreter[0] without a slash
	// is looked up on Env's PATH.
	Interpreter []string `json:"interpreter"`
	// Env and Path are what Start's are; for the interpreter and for every Command.
	Env  map[string]string `json:"env,omitempty"`
	Path string            `json:"path"`
	// Reach is what Start's is.
	Reach []string `json:"reach,omitempty"`
	// Network: the host's network is allowed.
	Network bool `json:"network"`
	// Limits bind the interpreter and all Commands together. KillGrace is how long an interrupted interpreter has to come
	// back; Timeout and OutputBytes are each Start's own.
	Limits executor.Limits `json:"limits"`
	// Preload names modules that the interpreter imports before it is ready; those that cannot be imported are passed over.
	Preload []string `json:"preload,omitempty"`
}

// OpenSession makes the sandbox of a session and returns when its interpreter is ready. Until CloseSession the runner runs
// Executions with Start.Session only. ctx bounds the opening; its end closes what was opened. Codes: conflict (one is open),
// invalid (Interpreter cannot be executed, it runs out of memory before it is ready), unavailable (the interpreter does not come up, the runner went away).
func (c *Conn) OpenSession(ctx context.Context, start SessionStart) error {
	if !c.acquire(ctx) {
		return executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	_, err := c.ask(ctx, sessionCall{Op: callOpen, Start: &start})
	if err != nil && ctx.Err() != nil {
		// Whoever comes next must not meet one that is still being opened, or has just been.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatienceOfHost)
		defer cancel()
		err = errors.Join(err, c.CloseSession(ctx))
	}
	return err
}

// killPatienceOfHost is how long a host waits until something is dead.
const killPatienceOfHost = 15 * time.Second

// RestartSession kills the interpreter and all it started, and what runs in the session (its Run returns StatusKilled), and
// starts the interpreter anew; with wipe it empties the work folder between. Codes: not_found (no session is open),
// unavailable.
func (c *Conn) RestartSession(ctx context.Context, wipe bool) error {
	_, err := c.ask(ctx, sessionCall{Op: callRestart, Wipe: wipe})
	return err
}

// CloseSession kills everything in the session and removes its files. The runner is then as it was before OpenSession.
// Idempotent. Codes: unavailable.
func (c *Conn) CloseSession(ctx context.Context) error {
	_, err := c.ask(ctx, sessionCall{Op: callClose})
	return err
}

// Variables lists the interpreter's, sorted by name, at most 1,000. It waits for what runs. Codes: not_found, conflict (the
// interpreter died), unavailable (it does not answer), unimplemented (the language has none).
func (c *Conn) Variables(ctx context.Context) ([]executor.Variable, error) {
	if !c.acquire(ctx) {
		return nil, executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	r, err := c.ask(ctx, sessionCall{Op: callVariables})
	return r.Variables, err
}

// AddPath lets the interpreter, and every Command, find what is installed in the folder dir of the interpreter's own file
// system: python's module search path; for other languages unimplemented. It waits for what runs, and survives a restart.
// Codes: not_found, conflict, unavailable, unimplemented.
func (c *Conn) AddPath(ctx context.Context, dir string) error {
	if !c.acquire(ctx) {
		return executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	_, err := c.ask(ctx, sessionCall{Op: callPath, Path: dir})
	return err
}

// callHeader is the number of a call (4 bytes, big-endian), in front of what belongs to it.
const callHeader = 4
