package jobs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/fetchproxy"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner/job"
)

// preparation describes what is made before the program starts.
type preparation struct {
	commands []string
	lines    []string // of the requirements
}

// needed reports whether there is anything to prepare.
func (p preparation) needed() bool { return len(p.commands) > 0 || len(p.lines) > 0 }

// preparation returns what a Spec needs. A Failure means that its requirements are wrong.
func (b *Backend) preparation(spec executor.Spec) (preparation, *executor.Failure) {
	lines, err := requirements.Normalise(spec.Requirements, requirements.Options{
		AllowBuilds: b.config.Prepare.AllowBuilds, Setting: "backends." + b.name + ".job.prepare.allow_builds",
		CheckURL: func(address string) error { return b.fetches().CheckURL(address) }, // which reads the settings of this host
	})
	if err != nil {
		return preparation{}, requirements.Refused(err)
	}
	commands := slices.DeleteFunc(slices.Clone(spec.PreCommands), func(c string) bool { return strings.TrimSpace(c) == "" })
	return preparation{commands: commands, lines: lines}, nil
}

// prepareLimits returns the limits of a preparation.
func (b *Backend) prepareLimits(l executor.Limits) executor.Limits {
	c := b.config.Prepare
	return executor.Limits{
		Timeout: time.Duration(c.TimeoutSeconds) * time.Second, MemoryBytes: int64(c.MemoryMB) << 20, DiskBytes: int64(c.DiskMB) << 20,
		CPUShares: l.CPUShares, PIDs: 256, OutputBytes: 1 << 20, KillGrace: time.Second,
	}
}

// prepareFiles returns the input of a preparation, without the Workspace.
func (b *Backend) prepareFiles(j executor.Job, p preparation) ([]inputFile, error) {
	variables, bundle := b.sources()
	want := job.Prepare{
		ExecutionID: j.ID, Config: job.DefaultConfig(), Folder: preparedFolder, Commands: p.commands, CommandEnv: proxies(variables),
		Requirements: p.lines, AllowBuilds: b.config.Prepare.AllowBuilds, InstallEnv: variables, Sources: fetchSources(variables), Closed: fetchproxy.Closed(), PythonVersion: j.Spec.PythonVersion,
		Limits: b.prepareLimits(j.Limits), Network: true, Protect: protected,
	}
	raw, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	list := []inputFile{{job.PrepareFile, bytes.NewReader(raw)}}
	if bundle == "" {
		return list, nil
	}
	content, err := os.ReadFile(bundle)
	if err != nil {
		return nil, executor.Errorf(executor.Unavailable, "certificate authorities of preparations: %w", err)
	}
	return append(list, inputFile{job.BundleFile, bytes.NewReader(content)}), nil
}

// fetches says what installations may fetch from.
func (b *Backend) fetches() fetchproxy.Policy {
	variables, _ := b.sources()
	return fetchproxy.Policy{Sources: fetchSources(variables)}
}

func fetchSources(variables map[string]string) []string {
	return fetchproxy.Sources(requirements.Places(variables)...)
}

// proxyVariables are the variables that commands get, too.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// indexVariables are the variables of uv that mean the same in a container.
var indexVariables = []string{
	"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX", "UV_INDEX_STRATEGY", "UV_INSECURE_HOST",
	"UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_OFFLINE", "UV_EXCLUDE_NEWER",
}

// sources returns the variables of pip and uv in a container, without credentials, because the job is visible in Nomad and images are not
// trusted. bundle is a file of this host with the authorities to trust; empty if there is none.
func (b *Backend) sources() (variables map[string]string, bundle string) {
	home, _ := os.UserHomeDir() // without a home folder there are no files to read
	host := requirements.HostVariables(b.config.Prepare.IndexURL, home, os.Getenv)
	variables = map[string]string{"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "PIP_CONFIG_FILE": "/dev/null"}
	for _, name := range slices.Concat(indexVariables, proxyVariables) {
		if v := requirements.WithoutCredentials(host[name]); v != "" {
			variables[name] = v
		}
	}
	index := cmp.Or(variables["UV_DEFAULT_INDEX"], variables["UV_INDEX_URL"])
	more := cmp.Or(variables["UV_INDEX"], variables["UV_EXTRA_INDEX_URL"])
	trusted := strings.Fields(variables["UV_INSECURE_HOST"])
	for _, address := range strings.Fields(index + " " + more) {
		if u, err := url.Parse(address); err == nil && u.Scheme == "http" { // pip requires its host in a list
			trusted = append(trusted, u.Host)
		}
	}
	for name, v := range map[string]string{
		"PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": more, "PIP_NO_INDEX": variables["UV_NO_INDEX"], "PIP_TRUSTED_HOST": strings.Join(trusted, " "),
		"PIP_DEFAULT_TIMEOUT": variables["UV_HTTP_TIMEOUT"],
	} {
		if v != "" {
			variables[name] = v
		}
	}
	return variables, cmp.Or(b.config.Prepare.CACert, host["SSL_CERT_FILE"], requirements.SystemBundle())
}

// proxies returns the variables of proxies.
func proxies(variables map[string]string) map[string]string {
	set := map[string]string{"DEBIAN_FRONTEND": "noninteractive"}
	maps.Copy(set, variables)
	maps.DeleteFunc(set, func(name, _ string) bool { return name != "DEBIAN_FRONTEND" && !slices.Contains(proxyVariables, name) })
	return set
}
