package dockerbackend

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

// Doctor checks the environment of a backend with this section: the daemon, the limits that it can enforce, the default image
// and the runner. It changes nothing in the daemon and pulls nothing. ctx bounds it.
func Doctor(ctx context.Context, section json.RawMessage) []backend.Finding {
	c, err := parseConfig("docker", section)
	if err != nil {
		return backend.ConfigFindings(err)
	}
	list := []backend.Finding{runnerFinding()}
	d, err := dial(ctx, c.Host)
	if err != nil {
		return append(list, backend.Error("docker", err.Error(), noDaemon))
	}
	defer d.close() //nolint:errcheck // read only
	facts, err := d.info(ctx)
	if err != nil {
		return append(list, backend.Error("docker", err.Error(), ""))
	}
	list = append(list, backend.OK("docker", fmt.Sprintf("Engine %s at %s, API %s, cgroup v%s, %d CPUs, %d MB", facts.ServerVersion, d.host, d.apiVersion(), facts.CgroupVersion, facts.NCPU, facts.MemTotal>>20)))
	if err := checkDaemon("docker", c, facts); err != nil {
		list = append(list, backend.ConfigFindings(err)...)
	}
	list = append(list, imageFinding(ctx, d, c))
	return append(list, limitFindings(d, facts, c)...)
}

func runnerFinding() backend.Finding {
	p, err := runnerProgram()
	if err != nil {
		return backend.Error("runner", err.Error(), "use a binary made with make build")
	}
	return backend.OK("runner", fmt.Sprintf("%d KB to bring into containers", len(p.content)>>10))
}

func imageFinding(ctx context.Context, d *daemon, c Config) backend.Finding {
	i, err := d.image(ctx, c.DefaultImage)
	switch {
	case executor.CodeOf(err) == executor.NotFound:
		return backend.Warn("image", c.DefaultImage+" is missing; it will be pulled when needed", "docker pull "+c.DefaultImage+", or set backends.docker.default_image")
	case err != nil:
		return backend.Error("image", err.Error(), "")
	}
	return backend.OK("image", fmt.Sprintf("%s is there, %d MB", c.DefaultImage, i.SizeBytes>>20))
}

// limitFindings returns which limits are enforced and which are not.
func limitFindings(d *daemon, facts daemonInfo, c Config) []backend.Finding {
	groups := "give the daemon's machine the missing control group, on its kernel's command line"
	can := promises(facts, c)
	n := newNetworks(d, c.Network, "", slog.New(slog.DiscardHandler))
	list := []backend.Finding{
		backend.Check(can.Memory, "memory", "memory_mb is enforced", "memory_mb is not enforced", groups),
		backend.Check(facts.SwapLimit, "swap", "programs cannot swap beyond their memory", "programs may swap beyond memory_mb", groups),
		backend.Check(can.PIDs, "pids", "the number of processes is enforced", "the number of processes is not enforced", groups),
		backend.Check(can.CPU, "cpu", "cpu_shares is enforced", "cpu_shares is not enforced", groups),
		backend.Check(strings.Contains(strings.Join(facts.SecurityOptions, " "), "seccomp"), "seccomp", "system calls are filtered", "system calls are not filtered", "use a daemon with seccomp"),
		backend.Check(n.iptables != nil, "network", "programs with a network cannot reach private and metadata addresses",
			"programs with a network reach private and metadata addresses: "+n.why, "run as root beside the daemon, or give backends.docker.network a network that is guarded"),
	}
	for _, w := range facts.under(c.Runtime).warnings() {
		list = append(list, backend.Warn("runtime", strings.TrimPrefix(w, "runtime: "), ""))
	}
	return list
}
