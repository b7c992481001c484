package session

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
	"github.com/python-executor/python-executor/core/runner/protocol"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// Waiting is an interpreter of Python that has its driver, and no session yet. It is a child of the runner, which nobody waits for.
type Waiting struct {
	ahead  protocol.Ahead
	interp *Interpreter
}

// Wait starts an interpreter in a container where nothing else runs. It does not wait until the interpreter is ready.
func Wait(b *sandbox.Sandbox, ahead protocol.Ahead) (_ *Waiting, err error) {
	cfg := b.Config
	driver, err := drivers.For(executor.LanguagePython, []string{ahead.Interpreter})
	if err != nil {
		return nil, err
	}
	env, err := sandbox.Environment(protocol.Start{Path: ahead.Path, Env: driver.Env}, &sandbox.Folder{Path: cfg.WorkRoot, Temp: cmp.Or(cfg.Temp, "/tmp")})
	if err != nil {
		return nil, err
	}
	i := newInterpreter()
	defer func() {
		if err != nil {
			i.closeFiles()
		}
	}()
	theirs, err := i.connect(cfg)
	defer func() {
		for _, fd := range theirs {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return nil, err
	}
	got := b.Spawner(true).Start(sandbox.Job{
		Path: ahead.Interpreter, Argv: slices.Concat([]string{ahead.Interpreter}, driver.Command), Env: env, Dir: cfg.WorkRoot, Files: theirs,
		UID: cfg.UID, GID: cfg.GID, OwnUID: cfg.OwnUID, Group: &sandbox.Group{Everything: true}, Inside: b.Inside,
	})
	if got.Err != nil {
		return nil, fmt.Errorf("start the interpreter: %w", got.Err)
	}
	i.PID, i.loaded = got.PID, true
	_ = i.control.SetWriteDeadline(time.Now().Add(startPatience))
	if _, err = i.control.Write(driver.First); err != nil {
		return nil, fmt.Errorf("load the driver: %w", err)
	}
	_ = i.control.SetWriteDeadline(time.Time{})
	return &Waiting{ahead, i}, nil
}

// Fits reports whether a session like start can have the interpreter.
func (w *Waiting) Fits(start protocol.SessionStart) bool {
	python := start.Language == executor.LanguageDefault || start.Language == executor.LanguagePython
	return python && slices.Equal(start.Interpreter, []string{w.ahead.Interpreter}) && start.Path == w.ahead.Path && len(start.Env) == 0
}

// Close closes the runner's ends. It does not end the process. Idempotent. w may be nil.
func (w *Waiting) Close() {
	if w != nil {
		w.interp.closeFiles()
	}
}

// adoptWaiting makes the interpreter that waits that of the session. It returns nil if there is none.
func (s *Session) adoptWaiting() *Interpreter {
	if s.waiting == nil {
		return nil
	}
	i := s.waiting.interp
	s.waiting, i.session = nil, s
	var err error
	if i.Group, err = s.NewGroup(); err == nil {
		_, err = s.sandbox.Admit(i.PID, s.job(i.Group))
	}
	if i.process = s.Reaper.Adopt(i.PID); i.process == nil {
		i.release()
		return nil
	}
	i.follow()
	if err != nil {
		i.stop()
		return nil
	}
	return i
}

// job is what all interpreters of the session have in common.
func (s *Session) job(g *sandbox.Group) sandbox.Job {
	cfg := s.sandbox.Config
	return sandbox.Job{UID: cfg.UID, GID: cfg.GID, OwnUID: cfg.OwnUID, Group: g, Limits: s.Start.Limits, Inside: s.sandbox.Inside}
}
