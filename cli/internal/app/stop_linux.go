package app

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/engine"
)

// lastGrace is how long the engine may take to stop after the second request to stop. Then its plugins are stopped, so that a plugin
// that hangs, or a program with a long kill grace, does not delay the end.
const lastGrace = 1500 * time.Millisecond

// stopEngine closes e. At the second request to stop it also closes its backends, after lastGrace.
func stopEngine(ctx context.Context, e *engine.Engine, backends interface{ Close(context.Context) error }) error {
	closed := make(chan error, 1)
	go func() { closed <- e.Close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-stop.Now(ctx):
	}
	last := time.NewTimer(lastGrace)
	defer last.Stop()
	select {
	case err := <-closed:
		return err
	case <-last.C:
	}
	now, cancel := stop.Within(ctx, 0, nil)
	defer cancel()
	_ = backends.Close(now) // their own closer reports it
	return <-closed
}
