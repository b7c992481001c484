package uvbackend

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// promises returns the capabilities that this machine can enforce.
func promises(m mechanisms, groups sandbox.Cgroups, c Config) executor.Capabilities {
	isolation := executor.IsolationNone
	if m.Box {
		isolation = executor.IsolationNamespaces
	}
	return executor.Capabilities{
		Isolation:  isolation,
		NetworkOff: m.offByDefault(),
		NetworkOn:  c.Network == NetworkHost || m.WayOut,
		Memory:     groups.Enforces("memory"),
		Disk:       m.Tmpfs,
		CPU:        groups.Enforces("cpu"),
		// A resource limit counts the processes of a uid without a control group.
		PIDs:              groups.Enforces("pids") || m.Setuid,
		CPUTime:           true,
		Commands:          true,
		Requirements:      true,
		PreCommands:       true, // as the program's user: see precommands.go
		Artifacts:         true,
		MemorySamples:     true,
		SystemInterpreter: true,
		// Under another uid a program has no rights to a user's folder.
		HostDirectories: !m.Setuid,
		LocalPath:       true,
		Sessions:        true,
		Languages:       []executor.Language{executor.LanguagePython},
	}
}

// Info implements executor.Backend.
func (b *Backend) Info(context.Context) (executor.Info, error) {
	inv := b.inventory.Load()
	can := b.can
	can.PythonVersions, can.PythonDownloads = inv.minors(), b.downloads(*inv)
	info := executor.Info{
		Name: b.name, Type: "uv", Version: plugin.Version(), Healthy: inv.fallback.Path != "",
		Capabilities: can, Images: slices.Sorted(maps.Keys(b.config.ImageMap)),
		Warnings: b.warnings(), Details: b.details(*inv), Metrics: b.metrics(),
	}
	if b.how.Setuid {
		info.Capacity = b.how.uids.programs().count()
	}
	if !info.Healthy {
		info.Message = fmt.Sprintf("no Python from 3.%d on can be used here: see python-executor doctor", oldestMinor)
	}
	return info, nil
}

// warnings lists every default that this machine or its configuration does not enforce.
func (b *Backend) warnings() []string {
	var list []string
	add := func(missing bool, text string) {
		if missing {
			list = append(list, text)
		}
	}
	why := b.how.Why
	add(!b.how.Box, "programs see the host's world-readable files: "+why["box"])
	add(b.how.Box && b.how.missing() != "", "the sandbox of programs is incomplete: "+b.how.missing())
	add(!b.can.NetworkOff, "programs have the host's network, although it is off by default: "+why["network"])
	shared := !b.can.NetworkOff || b.config.Network == NetworkHost
	add(shared && b.how.Setuid, "programs with a network share the host's: they reach every service on its loopback addresses, except for this server, which refuses their uids")
	add(shared && !b.how.Setuid, "programs with a network share the host's: they reach every service on its loopback addresses, this server included, which cannot tell them from its own user: set http.tokens")
	if b.how.Setuid {
		if others := thisHost().subordinate(b.how.uids); len(others) > 0 {
			add(true, "programs may reach files of other users' containers: uids of backends."+b.name+".run_as are subordinate uids of "+strings.Join(others, ", "))
		}
	}
	add(!b.how.Setuid && !b.how.Box && b.config.Isolation != IsolationNone, "programs run as the user of this process and may change its files: "+why["setuid"])
	add(b.config.Isolation == IsolationNone, "programs run as the user of this process, with all its rights: backends.uv.isolation is none")
	add(!b.can.Memory, "memory_mb is not enforced, only an address space limit per process: "+b.groupReason("memory"))
	add(!b.can.CPU, "cpu_shares is not enforced: "+b.groupReason("cpu"))
	add(!b.can.PIDs, "pids is not enforced: "+b.groupReason("pids"))
	add(!b.can.Disk, "disk_mb is not enforced, only the size of a single file: "+why["tmpfs"])
	add(!b.can.Disk, "programs share the host's /tmp, /var/tmp, /dev/shm and /run/lock, and what they leave there stays: "+why["tmpfs"])
	add(b.can.Disk && b.can.Memory, "files that a program writes are in memory: a program may use memory_mb plus disk_mb of the host's memory")
	add(b.config.AllowBuilds, "requirements may be built from source, which executes code of packages with a network and access to the index's credentials: backends."+b.name+".allow_builds is true")
	add(len(b.can.Languages) > 1, "languages other than python run in sessions only")
	return list
}

// privateNetwork reports whether programs with a network have one of their own.
func (b *Backend) privateNetwork() bool { return b.config.Network == NetworkPrivate && b.how.WayOut }

// groupReason returns the reason why there is no control group for controller.
func (b *Backend) groupReason(controller string) string {
	if b.groupErr != nil {
		lines := strings.Split(b.groupErr.Error(), "\n")
		for _, line := range lines {
			if strings.Contains(line, "control group "+controller+":") {
				return line
			}
		}
		return lines[len(lines)-1]
	}
	return "no control group with the controller " + controller + " is delegated to this process"
}

