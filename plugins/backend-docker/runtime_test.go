package dockerbackend

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/system"

	dockercontext "github.com/docker/cli/cli/context"

	"github.com/python-executor/python-executor/core/executor"
)

func TestARuntimeIsKnownByWhatItIsCalled(t *testing.T) {
	t.Parallel()
	d := daemonInfo{system.Info{DefaultRuntime: "runc", Runtimes: map[string]system.RuntimeWithStatus{
		"runc":     {Runtime: system.Runtime{Path: "runc"}},
		"runsc":    {Runtime: system.Runtime{Path: "/usr/bin/runsc", Args: []string{"--platform=ptrace"}}},
		"safe":     {Runtime: system.Runtime{Path: "/opt/gvisor/runsc", Args: []string{"-network", "none", "--ignore-cgroups"}}},
		"quiet":    {Runtime: system.Runtime{Path: "/usr/bin/runsc", Args: []string{"--network=none", "--network=host", "--ignore-cgroups=false"}}},
		"flags":    {Runtime: system.Runtime{Path: "/usr/bin/runsc", Args: []string{"--ignore-cgroups", "--network", "none"}}},
		"shim":     {Runtime: system.Runtime{Type: "io.containerd.runsc.v1"}},
		"kata-qmu": {Runtime: system.Runtime{Path: "/usr/bin/containerd-shim-kata-v2"}},
	}}}
	for name, want := range map[string]under{
		"": {}, "runc": {}, "nobody": {},
		"runsc":    {gvisor: true, vm: true},
		"safe":     {gvisor: true, vm: true, noNetwork: true, noGroups: true},
		"quiet":    {gvisor: true, vm: true},
		"flags":    {gvisor: true, vm: true, noNetwork: true, noGroups: true},
		"shim":     {gvisor: true, vm: true},
		"kata-qmu": {vm: true},
	} {
		if got := d.under(name); got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
	if got := (under{gvisor: true}).pids(0); got != 0 {
		t.Errorf("no limit of processes becomes one of %d", got)
	}
	d.DefaultRuntime = "runsc"
	if got := d.under(""); !got.gvisor {
		t.Errorf("the default: %+v", got)
	}
}

// infoOf returns the daemonInfo of a daemon's answer.
func infoOf(t *testing.T, answer string) daemonInfo {
	t.Helper()
	var i system.Info
	if err := json.Unmarshal([]byte(answer), &i); err != nil {
		t.Fatal(err)
	}
	return readInfo(i)
}

// TestWhatADaemonPromisesIsWhatItsMachineCan covers both versions of control groups, and none.
func TestWhatADaemonPromisesIsWhatItsMachineCan(t *testing.T) {
	t.Parallel()
	const all = `"MemoryLimit": true, "SwapLimit": true, "CPUShares": true, "CpuCfsQuota": true, "PidsLimit": true`
	runtimes := `"DefaultRuntime": "runc", "Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--ignore-cgroups"]}}`
	for name, test := range map[string]struct {
		answer  string
		config  Config
		want    executor.Capabilities
		version string
	}{
		"cgroup v1": {`{"CgroupVersion": "1", ` + all + `, ` + runtimes + `}`, Config{}, executor.Capabilities{
			Isolation: executor.IsolationContainer, Memory: true, CPU: true, PIDs: true, NetworkOn: true, Requirements: true, PreCommands: true,
		}, "1"},
		"cgroup v2": {`{"CgroupVersion": "2", "CgroupDriver": "systemd", ` + all + `, ` + runtimes + `}`, Config{}, executor.Capabilities{
			Isolation: executor.IsolationContainer, Memory: true, CPU: true, PIDs: true, NetworkOn: true, Requirements: true, PreCommands: true,
		}, "2"},
		"rootless, with cgroup v1": {`{"CgroupVersion": "1", "MemoryLimit": false, "CPUShares": false, "PidsLimit": false}`, Config{}, executor.Capabilities{
			Isolation: executor.IsolationContainer, NetworkOn: true, Requirements: true, PreCommands: true,
		}, "1"},
		"an old daemon says no version": {`{` + all + `}`, Config{}, executor.Capabilities{
			Isolation: executor.IsolationContainer, Memory: true, CPU: true, PIDs: true, NetworkOn: true, Requirements: true, PreCommands: true,
		}, "1"},
		"gVisor without network and control groups": {`{"CgroupVersion": "2", ` + all + `, ` + runtimes + `}`, Config{Runtime: "runsc"}, executor.Capabilities{
			Isolation: executor.IsolationVM, PIDs: true,
		}, "2"},
		"gVisor, prepared elsewhere": {`{"CgroupVersion": "2", ` + all + `, ` + runtimes + `}`, Config{Runtime: "runsc", Prepare: PrepareConfig{Runtime: "runc"}}, executor.Capabilities{
			Isolation: executor.IsolationVM, PIDs: true, Requirements: true, PreCommands: true,
		}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := infoOf(t, test.answer)
			can := promises(d, test.config)
			got := executor.Capabilities{
				Isolation: can.Isolation, Memory: can.Memory, CPU: can.CPU, PIDs: can.PIDs, NetworkOn: can.NetworkOn, Requirements: can.Requirements, PreCommands: can.PreCommands,
			}
			if g, w := mustJSON(t, got), mustJSON(t, test.want); g != w {
				t.Errorf("%s, want %s", g, w)
			}
			if d.CgroupVersion != test.version {
				t.Errorf("version %q", d.CgroupVersion)
			}
			job := job(executor.Spec{Code: "1", Network: executor.NetworkOn, Requirements: "x", PreCommands: []string{"true"}})
			err := refuse(job, can)
			if fields := []string{"config.network_disabled", "requirements_txt", "pre_commands"}; !can.NetworkOn {
				if executor.CodeOf(err) != executor.Unimplemented || !strings.Contains(err.Error(), fields[0]) || strings.Contains(err.Error(), fields[1]) == can.Requirements || strings.Contains(err.Error(), fields[2]) == can.PreCommands {
					t.Errorf("refused: %v", err)
				}
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
	d := infoOf(t, `{`+runtimes+`}`)
	if err := checkDaemon("docker", Config{Runtime: "kata", Prepare: PrepareConfig{Runtime: "other"}}, d); err == nil || !strings.Contains(err.Error(), "backends.docker.runtime: must be a runtime of the daemon: runc, runsc (got") || !strings.Contains(err.Error(), "backends.docker.prepare.runtime:") {
		t.Errorf("%v", err)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTheEnvironmentSaysHowToSpeakWithADaemon(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, test := range map[string]struct {
		host            string
		env             map[string]string
		tls, unverified bool
	}{
		"a socket":                   {host: "unix:///run/docker.sock", env: map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": folder}},
		"SSH":                        {host: "ssh://build@far", env: map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": folder}},
		"TCP without anything":       {host: "tcp://far:2375"},
		"a folder alone, unverified": {host: "tcp://far:2376", env: map[string]string{"DOCKER_CERT_PATH": folder}, tls: true, unverified: true},
		"verified":                   {host: "tcp://far:2376", env: map[string]string{"DOCKER_CERT_PATH": folder, "DOCKER_TLS_VERIFY": "1"}, tls: true},
		"switched on alone":          {host: "tcp://far:2376", env: map[string]string{"DOCKER_TLS": "1"}, tls: true, unverified: true},
		"not verified":               {host: "tcp://far:2376", env: map[string]string{"DOCKER_CERT_PATH": folder, "DOCKER_TLS": "1"}, tls: true, unverified: true},
	} {
		e, err := environmentEndpoint(test.host, func(name string) string { return test.env[name] })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		config, err := e.tls()
		if err != nil || (config != nil) != test.tls || test.tls && config.InsecureSkipVerify != test.unverified {
			t.Errorf("%s: %+v, %v", name, config, err)
		}
		if options, err := hostOptions(e); err != nil || len(options) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (endpoint{host: "tcp://far:2376", secured: true, files: &dockercontext.TLSData{CA: []byte("no certificate")}}).tls(); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("a CA file without a certificate: %v", err)
	}
	for _, files := range []dockercontext.TLSData{{Cert: []byte("x"), Key: []byte("y")}, {Key: []byte("y")}} {
		if _, err := (endpoint{host: "tcp://far:2376", files: &files}).tls(); executor.CodeOf(err) != executor.Invalid {
			t.Errorf("an invalid certificate: %v", err)
		}
	}
	if config, err := (endpoint{host: "unix:///run/docker.sock", secured: true, unverified: true}).tls(); config != nil || err != nil {
		t.Errorf("a socket of a context without verification: %+v, %v", config, err)
	}
}
