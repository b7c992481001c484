package dockerbackend

import (
	"fmt"
	"strconv"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// The labels of all containers, volumes, networks and images that this backend makes.
const (
	labelPrefix = "python-executor."
	// labelInstance is the installation's id.
	labelInstance = labelPrefix + "instance"
	// labelBoot is the boot of the plugin process that made the object: see newBoot.
	labelBoot = labelPrefix + "boot"
	// labelKind is one of the kinds below.
	labelKind = labelPrefix + "kind"
	// labelCreated and labelDeadline are Unix seconds: when a container was made, and when it may be removed in any state.
	// Labels cannot be changed, and waiting containers are made before their use is known. So claims record to which Execution
	// or Session a container belongs, and until when.
	labelCreated  = labelPrefix + "created"
	labelDeadline = labelPrefix + "deadline"
	// labelHash is the digest of the runner in a volume.
	labelHash = labelPrefix + "hash"
)

// The kinds of containers.
const (
	kindSandbox = "sandbox"
	kindPrepare = "prepare"
	kindFill    = "fill"
)

const (
	// programID is the user and group id of programs, as the PRD requires.
	programID = 1000
	// workFolder is the working folder of programs.
	workFolder = "/work"
	// tempFolder is TMPDIR. Programs can write only to it, to workFolder and to shared memory.
	tempFolder = "/tmp"
	// runnerFolder is where the runner's volume is mounted, and runnerFile the runner in it.
	runnerFolder = "/.python-executor"
	runnerFile   = "python-executor-runner"
	// hostName is the host name of every sandbox.
	hostName = "sandbox"
	// scratchBytes is the size of /dev/shm, and of each folder in place of an image's volume. Their content counts as memory of
	// the container.
	scratchBytes = 64 << 20
	// filesSoft and filesHard bound the open files of a process. A daemon without CAP_SYS_RESOURCE cannot set more than its own
	// limit.
	filesSoft, filesHard = 1024, 4096
	// fileBytes is the least memory that a file takes. It bounds the number of files in a folder in memory by the folder's
	// size.
	fileBytes          = 4096
	minInodes          = 16 << 10
	maxInodes          = 1 << 20
	outOfMemoryScore   = 500
	defaultNetworkNone = "none"
)

// capacity holds the limits of a container that can be changed while it runs.
type capacity struct {
	MemoryBytes int64
	CPUShares   int64
	PIDs        int64
}

// capacityOf returns the limits of a container for those of an Execution. The folders in memory count as memory of the
// container, and the runner's threads as its processes.
func capacityOf(l executor.Limits) capacity {
	return capacity{MemoryBytes: l.MemoryBytes + l.DiskBytes, CPUShares: l.CPUShares, PIDs: l.PIDs + protocol.OwnThreads}
}

// containerSpec describes a container to make: all settings that this package decides. The rest is fixed by request (no
// privileges, no restart, no log) or by the daemon's default (seccomp, masked paths).
type containerSpec struct {
	Name    string
	Image   string
	Labels  map[string]string
	Command []string // the whole argv; the image's entrypoint is ignored
	Env     []string
	User    string
	Folder  string
	Network string // "none", or a network's name
	// Hosts is a file on the daemon's machine, mounted read-only as /etc/hosts. With it and Network "none", the daemon's
	// network setup is skipped. For such a container that would only write a hosts file, and take as long as the rest of the
	// start. The container has its own network namespace either way.
	Hosts   string
	Runtime string // empty: the daemon's default
	// AutoRemove reports whether the daemon removes the container when it ends, even if no process of ours is left.
	AutoRemove bool
	// WritableRoot reports whether the image's files may be changed, in a layer of the container. It is for preparations.
	WritableRoot bool
	// Capabilities are the Linux capabilities that the container keeps; empty: none.
	Capabilities []string
	Tmpfs        map[string]string
	// Volume is mounted read-only at runnerFolder; empty: none.
	Volume string
	// FillVolume is mounted writable at runnerFolder; only in containers that never start.
	FillVolume string
	Capacity   capacity
	// NanoCPUs is the quota in billionths of a CPU; 0: none.
	NanoCPUs int64
}

// class holds the properties of a container that cannot change while it runs. Waiting containers of one class are
// interchangeable.
type class struct {
	Image     string // the image's id
	Runtime   string
	Network   bool
	DiskBytes int64
	// Session reports whether the container is for a Session. The pool counts those separately.
	Session bool
	// Limits are set only where the runtime cannot change the limits of a running container; else zero.
	Limits capacity
}

// place holds the properties of containers that come from the configuration and the daemon, not from a request.
type place struct {
	Instance string
	Boot     string
	Volume   string // the runner's volume
	Hosts    string // the hosts file in Volume, as a path on the daemon's machine; empty: unknown
	Program  []string
	Runtime  string
	Network  string // the network of containers that may use one
	NanoCPUs int64
	Under    under // the kernel of Runtime, or of a class's runtime
}

// labels returns the labels of a container.
func (p place) labels(kind string, now time.Time) map[string]string {
	return map[string]string{labelInstance: p.Instance, labelBoot: p.Boot, labelKind: kind, labelCreated: seconds(now)}
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// sandboxSpec returns the container of untrusted programs. covered are the image's declared volumes. Each would be a folder of
// the daemon's disk without a limit, so a folder in memory takes its place. It is a pure function.
func sandboxSpec(p place, c class, limits capacity, covered []string, name string, now time.Time) containerSpec {
	network := defaultNetworkNone
	if c.Network {
		network = p.Network
	}
	limits.PIDs = p.Under.pids(limits.PIDs)
	s := containerSpec{
		Name: name, Image: c.Image, Command: p.Program, User: user(), Folder: workFolder, Network: network, Runtime: c.Runtime,
		Labels: p.labels(kindSandbox, now),
		// The variables are for the runner only, which builds the program's environment itself. Without GOMAXPROCS Go would
		// start a thread per CPU.
		Env: []string{"HOME=" + workFolder, "GOMAXPROCS=2"},
		Tmpfs: map[string]string{
			workFolder: tmpfs(c.DiskBytes, "0700", true),
			tempFolder: tmpfs(c.DiskBytes, "1777", false),
		},
		Volume: p.Volume, Capacity: limits, NanoCPUs: p.NanoCPUs, AutoRemove: true,
	}
	switch {
	case p.Under.rootRunner():
		s.User, s.Capabilities = "0:0", runnerCapabilities
	case !c.Network:
		s.Hosts = p.Hosts
	}
	if c.Session {
		s.Tmpfs[packagesFolder] = tmpfs(c.DiskBytes, "0700", true)
	}
	for _, path := range covered {
		if _, taken := s.Tmpfs[path]; !taken && path != runnerFolder {
			s.Tmpfs[path] = tmpfs(scratchBytes, "0755", true)
		}
	}
	return s
}

// fillSpec returns the container through which the runner's volume is filled, or through which files of an image are read. It
// never starts.
func fillSpec(p place, image, volume, name string, now time.Time) containerSpec {
	return containerSpec{
		Name: name, Image: image, Command: []string{"/never"}, User: user(), Network: defaultNetworkNone, FillVolume: volume, WritableRoot: true,
		Labels: p.labels(kindFill, now),
	}
}

func user() string { return fmt.Sprintf("%d:%d", programID, programID) }

// tmpfs returns the mount options of a folder in memory. Without exec, native modules in it could not be loaded. The number of
// files is bounded too, because each takes memory that the size does not include.
func tmpfs(bytes int64, mode string, owned bool) string {
	inodes := min(max(bytes/fileBytes, minInodes), maxInodes)
	s := fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,mode=%s", bytes, inodes, mode)
	if owned {
		s += fmt.Sprintf(",uid=%d,gid=%d", programID, programID)
	}
	return s
}
