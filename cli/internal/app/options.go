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
	// Lasting: for more than one call: as many at once as Config.Engine says, and what is warm stays warm.
	Lasting bool
	// Log takes what host, plugins and engine have to say.
	Log *slog.Logger
}

// ServeOptions are for Serve.
type ServeOptions struct {
	Config config.Config
	Bundle Bundle
	// TestFixtures adds what the conformance suite of MCP needs; refused unless MCP listens on loopback.
	TestFixtures bool
	Log          *slog.Logger
}

// CheckOptions are for CheckPlugin.
type CheckOptions struct {
	// Path of the plugin program.
	Path string
	// Section is its configuration, as JSON.
	Section json.RawMessage
	// Rules to check; empty: all.
	Rules []string
	// Image for a backend that needs one.
	Image string
	Log   *slog.Logger
}

// Rule is how a plugin did on one rule of the contract.
type Rule struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Errors  []string `json:"errors"`
	Skipped string   `json:"skipped,omitempty"`
}
