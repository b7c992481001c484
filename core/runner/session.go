package runner

import (
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// OpenSession opens a session and returns when its interpreter is ready. Until CloseSession the runner only runs Executions
// with Start.Session. ctx bounds the opening; when it ends, what was opened is closed. Codes: conflict (a session is open),
// invalid (Interpreter cannot be executed, or runs out of memory), unavailable (the interpreter does not start, or the runner
// is gone).
func (c *Conn) OpenSession(ctx context.Context, start SessionStart) error {
	if !c.acquire(ctx) {
		return executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	_, err := c.ask(ctx, protocol.SessionCall{Op: protocol.CallOpen, Start: &start})
	if err != nil && ctx.Err() != nil {
		// The next caller must not find a session that is still being opened.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatienceOfHost)
		defer cancel()
		err = errors.Join(err, c.CloseSession(ctx))
	}
	return err
}

// killPatienceOfHost is how long a host waits for a session's end.
const killPatienceOfHost = 15 * time.Second

// RestartSession kills the interpreter with all it started, and what runs in the session, whose Run returns StatusKilled. Then
// it starts a new interpreter. wipe empties the work folder between. Codes: not_found (no session is open), unavailable.
func (c *Conn) RestartSession(ctx context.Context, wipe bool) error {
	_, err := c.ask(ctx, protocol.SessionCall{Op: protocol.CallRestart, Wipe: wipe})
	return err
}

// CloseSession kills everything in the session and removes its files. The runner is then as it was before OpenSession.
// Idempotent. Codes: unavailable.
func (c *Conn) CloseSession(ctx context.Context) error {
	_, err := c.ask(ctx, protocol.SessionCall{Op: protocol.CallClose})
	return err
}

// Variables lists the interpreter's variables, sorted by name, at most 1,000. It waits for its turn. Codes: not_found, conflict
// (the interpreter has ended), unavailable (it does not answer), unimplemented (the language has none).
func (c *Conn) Variables(ctx context.Context) ([]executor.Variable, error) {
	r, err := c.askInTurn(ctx, protocol.SessionCall{Op: protocol.CallVariables})
	return r.Variables, err
}

// AddPath adds the folder dir, of the interpreter's own file system, to the module search path of the interpreter and of every
// Command. It waits for its turn, and survives a restart. Codes: not_found, conflict, unavailable, unimplemented (the language
// is not python).
func (c *Conn) AddPath(ctx context.Context, dir string) error {
	_, err := c.askInTurn(ctx, protocol.SessionCall{Op: protocol.CallPath, Path: dir})
	return err
}

// askInTurn is ask while no Execution runs.
func (c *Conn) askInTurn(ctx context.Context, req protocol.SessionCall) (protocol.SessionReply, error) {
	if !c.acquire(ctx) {
		return protocol.SessionReply{}, executor.Errorf(executor.Unavailable, "runner: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	return c.ask(ctx, req)
}

// minLimits are the limits with which interpreters and drivers start, without preloaded modules. With less they are killed, or
// wait for ever for threads that they cannot start.
var minLimits = map[executor.Language]struct{ memoryBytes, pids int64 }{
	executor.LanguagePython:     {memoryBytes: 16 << 20, pids: 1},
	executor.LanguageJavaScript: {memoryBytes: 64 << 20, pids: 12},
	executor.LanguageShell:      {memoryBytes: 8 << 20, pids: 2},
}

// SessionFits returns an error of code invalid if limits are too low for a session in language. It names the field and the
// lowest number. Backends call it before they make a sandbox.
func SessionFits(language executor.Language, limits executor.Limits) error {
	if language == executor.LanguageDefault {
		language = executor.LanguagePython
	}
	minimum := minLimits[language]
	if limits.MemoryBytes > 0 && limits.MemoryBytes < minimum.memoryBytes {
		return executor.FieldErrorf(executor.Invalid, "config.memory_mb", "must be at least %d for a session in %s (got %d)", minimum.memoryBytes>>20, language, limits.MemoryBytes>>20)
	}
	if limits.PIDs > 0 && limits.PIDs < minimum.pids {
		return executor.FieldErrorf(executor.Invalid, "config.pids", "must be at least %d for a session in %s (got %d)", minimum.pids, language, limits.PIDs)
	}
	return nil
}
