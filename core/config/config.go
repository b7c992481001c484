package config

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Config is the whole configuration. The JSON names are the keys of the file. The environment variable of a key is PYEXEC_
// and the key in capitals with _ for the dots.
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
	Worker    Worker             `json:"worker"`
}

// HTTP configures the HTTP frontend.
type HTTP struct {
	// Bind is the listening address. Default "127.0.0.1:8080". An address that is not loopback needs Tokens or
	// AllowUnauthenticated.
	Bind string `json:"bind"`
	// PprofBind is the loopback address of the endpoints below /debug/pprof/, which profile this process. They need no token.
	// Default "": there are none.
	PprofBind string `json:"pprof_bind"`
	// MaxBodyBytes bounds a request body. Default 8 GiB.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MaxBufferedBytes bounds the request bodies that are held in memory at once, in the HTTP frontend and in the MCP frontend
	// each. Default 256 MiB.
	MaxBufferedBytes int64 `json:"max_buffered_bytes"`
	// AllowUnauthenticated accepts requests without a token on any address. Default false.
	AllowUnauthenticated bool `json:"allow_unauthenticated"`
	// Tokens are the accepted bearer tokens. If there are tokens, every request needs one.
	Tokens []Token `json:"tokens"`
}

// Token is one bearer token, by its hash.
type Token struct {
	// Owner owns the Executions and Sessions that are made with the token.
	Owner string `json:"owner"`
	// SHA256 is the lower-case hex SHA-256 of the token.
	SHA256 string `json:"sha256"`
	// Scopes are those of the token, of exec, read, admin, scripts and trusted. Default exec and read.
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
	// MaxQueued bounds the Executions that wait. Default 1,000; 0: Executions never wait.
	MaxQueued int `json:"max_queued"`
	// MaxPerOwner bounds an owner's waiting and running Executions together; 0 = no bound. Default: Config.ShareExecutions.
	MaxPerOwner int `json:"max_per_owner"`
	// MaxRunningPerOwner bounds an owner's running Executions; 0 = no bound. While it is not 0, the last free slot is for an owner that has
	// none running. Default: Config.ShareRunning.
	MaxRunningPerOwner int `json:"max_running_per_owner"`
	// MaxArtifactBytes bounds the files that one Execution keeps, besides its disk_mb; 0 = no bound. A file counts with its size, whatever
	// holes it has. Default 2 GiB.
	MaxArtifactBytes int64 `json:"max_artifact_bytes"`
	// MaxSpoolBytes bounds the inputs that lie on disk for waiting and running Executions; 0 = no bound. Default 64 GiB.
	MaxSpoolBytes int64 `json:"max_spool_bytes"`
	// MaxSpoolBytesPerOwner bounds those of one owner; 0 = no bound. Default: Config.ShareSpool.
	MaxSpoolBytesPerOwner int64 `json:"max_spool_bytes_per_owner"`
	// DrainTimeoutSeconds is how long a stopping server lets running Executions finish. Default 30; 0: they end immediately.
	DrainTimeoutSeconds float64 `json:"drain_timeout_seconds"`
}

// DrainTimeout returns DrainTimeoutSeconds.
func (e Engine) DrainTimeout() time.Duration { return seconds(e.DrainTimeoutSeconds) }

// LimitRange holds the Limits of an Execution that sets none, and the maximum that an Execution may set.
type LimitRange struct {
	Default Limits `json:"default"`
	Max     Limits `json:"max"`
}

// Limits has the units of the configuration and of the HTTP metadata. MB = 2^20 bytes.
type Limits struct {
	TimeoutSeconds   float64 `json:"timeout_seconds"`
	CPUSeconds       float64 `json:"cpu_seconds"`
	MemoryMB         int64   `json:"memory_mb"`
	DiskMB           int64   `json:"disk_mb"`
	CPUShares        int64   `json:"cpu_shares"`
	PIDs             int64   `json:"pids"`
	OutputBytes      int64   `json:"output_bytes"`
	KillGraceSeconds float64 `json:"kill_grace_seconds"`
}

