package dockerbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// Level says how much a Finding matters.
type Level string

// The levels.
const (
	// LevelOK: works.
	LevelOK Level = "ok"
	// LevelWarn: works, with less than there could be.
	LevelWarn Level = "warn"
	// LevelError: does not work.
	LevelError Level = "error"
)

// Finding is one thing that Doctor found.
type Finding struct {
	Level Level `json:"level"`
	// Topic is what it is about: "docker", "image", "network", …
	Topic   string `json:"topic"`
	Message string `json:"message"`
	// Remedy is what to do about it; empty where nothing is to do.
	Remedy string `json:"remedy,omitempty"`
}

// Doctor looks at what a backend with configuration c would find: the daemon, what it can enforce, the default image, the
// runner. It changes nothing in the daemon and pulls nothing. ctx bounds it.
func Doctor(ctx context.Context, c Config) []Finding {
	if err := c.Validate(); err != nil {
		return configFindings(err)
	}
	list := []Finding{runnerFinding()}
	d, err := dial(ctx, c.Host)
	if err != nil {
		remedy := "start Docker, set backends.docker.host or DOCKER_HOST, and see that this user may use it (the group docker)"
		return append(list, Finding{LevelError, "docker", err.Error(), remedy})
	}
	defer d.close() //nolint:errcheck // it was only asked
	facts, err := d.info(ctx)
	if err != nil {
		return append(list, Finding{LevelError, "docker", err.Error(), ""})
	}
	list = append(list, Finding{LevelOK, "docker", fmt.Sprintf("Engine %s at %s, API %s, cgroup v%s, %d CPUs, %d MB", facts.Version, d.host, d.apiVersion(), facts.CgroupVersion, facts.CPUs, facts.MemoryBytes>>20), ""})
	if err := checkDaemon("docker", c, facts); err != nil {
		list = append(list, configFindings(err)...)
	}
	list = append(list, imageFinding(ctx, d, c))
	return append(list, limitFindings(d, facts, c)...)
}

func configFindings(err error) []Finding {
	if e, ok := errors.AsType[*executor.Error](err); ok && len(e.Fields) > 0 {
		var list []Finding
		for _, f := range e.Fields {
			list = append(list, Finding{LevelError, "configuration", f.Field + ": " + f.Message, "correct " + f.Field})
		}
		return list
	}
	return []Finding{{LevelError, "configuration", err.Error(), ""}}
}

func runnerFinding() Finding {
	p, err := runnerProgram()
	if err != nil {
		return Finding{LevelError, "runner", err.Error(), "use a binary made with make build"}
	}
	return Finding{LevelOK, "runner", fmt.Sprintf("%d KB to bring into containers", len(p.content)>>10), ""}
}

func imageFinding(ctx context.Context, d *daemon, c Config) Finding {
	i, err := d.image(ctx, c.DefaultImage)
	switch {
	case executor.CodeOf(err) == executor.NotFound:
		return Finding{LevelWarn, "image", c.DefaultImage + " is not there; it will be pulled when it is needed", "docker pull " + c.DefaultImage + ", or set backends.docker.default_image"}
	case err != nil:
		return Finding{LevelError, "image", err.Error(), ""}
	}
	return Finding{LevelOK, "image", fmt.Sprintf("%s is there, %d MB", c.DefaultImage, i.SizeBytes>>20), ""}
}

// limitFindings says what is enforced and what is missing.
func limitFindings(d *daemon, facts daemonInfo, c Config) []Finding {
	var list []Finding
	check := func(on bool, topic, good, bad, remedy string) {
		if on {
			list = append(list, Finding{LevelOK, topic, good, ""})
		} else {
			list = append(list, Finding{LevelWarn, topic, bad, remedy})
		}
	}
	groups := "give the daemon's machine the missing control group, on its kernel's command line"
	can := promises(facts, c)
	check(can.Memory, "memory", "memory_mb is enforced, together with disk_mb", "memory_mb is not enforced", groups)
	check(facts.Swap, "swap", "programs cannot swap beyond their memory", "programs may swap beyond memory_mb", groups)
	check(can.PIDs, "pids", "the number of processes is enforced", "the number of processes is not enforced", groups)
	check(can.CPU, "cpu", "cpu_shares is enforced", "cpu_shares is not enforced", groups)
	check(strings.Contains(strings.Join(facts.Security, " "), "seccomp"), "seccomp", "system calls are filtered", "system calls are not filtered", "use a daemon with seccomp")
	n := newNetworks(d, c.Network, "", slog.New(slog.DiscardHandler))
	check(n.iptables != nil, "network", "programs with a network cannot reach private and metadata addresses",
		"programs with a network reach private and metadata addresses: "+n.why, "run as root beside the daemon, or give backends.docker.network a network that is guarded")
	for _, w := range facts.under(c.Runtime).warnings() {
		list = append(list, Finding{LevelWarn, "runtime", strings.TrimPrefix(w, "runtime: "), ""})
	}
	return list
}
