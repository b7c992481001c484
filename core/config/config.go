package config

import (
	"encoding/json"
	"time"
)

// Config is the whole configuration. JSON names are the keys of the file; environment variables are PYEXEC_ and the key
// in capitals with _ for the dots.
type Config struct {
	HTTP HTTP `json:"http"`
	// DataDir holds the store and the blobs. Default: as root /var/lib/python-executor, else
	// ${XDG_STATE_HOME:-~/.local/state}/python-executor.
	DataDir string `json:"data_dir"`
	// Backend names the default entry of Backends. Default "uv".
	Backend string `json:"backend"`
	// Backends are the configured backends by name; every entry is started.
	Backends  map[string]Backend `json:"backends"`
	Engine    Engine             `json:"engine"`
	Limits    LimitRange         `json:"limits"`
	Retention Retention          `json:"retention"`
	Sessions  Sessions           `json:"sessions"`
	MCP       MCP                `json:"mcp"`
	Scripts   Scripts            `json:"scripts"`
}

// HTTP configures the HTTP frontend.
type HTTP struct {
	// Bind is the listening address. Default "127.0.0.1:8080". An address that is not loopback needs Tokens or
	// AllowUnauthenticated.
	Bind string `json:"bind"`
	// MaxBodyBytes bounds a request body. Default 8 GiB.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MaxBufferedBytes bounds the request bodies that are held in memory at once, in the HTTP frontend and in the MCP frontend
	// each. Default 256 MiB.
	MaxBufferedBytes int64 `json:"max_buffered_bytes"`
	// AllowUnauthenticated lets everybody in on any address. Default false.
	AllowUnauthenticated bool `json:"allow_unauthenticated"`
	// Tokens are the accepted bearer tokens; with any, a request without one is refused.
	Tokens []Token `json:"tokens"`
}

// Token is one bearer token, by its hash.
type Token struct {
	// Owner of what the bearer makes.
	Owner string `json:"owner"`
	// SHA256 is the lower-case hex SHA-256 of the token.
	SHA256 string `json:"sha256"`
	// Scopes of exec, read, admin, scripts, trusted. Default exec and read.
	Scopes []string `json:"scopes"`
}

// Backend is one entry of Backends.
type Backend struct {
	// Type is the implementation. Default: the entry's name.
	Type string
	// Path and SHA256 (hex) name an external plugin program; both or none.
	Path   string
	SHA256 string
	// Options is the rest of the section, as JSON for the plugin.
	Options json.RawMessage
}

// UnmarshalJSON takes type, path and sha256 out of the section and keeps the rest as Options.
func (b *Backend) UnmarshalJSON(raw []byte) error {
	var known struct {
		Type   string `json:"type"`
		Path   string `json:"path"`
		SHA256 string `json:"sha256"`
	}
	if err := json.Unmarshal(raw, &known); err != nil {
		return err
	}
	var rest map[string]json.RawMessage
	if err := json.Unmarshal(raw, &rest); err != nil {
		return err
	}
	delete(rest, "type")
	delete(rest, "path")
	delete(rest, "sha256")
	if rest == nil {
		rest = map[string]json.RawMessage{}
	}
	options, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	*b = Backend{Type: known.Type, Path: known.Path, SHA256: known.SHA256, Options: options}
	return nil
}

// MarshalJSON writes the section as UnmarshalJSON reads it.
func (b Backend) MarshalJSON() ([]byte, error) {
	all := map[string]json.RawMessage{}
	if len(b.Options) > 0 {
		if err := json.Unmarshal(b.Options, &all); err != nil {
			return nil, err
		}
	}
	for key, value := range map[string]string{"type": b.Type, "path": b.Path, "sha256": b.SHA256} {
		if value != "" {
			quoted, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			all[key] = quoted
		}
	}
	return json.Marshal(all)
}

