package dockerbackend

import (
	"fmt"
	"strconv"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// The labels of everything that is ours. Values tell whose and what for.
const (
	labelPrefix = "python-executor."
	// labelInstance is the installation's id.
	labelInstance = labelPrefix + "instance"
	// labelBoot is the plugin process that made it: see boot.
	labelBoot = labelPrefix + "boot"
	// labelKind is one of the kinds below.
	labelKind = labelPrefix + "kind"
	// labelCreated and labelDeadline are Unix seconds: when it was made, and when it may be removed whatever it does. Labels
	// cannot be changed, and a warm container is made before anybody knows what for: of which Execution or Session it is, and
	// until when, is in claims.
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
	// programID runs programs, as user and as group: the PRD's.
	programID = 1000
	// workFolder is where programs work.
	workFolder = "/work"
	// tempFolder is TMPDIR. It and workFolder are all that a program may write to, but for shared memory.
	tempFolder = "/tmp"
	// runnerFolder is where the runner's volume is mounted, and runnerFile the runner in it.
	runnerFolder = "/.python-executor"
	runnerFile   = "python-executor-runner"
	// hostName is what every sandbox is called.
	hostName = "sandbox"
	// scratchBytes sizes /dev/shm and what covers an image's volumes. What is in them is memory of the container.
	scratchBytes = 64 << 20
	// filesSoft and filesHard are the numbers of open files. A daemon without CAP_SYS_RESOURCE cannot give more than it has.
	filesSoft, filesHard = 1024, 4096
	// fileBytes is the least a file takes: the number of files in a folder in memory is bounded by its size.
	fileBytes          = 4096
	minInodes          = 16 << 10
	maxInodes          = 1 << 20
	outOfMemoryScore   = 500
	defaultNetworkNone = "none"
)

// capacity are the limits of a container that can be changed while it runs.
type capacity struct {
	MemoryBytes int64
	CPUShares   int64
	PIDs        int64
}

// capacityOf is what the limits of an Execution mean for its container. The folders in memory count as its memory, and the
// runner's threads as its processes.
func capacityOf(l executor.Limits) capacity {
	return capacity{MemoryBytes: l.MemoryBytes + l.DiskBytes, CPUShares: l.CPUShares, PIDs: l.PIDs + runner.OwnThreads}
}

// containerSpec is a container before it is made: all that we decide about it. What is not here is forced by the client's
// conversion (no privileges, no restart, no log) or the daemon's default (seccomp, masked paths).
type containerSpec struct {
	Name    string
	Image   string
	Labels  map[string]string
	Command []string // the whole argv; the image's entrypoint counts for nothing
	Env     []string
	User    string
	Folder  string
	Network string // "none", or a network's name
	// Hosts is a file of the daemon's machine that is /etc/hosts, read-only. With it, and Network "none", the daemon's own
	// network machinery is left out: it does nothing for such a container but give it a hosts file, and takes as long for
	// that as for all the rest of its start. The network namespace is the container's own either way.
	Hosts   string
	Runtime string // empty: the daemon's default
	// AutoRemove: the daemon removes it when it ends, also when nobody of ours is left to do it.
	AutoRemove bool
	// WritableRoot: the image's files may be changed, in a layer of the container's own (preparation).
	WritableRoot bool
	// Capabilities that are kept of all; empty: none.
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

// class is what makes waiting containers exchangeable: what cannot be changed once one runs.
type class struct {
	Image     string // id
	Runtime   string
	Network   bool
	DiskBytes int64
	// Session: for a Session; they are counted apart.
	Session bool
	// Limits are all of them where the runtime cannot change any, else zero.
	Limits capacity
}

// place is what of a container comes from the configuration and the daemon rather than from a request.
type place struct {
	Instance string
	Boot     string
	Volume   string // of the runner
	Hosts    string // a file in it, as a path on the daemon's machine; empty: unknown
	Program  []string
	Runtime  string
	Network  string // the network of containers that may use one
	NanoCPUs int64
	Under    under // what Runtime, or a class's, puts below programs
}

// sandboxSpec builds the container in which a program that nobody trusts runs. covered are the image's declared volumes:
// each would be a folder of the daemon's disk without a limit, and is covered by one in memory. It is pure: now is given.
func sandboxSpec(p place, c class, limits capacity, covered []string, name string, now time.Time) containerSpec {
	network := defaultNetworkNone
	if c.Network {
		network = p.Network
	}
	limits.PIDs = p.Under.pids(limits.PIDs)
	s := containerSpec{
		Name: name, Image: c.Image, Command: p.Program, User: user(), Folder: workFolder, Network: network, Runtime: c.Runtime,
		Labels: map[string]string{
			labelInstance: p.Instance, labelBoot: p.Boot, labelKind: kindSandbox, labelCreated: strconv.FormatInt(now.Unix(), 10),
		},
		// For the runner alone: it makes the program's environment itself. Without a bound Go would start a thread per CPU.
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

// fillSpec builds the container through which the runner's volume is filled. It never starts.
func fillSpec(p place, image, volume, name string, now time.Time) containerSpec {
	return containerSpec{
		Name: name, Image: image, Command: []string{"/never"}, User: user(), Network: defaultNetworkNone, FillVolume: volume, WritableRoot: true,
		Labels: map[string]string{
			labelInstance: p.Instance, labelBoot: p.Boot, labelKind: kindFill, labelCreated: strconv.FormatInt(now.Unix(), 10),
		},
	}
}

func user() string { return fmt.Sprintf("%d:%d", programID, programID) }

// tmpfs are the options of a folder in memory. Without exec native modules in it could not be loaded. The number of files
// is bounded too, because each takes memory that its size does not count.
func tmpfs(bytes int64, mode string, owned bool) string {
	inodes := min(max(bytes/fileBytes, minInodes), maxInodes)
	s := fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,mode=%s", bytes, inodes, mode)
	if owned {
		s += fmt.Sprintf(",uid=%d,gid=%d", programID, programID)
	}
	return s
}
