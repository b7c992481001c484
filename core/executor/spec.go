package executor

import "time"

// Language is what a Spec's code is written in.
type Language string

// The languages. The zero value means LanguagePython.
const (
	LanguageDefault    Language = ""
	LanguagePython     Language = "python"
	LanguageJavaScript Language = "javascript"
	LanguageShell      Language = "shell"
)

// Interpreter says which interpreter runs the program.
type Interpreter string

// The interpreters. The zero value means InterpreterEnvironment.
const (
	InterpreterDefault Interpreter = ""
	// InterpreterEnvironment: the one that has the Spec's requirements, managed by the backend.
	InterpreterEnvironment Interpreter = "environment"
	// InterpreterSystem: the place's own python3; requirements are then refused (invalid).
	InterpreterSystem Interpreter = "system"
)

// Network says whether the program may use a network other than its own loopback.
type Network string

// The network modes.
const (
	// NetworkDefault: off where the backend can enforce it; where it cannot, Info says so.
	NetworkDefault Network = ""
	// NetworkOff: off, or the Spec is refused with Unimplemented ("network_disabled": true in metadata).
	NetworkOff Network = "off"
	// NetworkOn: on ("network_disabled": false).
	NetworkOn Network = "on"
)

// TimeoutMaximum as Limits.Timeout asks for the longest timeout the server allows ("timeout_seconds": 0 in metadata).
const TimeoutMaximum time.Duration = -1

// Unlimited as Limits.OutputBytes keeps all output; legal only where the Engine's maximum is Unlimited too (embedded run).
const Unlimited int64 = -1

// Limits bound one Execution. In a Spec a zero means "not asked for": the Engine puts its default there. In a Job every
// field is resolved. A limit that was asked for and cannot be enforced by the backend is refused with Unimplemented.
type Limits struct {
	// Timeout is wall time from Started; queueing and preparation have clocks of their own. Default 300 s, maximum 86,400 s.
	Timeout time.Duration `json:"timeout,omitzero"`
	// MemoryBytes bounds the resident memory of all processes of the program together. Default 1 GiB, maximum 64 GiB.
	MemoryBytes int64 `json:"memory_bytes,omitzero"`
	// DiskBytes bounds what /work (or the private work folder) may hold, Workspace included. Default 2 GiB, maximum 64 GiB.
	DiskBytes int64 `json:"disk_bytes,omitzero"`
	// CPUShares is the relative weight of the program when the CPU is contended, 1024 = one share. Default 1024; 2 to 262,144.
	CPUShares int64 `json:"cpu_shares,omitzero"`
	// PIDs bounds the processes and threads alive at once. Default 256, maximum 4,096.
	PIDs int64 `json:"pids,omitzero"`
	// OutputBytes bounds what is kept of each stream; beyond it bytes are counted, not kept, and the program keeps
	// running. Default 64 MiB, maximum 1 GiB.
	OutputBytes int64 `json:"output_bytes,omitzero"`
	// KillGrace is the time between SIGTERM and SIGKILL when a limit fires or the Execution is cancelled. Default 1 s.
	KillGrace time.Duration `json:"kill_grace,omitzero"`
}

