package jobs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// can returns what this mode promises.
func (b *Backend) can() executor.Capabilities {
	return executor.Capabilities{
		Isolation:         executor.IsolationContainer,
		NetworkOff:        true,
		NetworkOn:         true,
		Memory:            true,
		Disk:              b.config.Work == WorkInMemory,
		CPU:               true,
		PIDs:              true,
		CPUTime:           true,
		Commands:          true,
		Requirements:      true,
		Images:            true,
		PreCommands:       true,
		Artifacts:         true,
		MemorySamples:     true,
		SystemInterpreter: true,
		Attach:            true,
		LocalPath:         true, // a path of the plugin's host; the plugin sends the bytes
		Languages:         []executor.Language{executor.LanguagePython},
	}
}

// warnings are the defaults that Nomad's driver cannot express.
var warnings = []string{
	"cpu_shares are MHz that Nomad reserves: a job that asks for more than a node has waits for a place, and then fails",
	"kill_grace_seconds is cut to the max_kill_timeout of Nomad's client (30 s by default)",
	"output arrives up to half a second later than it was written, and meets no back-pressure: it is in a file of the node, at most output_bytes of each stream",
	"programs with a network reach private and metadata addresses, as far as the network of the nodes lets them",
	"programs of all jobs of a node have the same user (1000:1000): what the kernel counts by user, waiting signals, inotify watches and memory in pipes, they share",
	"pre_commands cannot change the image: they run as the program's user in its work folder, with a network, and the program gets that folder",
	"a Result that is not fetched is lost when Nomad's client collects the garbage of ended allocations (gc_max_allocs, gc_disk_usage_threshold)",
}

// inputWarning is for a transfer that the runner cannot reach.
const inputWarning = "standard input is read to its end before the job is made, because transfer.url is https: a program cannot be asked while it runs"

// The warnings of each Config.Work.
var workWarnings = map[string][]string{
	WorkOnDisk: {
		"disk_mb is not enforced: /work and /tmp are on the node's disk, which a program can fill. With job.work: memory they are bounded",
	},
	WorkInMemory: {
		"files in /work and /tmp are in memory: a job may use memory_mb plus disk_mb, and a preparation prepare.memory_mb plus prepare.disk_mb. Nomad's scheduler counts the first of each",
		"files in /work and /tmp cannot be executed, and native modules there cannot be loaded: the driver's folders in memory are noexec",
		"the number of files in /work and /tmp is bounded by memory only: the driver cannot bound it",
	},
}

// Info implements executor.Backend.
func (b *Backend) Info(context.Context) (executor.Info, error) {
	info := executor.Info{
		Name: b.name, Type: "nomad", Version: plugin.Version(), Healthy: true, Capacity: b.config.MaxJobs, Capabilities: b.can(), Warnings: slices.Concat(workWarnings[b.config.Work], warnings),
		Details: map[string]string{
			"mode": "job", "address": b.cluster.client.Address(), "datacenters": strings.Join(b.config.Datacenters, ", "), "node_pool": b.config.NodePool,
			"default_image": b.config.DefaultImage, "images": strings.Join(b.config.Images, ", "), "transfer": b.transfer.base, "run_as": "1000:1000",
			"runner": b.transfer.sum[:16], "jobs": jobPrefix + "EXECUTION", "pids_beyond": fmt.Sprintf("%d for the runner", protocol.OwnThreads),
		},
		Metrics: map[string]float64{"purged_total": float64(b.purged.Load()), "jobs": float64(b.watcher.count())},
	}
	if !b.canFeed() {
		info.Warnings = append(info.Warnings, inputWarning)
	}
	if err := b.watcher.state(); err != nil {
		info.Healthy, info.Message = false, b.unheard(err)
	}
	return info, nil
}

// unheard returns what err, for which Nomad's events do not come, means to a user.
func (b *Backend) unheard(err error) string {
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Op == "dial" {
		return fmt.Sprintf("no Nomad answers at %s (%v): start it, or set backends.%s.address or NOMAD_ADDR to an agent of the cluster", b.cluster.client.Address(), failed, b.name)
	}
	return "Nomad's events do not come: " + err.Error()
}