// Engine configures admission.
type Engine struct {
	// MaxConcurrent bounds the Executions that run at once. Default 2 × cores, at least 4.
	MaxConcurrent int `json:"max_concurrent"`
	// MaxQueued bounds those that wait. Default 1,000; 0: nothing waits.
	MaxQueued int `json:"max_queued"`
	// MaxPerOwner bounds an owner's waiting and running Executions together; 0 = no bound. Default: Config.ShareExecutions.
	MaxPerOwner int `json:"max_per_owner"`
	// DrainTimeoutSeconds is how long a stopping server lets running Executions finish. Default 30; 0: they end at once.
	DrainTimeoutSeconds float64 `json:"drain_timeout_seconds"`
}

// DrainTimeout returns DrainTimeoutSeconds.
func (e Engine) DrainTimeout() time.Duration { return seconds(e.DrainTimeoutSeconds) }

// LimitRange holds what an Execution gets when it does not ask, and the most it may ask for.
type LimitRange struct {
	Default Limits `json:"default"`
	Max     Limits `json:"max"`
}

// Limits in the units of the configuration and of the HTTP metadata. MB = 2^20 bytes.
type Limits struct {
	TimeoutSeconds   float64 `json:"timeout_seconds"`
	MemoryMB         int64   `json:"memory_mb"`
	DiskMB           int64   `json:"disk_mb"`
	CPUShares        int64   `json:"cpu_shares"`
	PIDs             int64   `json:"pids"`
	OutputBytes      int64   `json:"output_bytes"`
	KillGraceSeconds float64 `json:"kill_grace_seconds"`
}

// Retention says how long finished Executions are kept; whichever bound is reached first. 0 = that bound is off.
type Retention struct {
	// MaxAgeSeconds since they finished. Default 86,400.
	MaxAgeSeconds float64 `json:"max_age_seconds"`
	// MaxExecutions in all. Default 10,000.
	MaxExecutions int `json:"max_executions"`
	// MaxBytes of what was asked for (its code, above all), logs and blobs. Default 10 GiB.
	MaxBytes int64 `json:"max_bytes"`
}

// Sessions bounds the Sessions. A Session may ask for shorter times than these, not for longer ones.
type Sessions struct {
	// Max bounds those that are open (active or lost) at once. Default 100; 0: there are none.
	Max int `json:"max"`
	// MaxPerOwner bounds an owner's; 0 = no bound but Max. Default: Config.ShareSessions.
	MaxPerOwner int `json:"max_per_owner"`
	// MaxWaiting bounds the Executions that wait for one Session. Default 16; 0: nothing waits.
	MaxWaiting int `json:"max_waiting"`
	// IdleTimeoutSeconds closes a Session that was not used for so long. Default 1,800.
	IdleTimeoutSeconds float64 `json:"idle_timeout_seconds"`
	// EvictIdleSeconds: at a bound a new Session takes the place of its owner's least recently used one that has been idle
	// for so long. Default 300; 0: never.
	EvictIdleSeconds float64 `json:"evict_idle_seconds"`
	// MaxLifeSeconds closes a Session whatever happens. Default 86,400.
	MaxLifeSeconds float64 `json:"max_life_seconds"`
	// MaxFileBytes bounds one file that is written into a Session. Default 1 GiB.
	MaxFileBytes int64 `json:"max_file_bytes"`
	// KeepClosedSeconds is how long a closed Session is still listed, the last 1,000 at most. Default 3,600; 0: not at all.
	KeepClosedSeconds float64 `json:"keep_closed_seconds"`
	// Preload names Python modules that a Session's interpreter imports before it is ready; one that it does not have is
	// passed over. Default none.
	Preload []string `json:"preload"`
}

// IdleTimeout returns IdleTimeoutSeconds.
func (s Sessions) IdleTimeout() time.Duration { return seconds(s.IdleTimeoutSeconds) }

// MaxLife returns MaxLifeSeconds.
func (s Sessions) MaxLife() time.Duration { return seconds(s.MaxLifeSeconds) }

// KeepClosed returns KeepClosedSeconds.
func (s Sessions) KeepClosed() time.Duration { return seconds(s.KeepClosedSeconds) }

// TypeOr returns the implementation of the entry called name.
func (b Backend) TypeOr(name string) string {
	if b.Type != "" {
		return b.Type
	}
	return name
}
