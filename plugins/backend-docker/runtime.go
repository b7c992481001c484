package dockerbackend

import (
	"path"
	"strconv"
	"strings"
)

// runtimeFacts is what a daemon tells of one of its runtimes. Of one that is set up by a file of its own it does not tell
// the arguments.
type runtimeFacts struct {
	Path, Type string
	Args       []string
}

// under is what lies below programs: what a runtime's kernel does differently from Linux.
type under struct {
	// gvisor: the kernel is gVisor's.
	gvisor bool
	// vm: it is not the daemon's machine's own, so programs are held by more than a container.
	vm bool
	// noNetwork: the runtime is told to give none, whatever the container has.
	noNetwork bool
	// noGroups: it is told to leave control groups alone, so nothing bounds memory and CPU time.
	noGroups bool
}

// under says what the runtime called name puts below programs; empty: the daemon's default. What runs there is known by what
// the runtime is called: by its name, its program or its type. A runner that finds another kernel refuses to go on.
func (d daemonInfo) under(name string) under {
	if name == "" {
		name = d.DefaultRuntime
	}
	facts := d.RuntimeFacts[name]
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

// argument is the value of a flag as Go programs take them, the last of several; "true" of one without a value.
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
	// sentryThreads and threadsPerProcess are what gVisor's kernel, itself a process of the machine, has at most for itself
	// and for each process in it; 43 and 5.2 were counted with the ptrace platform.
	sentryThreads, threadsPerProcess = 1024, 32
)

// pids is the bound of a container's processes that the daemon is to set where programs may have n. gVisor's kernel dies of
// a bound that it reaches, so there it is far above: the runner has it bound them itself.
func (u under) pids(n int64) int64 {
	if !u.gvisor || n <= 0 {
		return n
	}
	return sentryThreads + threadsPerProcess*n
}

// rootRunner reports whether the runner is to be root there, and starts programs as the user that it is elsewhere itself.
// gVisor's kernel protects no PID 1: whoever has its user may signal it, and open its descriptors by their names in /proc. It
// is a root of that kernel alone. The daemon's own network machinery is then not left out (containerSpec.Hosts), because it
// is what brings the loopback up that gVisor passes on.
func (u under) rootRunner() bool { return u.gvisor }

// runnerCapabilities are what a runner needs that is root: to own, fill, kill and limit what belongs to programs, to become
// their user, and to leave them none of these.
var runnerCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETPCAP", "SETUID", "SYS_RESOURCE"}

// fixes reports whether the runtime cannot change a container's limits while it runs.
func (u under) fixes() bool { return u.gvisor }

// warnings say what differs from what is said of every container.
func (u under) warnings() []string {
	var list []string
	if u.gvisor {
		list = append(list,
			"runtime: programs run on gVisor's kernel. Memory that is full ends the whole container: the result is out_of_memory, without artifacts, and a session is over. Its kernel counts as memory, too: about 20 MB, and 5 MB for each process",
			"runtime: peak memory is sampled and of the main process only, CPU time is that of processes that have ended, and the number of files in /work and /tmp is bounded by memory alone",
		)
	}
	if u.noNetwork {
		list = append(list, "runtime: it is told to give programs no network (--network=none), so none can be asked for, and nothing can be installed in it: see prepare.runtime")
	}
	if u.noGroups {
		list = append(list, "runtime: it is told to ignore control groups (--ignore-cgroups): memory and CPU time are not bounded")
	}
	return list
}
