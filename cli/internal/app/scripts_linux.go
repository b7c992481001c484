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
	if !hasScripts(c) {
		return backends, nil
	}
	b, err := newScripts(c, workDir, version, log)
	if err != nil {
		return nil, err
	}
	stack.add(func(context.Context) error { return closeScripts(b) })
	all := maps.Clone(backends)
	all[scripts.Name] = b
	return all, nil
}

// hasScripts reports whether c needs the backend for host scripts.
func hasScripts(c config.Config) bool {
	_, overridden := c.Backends[scripts.Name]
	return len(c.Scripts.Allowed) > 0 && !overridden
}

func newScripts(c config.Config, workDir, version string, log *slog.Logger) (executor.Backend, error) {
	return scripts.New(scripts.Options{Policy: c.Scripts.Below(c.DataDir), WorkDir: workDir, Version: version, Log: log})
}

// closeScripts closes b if it is the backend for host scripts. The host closes the others.
func closeScripts(b executor.Backend) error {
	if s, ok := b.(*scripts.Backend); ok {
		return s.Close()
	}
	return nil
}
