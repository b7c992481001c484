package app

import (
	"encoding/json"
	"log/slog"

	"github.com/python-executor/python-executor/core/config"
)

// EmbeddedOptions are for Embedded.
type EmbeddedOptions struct {
	// Config is the whole configuration. Limits may be executor.Unlimited in OutputBytes.
	Config config.Config
	Bundle Bundle
	// Lasting reports whether the engine serves more than one call. Config.Engine then bounds the calls at once, and runners stay
	// warm.
	Lasting bool
	// Parallel is how many Executions of a single call run at once, at most those of Config.Engine. Default 1.
	Parallel int
	// Log takes the log of host, plugins and engine.
	Log *slog.Logger
}

// ServeOptions are for Serve.
type ServeOptions struct {
	Config config.Config
	Bundle Bundle
	// File is the file of Config, which is watched; empty: none. Reload reads the configuration again, after the file has changed
	// and for each value of Hangups. Reload and Hangups may be nil.
	File    string
	Reload  func() (config.Config, error)
	Hangups <-chan struct{}
	// TestFixtures adds the tools of the conformance suite of MCP. MCP must then listen on loopback.
	TestFixtures bool
	Log          *slog.Logger
}

// CheckOptions are for CheckPlugin.
type CheckOptions struct {
	// Path of the plugin program, and the SHA-256 that it must have; empty: any.
	Path   string
	SHA256 string
	// Section is the configuration of the plugin, as JSON.
	Section json.RawMessage
	// Rules to check; empty: all.
	Rules []string
	// Image for a backend that needs one.
	Image string
	Log   *slog.Logger
}

// Rule is the result of one rule of the contract.
type Rule struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Errors  []string `json:"errors"`
	Skipped string   `json:"skipped,omitempty"`
}
