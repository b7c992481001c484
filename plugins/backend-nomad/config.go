package nomadbackend

import (
	"encoding/json"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/plugins/backend-nomad/agent"
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
	TLS agent.TLS `json:"tls"`
	// Job is the configuration of the mode job.
	Job jobs.Config `json:"job"`
	// Workers is the configuration of the mode workers.
	Workers workers.Config `json:"workers"`
}

// nomadFree reports whether nothing is asked of Nomad: the workers are found in Consul.
func (c Config) nomadFree() bool {
	return c.Mode == ModeWorkers && c.Workers.Provider == workers.ProviderConsul
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
	c.agent().Validate(p, "")
	c.Job.Validate(p, "job.")
	c.Workers.Validate(p, "workers.", c.Mode == ModeWorkers)
	return p.Err()
}

func (c Config) agent() agent.Settings {
	return agent.Settings{Address: c.Address, Token: c.Token, TokenFile: c.TokenFile, TLS: c.TLS}
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
