package app

import (
	"context"
	"encoding/json"

	"github.com/python-executor/python-executor/core/backend"
)

// Bundle has the plugins that are linked into this binary. cli/bundled_*.go lists them.
type Bundle struct {
	// Version of the program.
	Version string
	// Plugins by command name ("backend-uv").
	Plugins map[string]Plugin
	// Frontends are the mains of frontend plugins, by command name ("frontend-mcp").
	Frontends map[string]func(version string)
	// Runner is the `runner` command; nil if this system has none.
	Runner func(args []string) int
}

// Plugin is a bundled backend plugin.
type Plugin struct {
	// Type is the backend's type in the configuration ("uv").
	Type string
	// Serve is the plugin's main function.
	Serve func(version string)
	// Local makes the backend in the process of a command that runs one program. The programs of such a backend must end by
	// themselves when that process is killed. nil: the backend always has a process of its own.
	Local LocalFactory
	// Filled is a section with the defaults of what it leaves out, as JSON.
	Filled func(section json.RawMessage) json.RawMessage
	// UIDs returns the range of users that run the programs of a section; ok is false if programs run as the plugin's own user.
	// UIDs is nil if the programs do not run on this host's network.
	UIDs func(section json.RawMessage) (first, last int, ok bool)
	// Check validates the section of the backend called name without starting anything.
	Check func(name string, section json.RawMessage) error
	// Doctor checks what the backend would find on this machine, without starting it.
	Doctor func(ctx context.Context, section json.RawMessage) []backend.Finding
}

// ByType returns the bundled plugin of a backend type, and its command's name.
func (b Bundle) ByType(typ string) (command string, p Plugin, ok bool) {
	for command, p := range b.Plugins {
		if p.Type == typ {
			return command, p, true
		}
	}
	return "", Plugin{}, false
}

// Sections are the default sections by type.
func (b Bundle) Sections() map[string]json.RawMessage {
	sections := map[string]json.RawMessage{}
	for _, p := range b.Plugins {
		if p.Filled != nil {
			sections[p.Type] = p.Filled(nil)
		}
	}
	return sections
}
