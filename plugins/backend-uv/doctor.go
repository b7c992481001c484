package uvbackend

import "context"

// Level says how much a Finding matters.
type Level string

// The levels.
const (
	// LevelOK: works.
	LevelOK Level = "ok"
	// LevelWarn: works, with less than there could be.
	LevelWarn Level = "warn"
	// LevelError: does not work.
	LevelError Level = "error"
)

// Finding is one thing that Doctor found.
type Finding struct {
	Level Level `json:"level"`
	// Topic is what it is about: "python", "uv", "network", …
	Topic   string `json:"topic"`
	Message string `json:"message"`
	// Remedy is what to do about it; empty where nothing is to do.
	Remedy string `json:"remedy,omitempty"`
}

// Doctor looks at what a backend with configuration c would find on this machine: interpreters, uv, the index, what can
// be enforced. It changes nothing but the caches, and starts nothing that outlives it. ctx bounds it.
func Doctor(ctx context.Context, c Config) []Finding { return nil }
