package nomadbackend

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/plugins/backend-nomad/jobs"
	"github.com/python-executor/python-executor/plugins/backend-nomad/workers"
)

var _ plugin.Factory = Factory

// Factory makes the backend of the configured mode from its section of the configuration. Codes: invalid, unavailable, internal.
func Factory(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
	config, err := parseConfig(c.Name, c.Options)
	if err != nil {
		return nil, err
	}
	if config.nomadFree() {
		return workers.New(ctx, workers.Options{Config: config.Workers, Configure: c})
	}
	client, err := newClient(c.Name, config)
	if err != nil {
		return nil, err
	}
	if config.Mode == ModeWorkers {
		return workers.New(ctx, workers.Options{Client: client, Config: config.Workers, Configure: c})
	}
	return jobs.New(ctx, jobs.Options{Client: client, Config: config.Job, Configure: c})
}
