package workers

import (
	"path/filepath"

	"github.com/python-executor/python-executor/core/backend"
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
	// TLS secures the connections to the workers. All three files are required.
	TLS TLSConfig `json:"tls"`
}

// TLSConfig has the files of this host that secure the connections to the workers. All are in PEM.
type TLSConfig struct {
	// CACert has the certificates that those of the workers are checked against.
	CACert string `json:"ca_cert"`
	// Cert and Key are the backend's certificate and its key.
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Default returns the default configuration.
func Default() Config {
	return Config{Service: "python-executor-worker", Provider: ProviderNomad}
}

// Validate adds the problems of c to p. under is the path of c with a dot at its end. used says that the mode is workers, so that the
// files of TLS are required. It makes no request and reads no file.
func (c Config) Validate(p *backend.Problems, under string, used bool) {
	check := func(ok bool, key, format string, args ...any) { p.Require(ok, under+key, format, args...) }
	check(c.Service != "", "service", "must be the name of a service")
	check(c.Provider == ProviderNomad || c.Provider == ProviderConsul, "provider", "must be nomad or consul (got %q)", c.Provider)
	for _, file := range []struct{ key, path string }{{"ca_cert", c.TLS.CACert}, {"cert", c.TLS.Cert}, {"key", c.TLS.Key}} {
		check(filepath.IsAbs(file.path) || file.path == "" && !used, "tls."+file.key, "must be an absolute path (got %q)", file.path)
	}
}
