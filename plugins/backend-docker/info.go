package dockerbackend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// promises returns the capabilities that a backend has with this daemon and configuration.
func promises(d daemonInfo, c Config) executor.Capabilities {
	isolation := executor.IsolationContainer
	programs, preparations := d.under(c.Runtime), d.under(cmp.Or(c.Prepare.Runtime, c.Runtime))
	if programs.vm {
		isolation = executor.IsolationVM
	}
	return executor.Capabilities{
		Isolation:         isolation,
		NetworkOff:        true,
		NetworkOn:         !programs.noNetwork,
		Memory:            d.MemoryLimit && !programs.noGroups,
		Disk:              true,
		CPU:               d.CPUShares && !programs.noGroups,
		PIDs:              d.PidsLimit,
		CPUTime:           true,
		Commands:          true,
		Requirements:      !preparations.noNetwork,
		Images:            true,
		PreCommands:       !preparations.noNetwork,
		Artifacts:         true,
		MemorySamples:     true,
		SystemInterpreter: true,
		Attach:            true,
		LocalPath:         true, // a path of the plugin's host; the plugin sends the bytes into the container
		Sessions:          true,
		// An image must have the interpreter of a session's language; else the session is refused.
		Languages: []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell},
	}
}

// checkDaemon returns an error of code invalid if the configuration names a runtime that the daemon does not have.
func checkDaemon(name string, c Config, d daemonInfo) error {
	p := backend.Section(name)
	for _, asked := range []struct{ key, runtime string }{{"runtime", c.Runtime}, {"prepare.runtime", c.Prepare.Runtime}} {
		if _, has := d.Runtimes[asked.runtime]; asked.runtime != "" && !has {
			p.Add(asked.key, "must be a runtime of the daemon: %s (got %q)", strings.Join(slices.Sorted(maps.Keys(d.Runtimes)), ", "), asked.runtime)
		}
	}
	return p.Err()
}

// Info implements executor.Backend.
func (b *Backend) Info(ctx context.Context) (executor.Info, error) {
	info := executor.Info{
		Name: b.name, Type: "docker", Version: plugin.Version(), Healthy: true, Capabilities: b.can,
		Warnings: b.warnings(), Details: b.details(), Metrics: b.metrics(),
	}
	if err := b.daemon.ping(ctx); err != nil {
		info.Healthy, info.Message = false, err.Error()
	}
	return info, nil
}

// warnings names every default that does not hold on this daemon, and the consequences.
func (b *Backend) warnings() []string {
	list := []string{"files in /work and /tmp are in memory: a container may use memory_mb plus disk_mb"}
	add := func(missing bool, text string) {
		if missing {
			list = append(list, text)
		}
	}
	add(!b.can.Memory, "memory_mb is not enforced: the daemon cannot limit memory")
	add(b.can.Memory && !b.facts.SwapLimit, "programs may use swap beyond memory_mb: the daemon's kernel cannot limit it")
	add(!b.can.CPU, "cpu_shares is not enforced: the daemon cannot limit CPU")
	add(!b.can.PIDs, "pids is not enforced: the daemon cannot limit processes")
	add(b.networks.iptables == nil, "programs with a network reach private and metadata addresses: "+b.networks.why)
	add(!slices.ContainsFunc(b.facts.SecurityOptions, func(s string) bool { return strings.Contains(s, "seccomp") }), "system calls are not filtered: the daemon has no seccomp")
	list = append(list, b.place.Under.warnings()...)
	add(b.can.Isolation != executor.IsolationVM, "programs of all containers have the same user ("+user()+"): what the kernel counts by user, waiting signals, inotify watches and memory in pipes, they share")
	add(len(b.images.trusted) == 0 && b.images.settings.given(false, false).fewerThan(b.images.settings),
		"preparations use no credentials of package indexes and proxies, because no image is trusted: see "+b.images.settings.trust)
	b.mu.Lock()
	err := b.warmErr
	b.mu.Unlock()
	if err != nil {
		list = append(list, "the default image "+b.config.DefaultImage+" cannot be used: "+err.Error())
	}
	return list
}

// details returns facts for people.
func (b *Backend) details() map[string]string {
	d := map[string]string{
		"host": b.daemon.host, "engine": b.facts.ServerVersion, "api": b.daemon.apiVersion(), "cgroup": "v" + b.facts.CgroupVersion,
		"storage": b.facts.Driver, "kernel": b.facts.KernelVersion, "default_image": b.config.DefaultImage, "images": strings.Join(b.config.Images, ", "),
		"runtime": b.config.Runtime, "run_as": user(), "runner": b.volume.program.hash[:16], "silence_seconds": strconv.Itoa(b.config.SilenceSeconds),
		"pids_beyond": fmt.Sprintf("%d for the runner", protocol.OwnThreads),
	}
	if d["runtime"] == "" {
		d["runtime"] = b.facts.DefaultRuntime + " (the daemon's default)"
	}
	if b.networks.iptables != nil {
		d["network"] = "a bridge of its own; private and metadata addresses are blocked"
	} else {
		d["network"] = b.config.Network
	}
	return d
}

// metrics returns gauges and counters.
func (b *Backend) metrics() map[string]float64 {
	m := map[string]float64{"reaped_total": float64(b.reaped.Load())}
	m["sessions"] = float64(b.sessions.Len())
	maps.Copy(m, b.pool.metrics())
	m["results_kept"] = float64(b.results.count())
	maps.Copy(m, b.images.cache.metrics())
	return m
}
