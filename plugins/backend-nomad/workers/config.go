package workers

import (
	"path/filepath"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/worker"
)

// The registries of Config.Provider.
const (
	ProviderNomad  = "nomad"
	ProviderConsul = "consul"
)

// Config is the section backends.<name>.workers, as Default fills it and a section changes it.
type Config struct {
	// Service is the name under which the workers are registered. Default python-executor-worker.
	Service string `json:"service"`
	// Provider is the registry: nomad or consul. Default nomad.
	Provider string `json:"provider"`
	// Consul is where the workers are found with the provider consul.
	Consul Consul `json:"consul"`
	// SlotTimeoutSeconds is how long an Execution waits for a free slot. Default 600.
	SlotTimeoutSeconds int `json:"slot_timeout_seconds"`
	// ReturnTimeoutSeconds is how long a worker that has vanished is waited for by those who want to follow an Execution or use a
	// Session on it. Then both are lost. Default 30.
	ReturnTimeoutSeconds int `json:"return_timeout_seconds"`
	// TLS secures the connections to the workers. All three files are required. They are read again when they have changed.
	TLS worker.TLS `json:"tls"`
}

// Default returns the default configuration.
func Default() Config {
	return Config{
		Service: "python-executor-worker", Provider: ProviderNomad, SlotTimeoutSeconds: 600, ReturnTimeoutSeconds: 30,
		TLS: worker.TLS{PeerName: worker.WorkerName},
	}
}

func (c Config) slotTimeout() time.Duration { return time.Duration(c.SlotTimeoutSeconds) * time.Second }
func (c Config) returnTimeout() time.Duration {
	return time.Duration(c.ReturnTimeoutSeconds) * time.Second
}

// Validate adds the problems of c to p. under is the path of c with a dot at its end. used says that the mode is workers, so that the
// files of TLS are required. It makes no request and reads no file.
func (c Config) Validate(p *backend.Problems, under string, used bool) {
	check := func(ok bool, key, format string, args ...any) { p.Require(ok, under+key, format, args...) }
	check(c.Service != "", "service", "must be the name of a service")
	check(c.Provider == ProviderNomad || c.Provider == ProviderConsul, "provider", "must be nomad or consul (got %q)", c.Provider)
	c.Consul.agent().Validate(p, under+"consul.")
	check(c.SlotTimeoutSeconds >= 1 && c.SlotTimeoutSeconds <= 1500, "slot_timeout_seconds", "must be from 1 to 1500 (got %d)", c.SlotTimeoutSeconds)
	check(c.ReturnTimeoutSeconds >= 0 && c.ReturnTimeoutSeconds <= 3600, "return_timeout_seconds", "must be from 0 to 3600 (got %d)", c.ReturnTimeoutSeconds)
	check(c.TLS.PeerName != "", "tls.peer_name", "must be a DNS name")
	for _, file := range []struct{ key, path string }{{"ca_cert", c.TLS.CACert}, {"cert", c.TLS.Cert}, {"key", c.TLS.Key}} {
		check(filepath.IsAbs(file.path) || file.path == "" && !used, "tls."+file.key, "must be an absolute path (got %q)", file.path)
	}
}
