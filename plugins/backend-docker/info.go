package dockerbackend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner"
)

// promises are the capabilities that hold with this daemon.
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
		Memory:            d.Memory && !programs.noGroups,
		Disk:              true,
		CPU:               d.CPUShares && !programs.noGroups,
		PIDs:              d.PIDs,
		Commands:          true,
		Requirements:      !preparations.noNetwork,
		Images:            true,
		PreCommands:       !preparations.noNetwork,
		Artifacts:         true,
		MemorySamples:     true,
		SystemInterpreter: true,
		Attach:            true,
		LocalPath:         true, // the plugin's, which brings the bytes into the container
		Sessions:          true,
		// Of an image that has them; of others a session is refused.
		Languages: []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell},
	}
}

// checkDaemon refuses what this daemon does not have, before it shows in the first request.
func checkDaemon(name string, c Config, d daemonInfo) error {
	p := problems{prefix: "backends." + name + "."}
	for _, asked := range []struct{ key, runtime string }{{"runtime", c.Runtime}, {"prepare.runtime", c.Prepare.Runtime}} {
		if asked.runtime != "" && !slices.Contains(d.Runtimes, asked.runtime) {
			p.add(asked.key, "the daemon has no runtime %q; it has %s", asked.runtime, strings.Join(d.Runtimes, ", "))
		}
	}
	return p.err()
}

// Info implements executor.Backend.
func (b *Backend) Info(ctx context.Context) (executor.Info, error) {
	info := executor.Info{
		Name: b.name, Type: "docker", Version: version(), Healthy: true, Capabilities: b.can,
		Warnings: b.warnings(), Details: b.details(), Metrics: b.metrics(),
	}
	if err := b.daemon.ping(ctx); err != nil {
		info.Healthy, info.Message = false, err.Error()
	}
	return info, nil
}

// version is what the build knows of itself; a plugin leaves it to its program, which knows better.
func version() string {
	if plugin.Requested() {
		return ""
	}
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "unknown"
}

// warnings name every default that does not hold here, and what follows from how it does.
func (b *Backend) warnings() []string {
	list := []string{"files in /work and /tmp lie in memory: a container may use memory_mb and disk_mb together"}
	add := func(missing bool, text string) {
		if missing {
			list = append(list, text)
		}
	}
	add(!b.can.Memory, "memory_mb is not enforced: the daemon cannot limit memory")
	add(b.can.Memory && !b.facts.Swap, "programs may use swap beyond memory_mb: the daemon's kernel cannot limit it")
	add(!b.can.CPU, "cpu_shares is not enforced: the daemon cannot limit CPU")
	add(!b.can.PIDs, "pids is not enforced: the daemon cannot limit processes")
	add(b.networks.iptables == nil, "programs with a network reach private and metadata addresses: "+b.networks.why)
	add(!slices.ContainsFunc(b.facts.Security, func(s string) bool { return strings.Contains(s, "seccomp") }), "system calls are not filtered: the daemon has no seccomp")
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

// details are facts for people.
func (b *Backend) details() map[string]string {
	d := map[string]string{
		"host": b.daemon.host, "engine": b.facts.Version, "api": b.daemon.apiVersion(), "cgroup": "v" + b.facts.CgroupVersion,
		"storage": b.facts.Driver, "kernel": b.facts.Kernel, "default_image": b.config.DefaultImage, "images": strings.Join(b.config.Images, ", "),
		"runtime": b.config.Runtime, "run_as": user(), "runner": b.volume.program.hash[:16], "silence_seconds": strconv.Itoa(b.config.SilenceSeconds),
		"pids_beyond": fmt.Sprintf("%d for the runner", runner.OwnThreads),
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

// metrics are gauges and counters.
func (b *Backend) metrics() map[string]float64 {
	m := map[string]float64{"reaped_total": float64(b.reaped.Load())}
	m["sessions"] = float64(b.sessions.count())
	maps.Copy(m, b.pool.metrics())
	m["results_kept"] = float64(b.results.count())
	maps.Copy(m, b.images.cache.metrics())
	return m
}
