package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
)

// Default returns the default of every key.
func Default() Config {
	return Config{
		HTTP:     HTTP{Bind: "127.0.0.1:8080", MaxBodyBytes: 8 << 30, MaxBufferedBytes: 256 << 20},
		DataDir:  dataDir(os.Geteuid(), os.Getenv("XDG_STATE_HOME"), os.UserHomeDir),
		Backend:  "uv",
		Backends: map[string]Backend{"uv": {Options: json.RawMessage("{}")}},
		Engine: Engine{
			MaxConcurrent: concurrent(), MaxQueued: 1000, MaxArtifactBytes: 2 << 30, MaxSpoolBytes: 64 << 30, DrainTimeoutSeconds: 30,
		},
		Limits: LimitRange{
			Default: Limits{300, 0, 1024, 2048, 1024, 256, 64 << 20, 1},
			Max:     Limits{86400, 86400, 65536, 65536, 262144, 4096, 1 << 30, 60},
		},
		Retention: Retention{MaxAgeSeconds: 86400, MaxExecutions: 10000, MaxBytes: 10 << 30},
		Sessions: Sessions{
			Max: 100, MaxWaiting: 16, IdleTimeoutSeconds: 1800, EvictIdleSeconds: 300, MaxLifeSeconds: 86400, MaxFileBytes: 1 << 30, KeepClosedSeconds: 3600,
			Preload: []string{},
		},
		MCP:     defaultMCP(),
		Scripts: defaultScripts(),
		Worker:  defaultWorker(),
	}
}

// concurrent is the default of the Executions that run at once.
func concurrent() int { return max(4, 2*runtime.NumCPU()) }

// dataDir returns the default of data_dir. uid is that of this process, and state its XDG_STATE_HOME.
func dataDir(uid int, state string, home func() (string, error)) string {
	const name = "python-executor"
	if uid == 0 {
		return "/var/lib/" + name
	}
	if filepath.IsAbs(state) {
		return filepath.Join(state, name)
	}
	dir, err := home()
	if err != nil {
		return filepath.Join(os.TempDir(), name)
	}
	return filepath.Join(dir, ".local", "state", name)
}
