package plugin

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/python-executor/python-executor/core/executor"
)

// Configure is what a plugin is told at its start.
type Configure struct {
	// Name is the backend's name in the configuration.
	Name string
	// Instance identifies the core's installation; it stays the same across restarts over one data folder.
	Instance string
	// Embedded: the engine of a single CLI call: use little, and leave nothing behind.
	Embedded bool
	// DataDir is a folder that outlives the process, for the plugin's own use.
	DataDir string
	// Options is the backend's section of the configuration, as JSON.
	Options json.RawMessage
	// Log reaches the host's log. It is made on the plugin's side and does not cross.
	Log *slog.Logger
}

// Factory makes the Backend of a plugin. ctx bounds the making only. Bad options are an executor.Error with code invalid
// whose Fields name "backends.<name>.<key>"; unknown keys are bad. If the Backend is an io.Closer, it is closed (in
// bounded time) when the plugin drains and when its host is gone.
type Factory func(ctx context.Context, c Configure) (executor.Backend, error)

// ServeBackend is the whole of a plugin's main. It returns when the host has stopped the plugin, or exits the process.
func ServeBackend(typ, version string, f Factory) {
	_, _, _ = typ, version, f
}
