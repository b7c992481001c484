package app

import (
	"context"
	"encoding/json"
)

// Bundle is what is linked into this binary. cli/bundled_*.go lists it in plain sight.
type Bundle struct {
	// Version of the program.
	Version string
	// Plugins by command name ("backend-uv").
	Plugins map[string]Plugin
	// Frontends are the mains of frontend plugins, by command name ("frontend-mcp").
	Frontends map[string]func(version string)
	// Runner is the `runner` command; nil where there is none.
	Runner func(args []string) int
}

// Plugin is a bundled backend plugin.
type Plugin struct {
	// Type is the backend's type in the configuration ("uv").
	Type string
	// Serve is the whole of the plugin's main.
	Serve func(version string)
	// Filled is a section with the defaults of what it leaves out, as JSON.
	Filled func(section json.RawMessage) json.RawMessage
	// UIDs is the range of users that run programs for a section; ok is false where programs run as the plugin's own user.
	// nil: the programs do not run on this host's network.
	UIDs func(section json.RawMessage) (first, last int, ok bool)
	// Check validates the section of the backend called name without starting anything.
	Check func(name string, section json.RawMessage) error
	// Doctor looks at what the backend would find on this machine, without starting it.
	Doctor func(ctx context.Context, section json.RawMessage) []Finding
}

// Level says how much a Finding matters.
type Level string

// The levels.
const (
	LevelOK    Level = "ok"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// Finding is one thing that doctor found.
type Finding struct {
	Level   Level  `json:"level"`
	Topic   string `json:"topic"`
	Message string `json:"message"`
	// Remedy is what to do about it; empty where nothing is to do.
	Remedy string `json:"remedy,omitempty"`
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
