// Package workers sends Executions to resident workers that Nomad keeps running: the mode workers of the Nomad backend.
package workers

import (
	"context"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// Options are what New needs.
type Options struct {
	// Client is the client of Nomad's API. The backend does not close it.
	Client *api.Client
	// Config is valid.
	Config Config
	// Configure is what the plugin was started with.
	Configure plugin.Configure
}

// New returns the backend. Codes: unavailable, internal.
func New(context.Context, Options) (executor.Backend, error) {
	return nil, executor.Errorf(executor.Unimplemented, "the mode workers of the Nomad backend is not in this version")
}

// Doctor checks what the mode needs of the cluster. It changes nothing. ctx bounds it.
func Doctor(context.Context, *api.Client, Config) []backend.Finding { return nil }
