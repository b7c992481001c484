package uvbackend

import (
	"context"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

var _ plugin.Factory = Factory

// Factory makes the backend from its section of the configuration. Codes: invalid, unavailable, internal.
func Factory(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
	if _, err := parseConfig(c.Name, c.Options); err != nil {
		return nil, err
	}
	return nil, executor.Errorf(executor.Unimplemented, "the uv backend is not there yet")
}
