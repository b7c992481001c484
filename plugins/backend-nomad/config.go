package nomadbackend

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/plugins/backend-nomad/jobs"
	"github.com/python-executor/python-executor/plugins/backend-nomad/workers"
)

// The modes of Config.Mode.
const (
	// ModeJob runs each Execution as a batch job.
	ModeJob = "job"
	// ModeWorkers sends Executions to resident workers.
	ModeWorkers = "workers"
)

// Config is the section backends.<name> of a backend of type nomad, as Default fills it and a section changes it. An empty Address,
// Token, Region, Namespace or field of TLS means the variable of the nomad command (NOMAD_ADDR, NOMAD_TOKEN and so on).
type Config struct {
	// Mode is job or workers. Default job.
	Mode string `json:"mode"`
	// Address is an agent of the cluster: http://HOST:PORT, https://HOST:PORT or unix://PATH. Default: NOMAD_ADDR, else
	// http://127.0.0.1:4646.
	Address string `json:"address"`
	// Token is the ACL token. Default: TokenFile, else NOMAD_TOKEN.
	Token string `json:"token"`
	// TokenFile is a file of this host with the ACL token. It is read when the backend starts.
	TokenFile string `json:"token_file"`
	// Region is the region of the jobs. Default: NOMAD_REGION, else that of the agent.
	Region string `json:"region"`
	// Namespace is the namespace of the jobs and services. Default: NOMAD_NAMESPACE, else "default".
	Namespace string `json:"namespace"`
	// TLS secures the connection to the agent.
	TLS TLSConfig `json:"tls"`
	// Job is the configuration of the mode job.
	Job jobs.Config `json:"job"`
	// Workers is the configuration of the mode workers.
	Workers workers.Config `json:"workers"`
}

// TLSConfig has the files of this host that secure the connection to the agent. All are in PEM.
type TLSConfig struct {
	// CACert has the certificates that the agent's is checked against. Default: NOMAD_CACERT, else those that this host trusts.
	CACert string `json:"ca_cert"`
	// Cert and Key are the client's certificate and its key. Default: NOMAD_CLIENT_CERT and NOMAD_CLIENT_KEY, else none.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// ServerName is the name in the agent's certificate, "server.global.nomad" for one. Default: NOMAD_TLS_SERVER_NAME, else the
	// host of Address.
	ServerName string `json:"server_name"`
}

// Default returns the default configuration.
func Default() Config {
	return Config{Mode: ModeJob, Job: jobs.Default(), Workers: workers.Default()}
}

// validate returns every problem of c by its path in the configuration ("backends.nomad.job.priority"), as one error of code
// invalid; nil if there is none. It checks the mode that is not used, too. It makes no request and reads no file.
func (c Config) validate(name string) error {
	p := backend.Section(name)
	p.Require(c.Mode == ModeJob || c.Mode == ModeWorkers, "mode", "must be job or workers (got %q)", c.Mode)
	p.Require(c.Address == "" || isAddress(c.Address), "address", "must be http://HOST:PORT, https://HOST:PORT or unix://PATH")
	p.Require(c.Token == "" || c.TokenFile == "", "token_file", "must be empty if token is given")
	for _, file := range []struct{ key, path string }{
		{"token_file", c.TokenFile}, {"tls.ca_cert", c.TLS.CACert}, {"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key},
	} {
		p.Require(file.path == "" || filepath.IsAbs(file.path), file.key, "must be an absolute path (got %q)", file.path)
	}
	p.Require((c.TLS.Cert == "") == (c.TLS.Key == ""), "tls.key", "must be given with tls.cert, and only with it")
	c.Job.Validate(p, "job.")
	c.Workers.Validate(p, "workers.", c.Mode == ModeWorkers)
	return p.Err()
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	if u.Scheme == "unix" {
		return u.Host == "" && filepath.IsAbs(u.Path)
	}
	return slices.Contains([]string{"http", "https"}, u.Scheme) && u.Host != "" && (u.Path == "" || u.Path == "/")
}

// Check returns the problems of the section of a backend called name. It makes no request to a cluster. Codes: invalid.
func Check(name string, section json.RawMessage) error {
	_, err := parseConfig(name, section)
	return err
}

// Filled returns the section with defaults for the settings that it does not have.
func Filled(section json.RawMessage) json.RawMessage {
	c := Default()
	return backend.Filled(section, &c)
}

// parseConfig reads a plugin's section over the defaults. An unknown key is an error.
func parseConfig(name string, section json.RawMessage) (Config, error) {
	return backend.ParseSection(name, section, Default(), Config.validate)
}