// Spec is what to run. Exactly one of Code, Command, or a Workspace with an entrypoint says what the program is.
//
// The JSON names are those of this package's stored form; the HTTP metadata has its own wire type.
type Spec struct {
	// Language of Code or Entrypoint. Default python.
	Language Language `json:"language,omitzero"`
	// Entrypoint is the path of the file to run, relative to the Workspace's root. Default: main.py, else __main__.py,
	// else the first regular .py file in archive order.
	Entrypoint string `json:"entrypoint,omitzero"`
	// Code is a program text. It runs as main.py in the work folder, beside the Workspace if there is one; a Workspace
	// that has a main.py of its own is then invalid.
	Code string `json:"code,omitzero"`
	// Command is an argv to run instead of an entrypoint. Command[0] is looked up on the program's PATH.
	Command []string `json:"command,omitempty"`
	// Args are appended to the program's arguments, whichever way it was named.
	Args []string `json:"args,omitempty"`
	// Env is added to the program's environment (PATH, HOME, TMPDIR, LANG, PYTHONUNBUFFERED) and wins over it.
	// An empty PYTHONUNBUFFERED removes that variable.
	Env map[string]string `json:"env,omitempty"`
	// PythonVersion is an exact minor version, "3.12". Default: the backend's.
	PythonVersion string `json:"python_version,omitzero"`
	// Interpreter: environment (default) or system.
	Interpreter Interpreter `json:"interpreter,omitzero"`
	// Image is a container image, "python:3.12-slim" (docker_image in metadata).
	Image string `json:"image,omitzero"`
	// Requirements is text in requirements.txt form.
	Requirements string `json:"requirements,omitzero"`
	// PreCommands are shell commands that prepare the image as root.
	PreCommands []string `json:"pre_commands,omitempty"`
	// Detect says whether the Engine may look into the tar for requirements: nil = only where the files are in hand
	// anyway (Code), true = the tar is spooled and read, false = never.
	Detect *bool `json:"detect,omitempty"`
	// Outputs are globs (with **) of files in the work folder to keep as Artifacts, relative to its root.
	Outputs []string `json:"outputs,omitempty"`
	// OutputsChanged also keeps every regular file that is new or changed since the program started.
	OutputsChanged bool `json:"outputs_changed,omitzero"`
	// FilesChanged has Result.FilesChanged name the files of the Session that were made or changed, and copies none. Only in a
	// Session.
	FilesChanged bool `json:"files_changed,omitzero"`
	// Limits as asked for; zero fields take the Engine's defaults.
	Limits Limits `json:"limits,omitzero"`
	// Network mode.
	Network Network `json:"network,omitzero"`
	// Session is the id of the Session to run in ("ctx-…"); empty: a Sandbox of its own. Then only Code or Command, Args (of
	// a Command), Outputs, OutputsChanged, FilesChanged, Limits.{Timeout, OutputBytes, KillGrace}, Durable, IdempotencyKey and
	// SampleInterval may be set besides: the rest is the Session's.
	Session string `json:"session,omitzero"`
	// Backend names the backend; empty: the configured default.
	Backend string `json:"backend,omitzero"`
	// Durable makes acceptance durable: Submit returns when Spec and Workspace are on disk. Always true for async.
	Durable bool `json:"durable,omitzero"`
	// IdempotencyKey makes Submit return the first Execution of the same owner, key and Spec; at most 255 bytes.
	IdempotencyKey string `json:"idempotency_key,omitzero"`
	// SampleInterval > 0 samples memory use at that interval into Result.MemorySamples; at least 10 ms.
	SampleInterval time.Duration `json:"sample_interval,omitzero"`
	// Script is the path of an allow-listed host script. Needs scope "scripts".
	Script string `json:"script,omitzero"`
	// HostDirectory is a folder of the host to run in. Needs a trusted Principal.
	HostDirectory string `json:"host_directory,omitzero"`
}

// BriefBytes is the largest Size of a Spec in brief.
const BriefBytes = 8 << 10

// Size returns about how many bytes the parts of s take that may be large: Code, Command, Args, Env, Requirements,
// PreCommands and Outputs.
func (s Spec) Size() int64 {
	n := int64(len(s.Code) + len(s.Requirements))
	for _, list := range [][]string{s.Command, s.Args, s.PreCommands, s.Outputs} {
		n += sizeOf(list)
	}
	for name, value := range s.Env {
		n += entryWeight + int64(len(name)+len(value))
	}
	return n
}

// Brief returns s itself, or if its Size is more than BriefBytes, s without the parts that Size counts.
func (s Spec) Brief() Spec {
	if s.Size() <= BriefBytes {
		return s
	}
	s.Code, s.Requirements = "", ""
	s.Command, s.Args, s.PreCommands, s.Outputs, s.Env = nil, nil, nil, nil, nil
	return s
}
