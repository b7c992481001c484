package plugin

import (
	"context"
	"log/slog"

	"github.com/python-executor/python-executor/core/executor"
)

// LaunchOptions says which program to start, and how.
type LaunchOptions struct {
	// Path is the program. Args is its whole argv; empty: Path alone.
	Path string
	Args []string
	// SHA256 is the hex digest that the file at Path must have; empty: not checked.
	SHA256 string
	// Env is added to the allow-listed environment, as "KEY=value".
	Env []string
	// RunDir is a folder of ours with a short path; Launch makes a private one in it for the socket, and removes it.
	RunDir string
	// Configure is sent to the plugin.
	Configure Configure
	// Log takes the plugin's log; nil drops it.
	Log *slog.Logger
}

// Process is one running plugin process.
type Process struct{}

// Launch starts a plugin, configures it and waits until it is ready. ctx bounds the start only. Codes: invalid (its
// configuration, or a digest that does not match), not_found (no such file), unavailable.
func Launch(ctx context.Context, o LaunchOptions) (*Process, error) {
	return nil, executor.Errorf(executor.Unimplemented, "plugins cannot be started yet")
}

// Backend returns the plugin's backend. Its methods answer unavailable once the process is gone or drains.
func (p *Process) Backend() executor.Backend { return nil }

// Info returns what the plugin said when it was ready.
func (p *Process) Info() executor.Info { return executor.Info{} }

// PID returns the process's number.
func (p *Process) PID() int { return 0 }

// Done is closed when the process is gone, or its stream has ended.
func (p *Process) Done() <-chan struct{} { return nil }

// Drain refuses new calls, waits until the running ones have ended, and has the plugin close its backend. ctx bounds it.
func (p *Process) Drain(ctx context.Context) error { return nil }

// Kill ends the process and removes its folder. A plugin that was not drained first gets a few seconds to stop what it
// runs. Idempotent.
func (p *Process) Kill() {}

// Requested reports whether this process was started as a plugin by a host.
func Requested() bool { return false }
