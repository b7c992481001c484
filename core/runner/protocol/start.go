package protocol

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Config is fixed for a runner's life. The host sends it in its Hello.
type Config struct {
	// WorkRoot is the folder in which the runner makes a private folder per Execution. It exists, and UID may pass through it.
	WorkRoot string `json:"work_root"`
	// UseWorkRoot makes WorkRoot itself the work folder, as in a container. Nothing is made or removed beside it.
	UseWorkRoot bool `json:"use_work_root"`
	// UID and GID are the program's. 0 means those of the runner; with others the runner must be root.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Temp is the programs' TMPDIR with UseWorkRoot: an existing folder outside of WorkRoot, which is emptied as WorkRoot is.
	// The default is /tmp, which is not emptied.
	Temp string `json:"temp,omitempty"`
	// Disks are folders besides WorkRoot and Temp whose files count as disk, with UseWorkRoot. A folder that does not exist, or
	// that lies on a disk of the machine, does not count.
	Disks []string `json:"disks,omitempty"`
	// Tmpfs puts the work folder, and private folders in the place of /tmp, /var/tmp, /dev/shm and /run/lock, on one tmpfs of
	// Limits.DiskBytes. The runner needs a mount namespace of its own.
	Tmpfs bool `json:"tmpfs"`
	// Box runs programs in a box: namespaces with a root folder of their own, which has nothing of the machine but its system
	// folders, Reach, and what Start names. It needs Tmpfs, and a mount namespace in which the runner may mount.
	Box bool `json:"box,omitempty"`
	// Private lists more folders that every user of the machine may write to, and that programs get private ones for.
	Private []string `json:"private,omitempty"`
	// Reach lists files and folders that programs need although a private folder may hide them. With Box they are bound
	// read-only at the same path, whether or not anything hides them.
	Reach []string `json:"reach,omitempty"`
	// Cgroups are the slot's own control group folders by controller: memory, pids, cpu and cpuacct on v1, unified on v2. The
	// runner makes and removes a child per Execution below each. Without any, limits are rlimits only.
	Cgroups map[string]string `json:"cgroups,omitempty"`
	// NetworkNamespace starts programs without Start.Network in a network namespace that has only loopback.
	NetworkNamespace bool `json:"network_namespace"`
	// InNetworkNamespace says that the host has started the runner in a network namespace with only loopback. A Start with
	// Network is refused.
	InNetworkNamespace bool `json:"in_network_namespace,omitempty"`
	// PrivateNetwork starts programs with Start.Network in a network namespace of their own, from which they reach public addresses
	// and NetworkOpen only (package network). Without it they have the runner's network.
	PrivateNetwork bool `json:"private_network,omitempty"`
	// NetworkOpen lists prefixes, such as 10.1.0.0/16, that programs reach besides public addresses. An address of the host
	// itself needs a prefix of its full length.
	NetworkOpen []string `json:"network_open,omitempty"`
	// NetworkLoopback lists TCP ports of the host's 127.0.0.1 that programs with a private network reach at their own 127.0.0.1.
	NetworkLoopback []uint16 `json:"network_loopback,omitempty"`
	// OwnUID says that no other process of the machine has UID, so processes may be counted (RLIMIT_NPROC) and killed by it.
	OwnUID bool `json:"own_uid,omitempty"`
	// Silence is how long the runner goes on without a host, and holds the Result and the Artifacts of the last Execution for a
	// host that resumes. With 0 it kills the program and exits at once.
	Silence time.Duration `json:"silence"`
	// Ahead makes a runner that is PID 1 of a container start an interpreter before a program comes. The first program takes it over where it
	// cannot tell. Otherwise the interpreter is ended before the program begins. nil starts none.
	Ahead *Ahead `json:"ahead,omitempty"`
	// WorkspacePipe makes the runner open a pipe for a Workspace. NewConn sets it if the connection is a DescriptorOpener.
	WorkspacePipe bool `json:"workspace_pipe,omitempty"`
}

// Ahead is an interpreter that waits.
type Ahead struct {
	// Interpreter is its absolute path, as in Start.Interpreter.
	Interpreter string `json:"interpreter"`
	// Path is the PATH of programs, as in Start.
	Path string `json:"path"`
	// Session makes it the interpreter of a Python session: it waits with its driver loaded, and only a session takes it over.
	Session bool `json:"session,omitempty"`
}

// NewStart returns the Start of a job, as far as its Spec says it. The backend adds what it has chosen: Interpreter, Path,
// Network, Reach and what the program runs with.
func NewStart(job executor.Job) Start {
	s := job.Spec
	return Start{
		ExecutionID: job.ID, Session: s.Session != "", Command: s.Command, Entrypoint: s.Entrypoint, Code: s.Code, Args: s.Args, Env: s.Env,
		Directory: s.HostDirectory, Limits: job.Limits, ArtifactBytes: job.ArtifactBytes, Outputs: s.Outputs, OutputsChanged: s.OutputsChanged,
		FilesChanged: s.FilesChanged && s.Session != "", SampleInterval: s.SampleInterval, Interrupt: s.InterruptOnCancel,
	}
}