// Executor returns l as the contract's Limits.
func (l Limits) Executor() executor.Limits {
	return executor.Limits{
		Timeout:     seconds(l.TimeoutSeconds),
		CPUTime:     seconds(l.CPUSeconds),
		MemoryBytes: l.MemoryMB << 20,
		DiskBytes:   l.DiskMB << 20,
		CPUShares:   l.CPUShares,
		PIDs:        l.PIDs,
		OutputBytes: l.OutputBytes,
		KillGrace:   seconds(l.KillGraceSeconds),
	}
}

// Retention bounds the finished Executions that are kept. They are removed when any bound is reached: at MaxAgeSeconds the oldest of all, at the
// other two the oldest of the owner that has most. 0 = that bound is off.
type Retention struct {
	// MaxAgeSeconds bounds the time since the end of an Execution. Default 86,400.
	MaxAgeSeconds float64 `json:"max_age_seconds"`
	// MaxExecutions bounds their number. Default 10,000.
	MaxExecutions int `json:"max_executions"`
	// MaxBytes bounds their Specs (mainly code), logs and blobs together. Default 10 GiB.
	MaxBytes int64 `json:"max_bytes"`
}

// Sessions bounds the Sessions. A request may set shorter times than these, but not longer ones.
type Sessions struct {
	// Max bounds the open Sessions, active or lost. Default 100; 0: no Sessions.
	Max int `json:"max"`
	// MaxPerOwner bounds the open Sessions of one owner; 0: only Max applies. Default: Config.ShareSessions.
	MaxPerOwner int `json:"max_per_owner"`
	// MaxWaiting bounds the Executions that wait for one Session. Default 16; 0: Executions never wait.
	MaxWaiting int `json:"max_waiting"`
	// IdleTimeoutSeconds is the time without use after which a Session is closed. Default 1,800.
	IdleTimeoutSeconds float64 `json:"idle_timeout_seconds"`
	// EvictIdleSeconds is the idle time after which a new Session of the same owner may replace a Session at a bound. The least
	// recently used Session is replaced. Default 300; 0: never.
	EvictIdleSeconds float64 `json:"evict_idle_seconds"`
	// MaxLifeSeconds is the age at which a Session is closed, even while it is used. Default 86,400.
	MaxLifeSeconds float64 `json:"max_life_seconds"`
	// MaxFileBytes bounds one file that is written into a Session. Default 1 GiB.
	MaxFileBytes int64 `json:"max_file_bytes"`
	// KeepClosedSeconds is how long a closed Session stays listed, at most the last 1,000. Default 3,600; 0: not at all.
	KeepClosedSeconds float64 `json:"keep_closed_seconds"`
	// Preload names Python modules that a Session's interpreter imports before it is ready. Missing modules are skipped.
	// Default none.
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

// ShareExecutions sets engine.max_per_owner to its default. With tokens there may be several owners: each may have half of
// the Executions that the server accepts, at least one. Without tokens there is one owner, and no bound.
func (c *Config) ShareExecutions() {
	c.Engine.MaxPerOwner = c.share(c.Engine.MaxConcurrent + c.Engine.MaxQueued)
}

// ShareRunning sets engine.max_running_per_owner to its default: with tokens of several owners all slots but one, at least one, so that a
// slot is free for another owner. With one owner there is no bound.
func (c *Config) ShareRunning() {
	c.Engine.MaxRunningPerOwner = 0
	if c.severalOwners() {
		c.Engine.MaxRunningPerOwner = max(1, c.Engine.MaxConcurrent-1)
	}
}

// ShareSpool sets engine.max_spool_bytes_per_owner to its default: with tokens of several owners half of engine.max_spool_bytes. With one owner
// there is no bound of its own.
func (c *Config) ShareSpool() {
	c.Engine.MaxSpoolBytesPerOwner = 0
	if c.severalOwners() {
		c.Engine.MaxSpoolBytesPerOwner = c.Engine.MaxSpoolBytes / 2
	}
}

// severalOwners reports whether the tokens have more than one owner.
func (c *Config) severalOwners() bool {
	return slices.ContainsFunc(c.HTTP.Tokens, func(t Token) bool { return t.Owner != c.HTTP.Tokens[0].Owner })
}

// ShareSessions sets sessions.max_per_owner likewise: half of sessions.max.
func (c *Config) ShareSessions() { c.Sessions.MaxPerOwner = c.share(c.Sessions.Max) }

func (c *Config) share(all int) int {
	if len(c.HTTP.Tokens) == 0 {
		return 0
	}
	return max(1, all/2)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
