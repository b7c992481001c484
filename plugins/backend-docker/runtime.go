package dockerbackend

import (
	"path"
	"strconv"
	"strings"
)

// under describes the kernel that a runtime gives to programs, where it differs from Linux on the daemon's machine.
type under struct {
	// gvisor reports whether the kernel is gVisor.
	gvisor bool
	// vm reports whether the kernel is not that of the daemon's machine, so that programs are isolated by more than a
	// container.
	vm bool
	// noNetwork reports whether the runtime is configured to give no network, whatever the container has.
	noNetwork bool
	// noGroups reports whether the runtime is configured to ignore control groups, so that memory and CPU time are not limited.
	noGroups bool
}

// under returns the properties of the runtime called name; empty means the daemon's default. It recognizes gVisor and Kata by
// the runtime's name, program or type. A runner that finds a different kernel is not used. For a runtime with a configuration file of
// its own the daemon does not report the arguments.
func (d daemonInfo) under(name string) under {
	if name == "" {
		name = d.DefaultRuntime
	}
	facts := d.Runtimes[name]
	called := func(what string) bool {
		return strings.Contains(name, what) || strings.Contains(path.Base(facts.Path), what) || strings.Contains(facts.Type, what)
	}
	u := under{gvisor: called("runsc") || called("gvisor")}
	u.vm = u.gvisor || called("kata")
	if u.gvisor {
		u.noNetwork = argument(facts.Args, "network") == "none"
		ignores, err := strconv.ParseBool(argument(facts.Args, "ignore-cgroups"))
		u.noGroups = err == nil && ignores
	}
	return u
}

// argument returns the value of a flag in the syntax of Go's flag package. The last of several counts. A flag without a value
// is "true".
func argument(args []string, name string) string {
	value := ""
	for i, arg := range args {
		flag, given, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case flag != name || !strings.HasPrefix(arg, "-"):
		case found:
			value = given
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			value = args[i+1]
		default:
			value = "true"
		}
	}
	return value
}

const (
	// sentryThreads and threadsPerProcess are generous bounds for the threads of gVisor's kernel, which is a process of the
	// machine. The kernel has sentryThreads for itself, and threadsPerProcess for each process in it. 43 and 5.2 were measured
	// with the ptrace platform.
	sentryThreads, threadsPerProcess = 1024, 32
)

// pids returns the daemon's limit of processes for a container whose programs may have n. gVisor's kernel crashes when it
// reaches the limit, so there the limit is far higher. The runner then has gVisor enforce n.
func (u under) pids(n int64) int64 {
	if !u.gvisor || n <= 0 {
		return n
	}
	return sentryThreads + threadsPerProcess*n
}

// rootRunner reports whether the runner runs as root, and starts programs as another user. gVisor's kernel does not protect PID
// 1: a process of the same user may signal it, and open its descriptors in /proc. The runner is root in that kernel only. The
// daemon's network setup is not skipped then (containerSpec.Hosts), because it sets up the loopback that gVisor uses.
func (u under) rootRunner() bool { return u.gvisor }

// runnerCapabilities are the capabilities of a runner that is root. It needs them to own and fill folders, to kill and limit
// processes, and to switch to the user of programs without capabilities.
var runnerCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETPCAP", "SETUID", "SYS_RESOURCE"}

// fixes reports whether the runtime cannot change a container's limits while it runs.
func (u under) fixes() bool { return u.gvisor }

// warnings describes the differences from other containers.
func (u under) warnings() []string {
	var list []string
	if u.gvisor {
		list = append(list,
			"runtime: programs run on gVisor's kernel. memory_mb and disk_mb form one limit there: a program may use memory in place of files. When it is reached, the whole container ends: the result is out_of_memory, without artifacts, and a session is lost. gVisor's own memory counts as well: about 20 MB, and 5 MB for each process",
			"runtime: peak memory is that of the main process only, CPU time counts only processes that have ended, and only memory limits the number of files in /work and /tmp",
		)
	}
	if u.noNetwork {
		list = append(list, "runtime: it is configured without a network (--network=none), so programs cannot use one, and nothing can be installed: see prepare.runtime")
	}
	if u.noGroups {
		list = append(list, "runtime: it is configured to ignore control groups (--ignore-cgroups): memory and CPU time are not limited")
	}
	return list
}