// Start asks a runner to run one Execution.
type Start struct {
	ExecutionID string `json:"execution_id"`
	// Command is a complete argv. Command[0] without a slash is looked up on the program's PATH.
	Command []string `json:"command,omitempty"`
	// Interpreter is what precedes the entrypoint in argv. Not with Command.
	Interpreter []string `json:"interpreter,omitempty"`
	// Entrypoint is relative to the work folder. The default is main.py, __main__.py, or the first .py of the archive.
	Entrypoint string `json:"entrypoint,omitempty"`
	// Code is written to main.py. A Workspace that has a main.py is then invalid.
	Code string `json:"code,omitempty"`
	// PreCommands are lines for /bin/sh that run one after the other before the program, as the program does: in its folder, as its user,
	// with its network. Limits.Timeout bounds them together. The first that fails is the Failure of the Execution, in the phase prepare.
	PreCommands []string `json:"pre_commands,omitempty"`
	// Args end the argv, also of a Command.
	Args []string `json:"args,omitempty"`
	// Env is added to PATH, HOME, TMPDIR, LANG and PYTHONUNBUFFERED, and wins over them. An empty PYTHONUNBUFFERED removes it.
	Env map[string]string `json:"env,omitempty"`
	// Path is the program's PATH unless Env has one.
	Path string `json:"path"`
	// Directory is a folder of the host to run the program in, instead of a work folder (HostDirectory). In a box it is
	// read-only, unless DirectoryWritable.
	Directory         string `json:"directory,omitempty"`
	DirectoryWritable bool   `json:"directory_writable,omitempty"`
	// Reach is as Config.Reach, for this Execution. Names must be absolute and free of links. Directory and the folders of Path
	// need not be named.
	Reach []string `json:"reach,omitempty"`
	// Writable is as Reach, but the program may write there as far as its uid may. It only counts in a box.
	Writable []string `json:"writable,omitempty"`
	// Caches are folders that the program finds with what was made for it before.
	Caches []Cache `json:"caches,omitempty"`
	// Session runs the Execution in the open session: Code in its interpreter, a Command as a process of its own. Only Args of a
	// Command, Stdin, Outputs, OutputsChanged, FilesChanged, SampleInterval, and the Limits Timeout, OutputBytes and KillGrace
	// count besides. The rest is the session's.
	Session bool `json:"session,omitempty"`
	// Tree names the Workspace. A runner that can keeps the unpacked files and says so in Started.Kept. A later Start with the same
	// Tree then comes without a Workspace, and its program finds the same files. Any other Start ends that. Names of two owners must
	// differ.
	Tree string `json:"tree,omitempty"`
	// Workspace and Stdin say that frames of that kind follow.
	Workspace bool `json:"workspace"`
	Stdin     bool `json:"stdin"`
	// Fork lets a runner with a Box fork an interpreter that has started already, where programs cannot tell. It names those who may
	// share one: they trust each other, and the packages that they import. Empty means never. Interpreter, Entrypoint, Path, Preimport
	// and PreimportLearned always tell fork servers apart.
	Fork string `json:"fork,omitempty"`
	// Preimport names modules that are imported before an interpreter is forked. Programs that are forks find them imported. Modules
	// that cannot be imported are skipped.
	Preimport []string `json:"preimport,omitempty"`
	// PreimportLearned does the same with modules that most of the last programs of a fork server have imported.
	PreimportLearned bool `json:"preimport_learned,omitempty"`
	// Network allows a network: that of Config.PrivateNetwork, or else the runner's.
	Network        bool            `json:"network"`
	Limits         executor.Limits `json:"limits"`
	ArtifactBytes  int64           `json:"artifact_bytes,omitempty"` // as executor.Job.ArtifactBytes
	Outputs        []string        `json:"outputs,omitempty"`
	OutputsChanged bool            `json:"outputs_changed,omitempty"`
	// FilesChanged is only for a session.
	FilesChanged   bool          `json:"files_changed,omitempty"`
	SampleInterval time.Duration `json:"sample_interval,omitempty"`
	// Interrupt makes Cancel send SIGINT in the place of SIGTERM.
	Interrupt bool `json:"interrupt,omitempty"`
	// Last says that the host does not expect another Start. The runner prepares nothing for it. Another Start may come, and takes longer.
	Last bool `json:"last,omitempty"`
	// Deadline ends the runner, and all in it, that long after this Start, unless another Start comes first; 0 is no bound. It is
	// for containers that no backend may be left to remove. The limit of the program is Limits.Timeout.
	Deadline time.Duration `json:"deadline,omitempty"`
	// PythonVersion and Requirements are repeated in Started.
	PythonVersion string   `json:"python_version,omitempty"`
	Requirements  []string `json:"requirements,omitempty"`
}

// Cache is a folder below TMPDIR in which a library finds its cache. The program may write there. It is left out where TMPDIR is not the program's own.
type Cache struct {
	// Variable names the folder for the program, unless Env has that variable.
	Variable string `json:"variable"`
	// Files are absolute paths of what the folder has links to. The program must reach them, and may only read them.
	Files []string `json:"files"`
}

// OwnThreads bounds the threads of a runner that is PID 1. A container's pids limit must be that much above the program's.
const OwnThreads = 24

// SessionStart asks a runner to open a session: a work folder, and in it an interpreter that keeps its state between Executions.
type SessionStart struct {
	SessionID string `json:"session_id"`
	// Language chooses the driver. The default is python.
	Language executor.Language `json:"language,omitempty"`
	// Interpreter begins the argv: python, node, bash or sh, and options. Interpreter[0] without a slash is looked up on the
	// PATH.
	Interpreter []string `json:"interpreter"`
	// Env and Path are as in Start, for the interpreter and for every Command.
	Env  map[string]string `json:"env,omitempty"`
	Path string            `json:"path"`
	// Reach is as in Start.
	Reach []string `json:"reach,omitempty"`
	// Caches is as in Start, for the interpreter and for every Command.
	Caches []Cache `json:"caches,omitempty"`
	// Network is as in Start.
	Network bool `json:"network"`
	// Limits bind the interpreter and all Commands together. KillGrace is how long an interrupted cell may take to end. Timeout
	// and OutputBytes are those of each Start.
	Limits executor.Limits `json:"limits"`
	// Preload names modules that the interpreter imports before it is ready. It skips modules that cannot be imported.
	Preload []string `json:"preload,omitempty"`
}
