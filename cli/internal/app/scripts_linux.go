package app

import (
	"context"
	"log/slog"
	"maps"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/scripts"
)

// withScripts adds the backend for host scripts if any are allowed. An entry of the configuration with the same name overrides it.
func withScripts(c config.Config, backends map[string]executor.Backend, workDir, version string, stack *closers, log *slog.Logger) (map[string]executor.Backend, error) {
	if len(c.Scripts.Allowed) == 0 || backends[scripts.Name] != nil {
		return backends, nil
	}
	b, err := scripts.New(scripts.Options{Policy: c.Scripts, WorkDir: workDir, Version: version, Log: log})
	if err != nil {
		return nil, err
	}
	stack.add(func(context.Context) error { return b.Close() })
	all := maps.Clone(backends)
	all[scripts.Name] = b
	return all, nil
}
