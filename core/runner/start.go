package runner

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Config is fixed for a runner's life. The host sends it in its Hello.
type Config struct {
	// WorkRoot is the folder in which the runner makes one private folder per Execution ("/work" in a container means:
	// use it itself). It exists and can be passed through by UID.
	WorkRoot string `json:"work_root"`
	// UseWorkRoot: WorkRoot itself is the work folder (a container's /work); nothing is made or removed beside it.
	UseWorkRoot bool `json:"use_work_root"`
	// UID and GID run the program; 0 = as the runner itself. Otherwise the runner must be root.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Temp is the programs' TMPDIR with UseWorkRoot, an existing folder outside of WorkRoot. It is emptied as WorkRoot is. By
	// default TMPDIR is /tmp, and nobody empties it.
	Temp string `json:"temp,omitempty"`
	// Tmpfs: the work folder and private folders in the place of /tmp, /var/tmp, /dev/shm and /run/lock are one tmpfs of
	// Limits.DiskBytes. The runner has a mount namespace of its own.
	Tmpfs bool `json:"tmpfs"`
	// Private lists more folders that every user of the machine may write to.
	Private []string `json:"private,omitempty"`
	// Reach lists files and folders that programs must reach although a private folder may hide them.
	Reach []string `json:"reach,omitempty"`
	// Cgroups are the slot's own cgroup folders by controller ("memory", "pids", "cpu", "cpuacct" on v1; "unified" for
	// v2). The runner makes and removes one child per Execution below each. Empty: rlimits only.
	Cgroups map[string]string `json:"cgroups,omitempty"`
	// NetworkNamespace: programs with the network off start in an empty network namespace (only loopback, up).
	NetworkNamespace bool `json:"network_namespace"`
	// InNetworkNamespace: the host started the runner inside an empty network namespace of its own (an unprivileged
	// runner, by clone flags): every program is without a network, and a Start with Network is refused.
	InNetworkNamespace bool `json:"in_network_namespace,omitempty"`
	// OwnUID: no other process on the machine runs under UID, so processes may be counted (RLIMIT_NPROC) and killed by it.
	OwnUID bool `json:"own_uid,omitempty"`
	// Silence says what to do when the host is gone: 0 = kill and exit at once; > 0 keep running that long, and hold the
	// Result of the last Execution, with its Artifacts, for a host that comes (ResumeConn). A Conn Pings by itself then.
	Silence time.Duration `json:"silence"`
	// Door: the runner makes a door for a Workspace. NewConn sets it where the connection is a DoorOpener.
	Door bool `json:"door,omitempty"`
	// Deadline is how long the runner lives at most from its Hello on, whatever its host says; 0 = no bound. See also
	// Start.Deadline.
	Deadline time.Duration `json:"deadline,omitempty"`
}

// Start asks a runner to run one Execution.
type Start struct {
	ExecutionID string `json:"execution_id"`
	// Command is a complete argv, run as it is; Command[0] without a slash is looked up on Env's PATH.
	Command []string `json:"command,omitempty"`
	// Interpreter is an argv prefix; the entrypoint found in the work folder follows it. Not with Command.
	Interpreter []string `json:"interpreter,omitempty"`
	// Entrypoint relative to the work folder; empty: main.py, __main__.py, first regular .py in archive order.
	Entrypoint string `json:"entrypoint,omitempty"`
	// Code is written to main.py; a Workspace that brings a main.py is then an invalid input.
	Code string `json:"code,omitempty"`
	// Args follow in every case.
	Args []string `json:"args,omitempty"`
	// Env is added to PATH (given in it), HOME, TMPDIR, LANG, PYTHONUNBUFFERED, and wins over them; an empty
	// PYTHONUNBUFFERED removes it.
	Env map[string]string `json:"env,omitempty"`
	// Path is the program's PATH unless Env has one.
	Path string `json:"path"`
	// Directory runs the program in a folder of the host instead of a work folder (HostDirectory).
	Directory string `json:"directory,omitempty"`
	// Reach is Config.Reach of this Execution. Names must be absolute and free of links. Directory and the folders of Path are
	// reached in any case.
	Reach []string `json:"reach,omitempty"`
	// Session: run in the session that is open (Conn.OpenSession): Code goes to its interpreter, Command is a process of its
	// own beside it. Of the rest only Args (of a Command), Stdin, Outputs, OutputsChanged, FilesChanged, SampleInterval and of
	// Limits Timeout, OutputBytes and KillGrace count; what else a program gets is the session's.
	Session bool `json:"session,omitempty"`
	// Workspace and Stdin: frames of that kind will follow.
	Workspace bool `json:"workspace"`
	Stdin     bool `json:"stdin"`
	// Network: the host's network is allowed.
	Network        bool            `json:"network"`
	Limits         executor.Limits `json:"limits"`
	Outputs        []string        `json:"outputs,omitempty"`
	OutputsChanged bool            `json:"outputs_changed,omitempty"`
	// FilesChanged: only in a session.
	FilesChanged   bool          `json:"files_changed,omitempty"`
	SampleInterval time.Duration `json:"sample_interval,omitempty"`
	// Deadline ends the runner, and all in it, so long after this Start, whatever its host says, unless another Start comes
	// before; 0 = no bound. It is for containers that nobody may be left to remove: a limit of the program is Limits.Timeout.
	Deadline time.Duration `json:"deadline,omitempty"`
	// PythonVersion and Requirements are repeated in Started.
	PythonVersion string   `json:"python_version,omitempty"`
	Requirements  []string `json:"requirements,omitempty"`
}