// details returns the Details of Info, for users.
func (b *Backend) details(inv inventory) map[string]string {
	d := map[string]string{
		"cache_dir": b.config.CacheDir, "work_dir": b.config.WorkDir, "isolation": b.config.Isolation,
		"mechanisms": strings.Join(b.active(), ", "), "default_python": inv.fallback.Version, "index": b.tool.index.shown,
		"builds": "wheels only",
	}
	if off := b.notInForce(); len(off) > 0 {
		d["not_in_force"] = strings.Join(off, "; ")
	}
	if b.can.HostDirectories && b.how.Box {
		d["host_directories"] = "read-only"
		if len(b.config.WritableDirectories) > 0 {
			d["host_directories"] += ", except below " + strings.Join(b.config.WritableDirectories, ", ")
		}
	}
	switch {
	case b.config.Network == NetworkHost:
		d["network"] = "the host's"
	case b.privateNetwork():
		d["network"] = strings.Join(append([]string{"private, to public addresses"}, b.config.NetworkOpen...), ", ")
	}
	if b.config.AllowBuilds {
		d["builds"] = "allowed"
	}
	switch {
	case b.how.Setuid:
		d["run_as"] = b.how.uids.String()
	case b.how.User:
		d["run_as"] = strconv.Itoa(os.Geteuid()) + ", which programs see as " + strconv.Itoa(b.how.seenUID())
	default:
		d["run_as"] = strconv.Itoa(os.Geteuid())
	}
	for minor, i := range inv.byMinor {
		d["python_"+minor] = i.Path + " (" + i.Version + ")"
	}
	for n, u := range inv.unreachable {
		d["unreachable_"+strconv.Itoa(n+1)] = u.Path + ": " + u.Why
	}
	d["uv"] = "not needed so far"
	select {
	case b.tool.turn <- struct{}{}:
		if p := b.tool.found; p.path != "" {
			d["uv"] = p.path + " (" + p.version + ")"
		}
		<-b.tool.turn
	default:
		d["uv"] = "being looked for"
	}
	return d
}

// active lists the mechanisms in use.
func (b *Backend) active() []string {
	var list []string
	add := func(on bool, name string) {
		if on {
			list = append(list, name)
		}
	}
	add(b.how.Setuid, "uid per slot")
	add(b.how.User, "user namespace")
	add(b.how.offByDefault(), "network namespace")
	add(b.privateNetwork(), "private network")
	add(b.how.Box, "mount, pid, ipc and uts namespaces with a read-only root folder")
	add(b.how.Tmpfs, "tmpfs")
	for _, l := range b.how.Layers {
		name := l.Name
		if l.Version > 0 {
			name += " " + strconv.Itoa(l.Version)
		}
		add(l.Missing == "", name)
	}
	for _, controller := range slices.Sorted(maps.Keys(b.groups)) {
		add(true, "cgroup "+controller)
	}
	add(true, "rlimits")
	return list
}

// notInForce lists the mechanisms that do not work on this machine, with the reasons. A mechanism that another one replaces is not
// listed.
func (b *Backend) notInForce() []string {
	var list []string
	add := func(missing bool, name, why string) {
		if missing {
			list = append(list, name+": "+why)
		}
	}
	add(!b.how.Box, "sandbox", b.how.Why["box"])
	add(!b.how.offByDefault(), "network namespace", b.how.Why["network"])
	add(b.config.Network == NetworkPrivate && !b.how.WayOut, "private network", b.how.Why["way_out"])
	add(!b.how.Tmpfs, "tmpfs", b.how.Why["tmpfs"])
	for _, l := range b.how.Layers {
		add(l.Missing != "", l.Name, l.Missing)
	}
	for _, controller := range controllers() {
		add(!b.groups.Enforces(controller), "cgroup "+controller, b.groupReason(controller))
	}
	return list
}

// metrics returns the gauges and counters of Info.
func (b *Backend) metrics() map[string]float64 {
	all, busy := b.slots.counts()
	list, bytes := b.cache.entries()
	return map[string]float64{
		"sessions": float64(b.sessions.Len()), "slots": float64(all), "slots_busy": float64(busy),
		"slots_started_total": float64(b.slots.started.Load()), "slots_died_total": float64(b.slots.died.Load()),
		"cache_environments": float64(len(list)), "cache_bytes": float64(bytes), "cache_limit_bytes": float64(b.config.CacheBytes),
		"cache_hits_total": float64(b.cache.hits.Load()), "cache_builds_total": float64(b.cache.misses.Load()),
		"cache_evicted_total": float64(b.cache.evicted.Load()), "cache_rebuilt_total": float64(b.cache.rebuilt.Load()),
	}
}
