package executor

import "time"

// Language is the language of a Spec's code.
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
	// InterpreterEnvironment: an interpreter of the backend that has the Spec's requirements.
	InterpreterEnvironment Interpreter = "environment"
	// InterpreterSystem: the python3 of the sandbox's system. Requirements are then refused (invalid).
	InterpreterSystem Interpreter = "system"
)

// Network says whether the program may use a network other than its own loopback.
type Network string

// The network modes.
const (
	// NetworkDefault: off where the backend can enforce that. Where it cannot, Info says so.
	NetworkDefault Network = ""
	// NetworkOff: off, or the Spec is refused with Unimplemented ("network_disabled": true in metadata).
	NetworkOff Network = "off"
	// NetworkOn: on ("network_disabled": false).
	NetworkOn Network = "on"
)

// TimeoutMaximum as Limits.Timeout asks for the longest timeout that the server allows ("timeout_seconds": 0 in metadata).
const TimeoutMaximum time.Duration = -1

// Unlimited as Limits.OutputBytes keeps all output. It is valid only where the Engine's maximum is Unlimited, too (embedded run).
const Unlimited int64 = -1

// TimeoutPerCPU times Limits.CPUTime is the least default of Limits.Timeout, within the maximum. A program whose processor is busy with others
// then reaches the limit of CPU time first.
const TimeoutPerCPU = 10

// Limits bound one Execution. In a Spec a zero field is not asked for, and the Engine sets its default. In a Job every field is resolved. A
// limit that was asked for and that the backend cannot enforce is refused with Unimplemented.
type Limits struct {
	// Timeout is wall time from Started. Queueing and preparation have clocks of their own. Default 300 s, maximum 86,400 s.
	Timeout time.Duration `json:"timeout,omitzero"`
	// CPUTime bounds the user and system time of all processes of the program together, also of those that have ended. PreCommands do
	// not count. It is exact: a program that has used more has timed out, also if it ended before anything stopped it. By default there
	// is no such bound; maximum 86,400 s. With it the default of Timeout is at least TimeoutPerCPU times as long. In a Session it is for
	// each Execution.
	CPUTime time.Duration `json:"cpu_time,omitzero"`
	// MemoryBytes bounds the resident memory of all processes of the program together, without the files that DiskBytes counts.
	// Default 1 GiB, maximum 64 GiB.
	MemoryBytes int64 `json:"memory_bytes,omitzero"`
	// DiskBytes bounds the work folder and the folders for temporary files, Workspace included.
	// Default 2 GiB, maximum 64 GiB.
	DiskBytes int64 `json:"disk_bytes,omitzero"`
	// CPUShares is the relative weight of the program when the CPU is contended, 1024 = one share. Default 1024; 2 to 262,144.
	CPUShares int64 `json:"cpu_shares,omitzero"`
	// PIDs bounds the processes and threads alive at once. Default 256, maximum 4,096.
	PIDs int64 `json:"pids,omitzero"`
	// OutputBytes bounds the bytes that are kept of each stream. Bytes beyond it are counted, not kept, and the program goes on.
	// Default 64 MiB, maximum 1 GiB.
	OutputBytes int64 `json:"output_bytes,omitzero"`
	// KillGrace is the time between SIGTERM (or SIGINT, see Spec.InterruptOnCancel) and SIGKILL when a limit is reached or the Execution is
	// cancelled. Default 1 s.
	KillGrace time.Duration `json:"kill_grace,omitzero"`
}

// Spec is what to run. The program is Code, or Command, or the entrypoint of a Workspace: exactly one of them.
//
// The JSON names are those of this package's stored form; the HTTP metadata has its own wire type.
type Spec struct {
	// Language of Code or Entrypoint. Default: that of the Entrypoint's suffix (.js, .cjs, .mjs, .sh, .bash), else python.
	Language Language `json:"language,omitzero"`
	// Entrypoint is the path of the file to run, relative to the Workspace's root. Default: main.py, else __main__.py,
	// else the first regular .py file in archive order.
	Entrypoint string `json:"entrypoint,omitzero"`
	// Code is the text of a program. It runs as main.py in the work folder, together with the files of the Workspace. A Workspace that
	// has a main.py of its own is then invalid.
	Code string `json:"code,omitzero"`
	// Command is an argv to run instead of an entrypoint. Command[0] is looked up on the program's PATH.
	Command []string `json:"command,omitempty"`
	// Args are appended to the arguments of the program.
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
	// PreCommands are shell commands that run before the program. Where the backend prepares images they run as root and change the image,
	// else as the program's user in the work folder. The first that fails is a Failure of PhasePrepare.
	PreCommands []string `json:"pre_commands,omitempty"`
	// Detect says whether the Engine may search the files for requirements: nil = only Code, true = the tar is spooled and read, too,
	// false = never.
	Detect *bool `json:"detect,omitempty"`
	// Outputs are globs (with **) of files in the work folder to keep as Artifacts, relative to its root. The name of a folder stands for
	// all below it.
	Outputs []string `json:"outputs,omitempty"`
	// OutputsChanged keeps every regular file, too, that is new or has changed since the program started.
	OutputsChanged bool `json:"outputs_changed,omitzero"`
	// FilesChanged makes Result.FilesChanged name the files of the Session that were made or changed, without a copy of them. In a
	// Session only.
	FilesChanged bool `json:"files_changed,omitzero"`
	// Limits as asked for; zero fields take the Engine's defaults.
	Limits Limits `json:"limits,omitzero"`
	// Network mode.
	Network Network `json:"network,omitzero"`
	// Session is the id of the Session to run in ("ctx-…"). If it is empty, the Execution has a Sandbox of its own. In a Session only
	// Code or Command, Args (of a Command), Outputs, OutputsChanged, FilesChanged, Limits.{Timeout, CPUTime, OutputBytes, KillGrace}, Durable,
	// IdempotencyKey and SampleInterval may be set; the Session has the rest.
	Session string `json:"session,omitzero"`
	// Backend names the backend. Default: the configured one.
	Backend string `json:"backend,omitzero"`
	// Durable makes acceptance durable: Submit returns when Spec and Workspace are on disk. Always true for async.
	Durable bool `json:"durable,omitzero"`
	// IdempotencyKey makes Submit return the first Execution of the same owner, key and Spec; at most 255 bytes.
	IdempotencyKey string `json:"idempotency_key,omitzero"`
	// SampleInterval > 0 samples memory use at that interval into Result.MemorySamples; at least 10 ms.
	SampleInterval time.Duration `json:"sample_interval,omitzero"`
	// InterruptOnCancel makes a cancel send SIGINT in the place of SIGTERM, as Ctrl-C does. A Backend that cannot do that sends SIGTERM.
	InterruptOnCancel bool `json:"interrupt_on_cancel,omitzero"`
	// Script is the path of an allow-listed host script. It needs ScopeScripts.
	Script string `json:"script,omitzero"`
	// HostDirectory is a folder of the host to run in. It needs ScopeTrusted, or a folder that the configuration opens. A Backend gets its
	// path without links, and follows none: it refuses a folder that was exchanged for a link since (invalid).
	HostDirectory string `json:"host_directory,omitzero"`
}

// SpecField is one field of a Spec, or of its Limits.
type SpecField struct {
	// Name is the field's name in requests and errors.
	Name string
	// Set reports whether the Spec asks for it.
	Set bool
	// OfSession reports whether a Spec that opens a Session may set it, InSession whether an Execution in a Session may.
	OfSession, InSession bool
}

// Fields returns all fields of s, in the order in which errors name them.
func (s Spec) Fields() [32]SpecField {
	return [...]SpecField{
		{"language", s.Language != "", true, false},
		{"code", s.Code != "", false, true},
		{"command", len(s.Command) > 0, false, true},
		{"entrypoint", s.Entrypoint != "", false, false},
		{"args", len(s.Args) > 0, false, true},
		{"env", len(s.Env) > 0, true, false},
		{"outputs", len(s.Outputs) > 0, false, true},
		{"outputs_changed", s.OutputsChanged, false, true},
		{"files_changed", s.FilesChanged, false, true},
		{"durable", s.Durable, false, true},
		{"idempotency_key", s.IdempotencyKey != "", false, true},
		{"sample_interval_seconds", s.SampleInterval != 0, false, true},
		{"interrupt_on_cancel", s.InterruptOnCancel, false, false},
		{"session", s.Session != "", false, true},
		{"python_version", s.PythonVersion != "", true, false},
		{"interpreter", s.Interpreter != "", false, false},
		{"docker_image", s.Image != "", true, false},
		{"requirements_txt", s.Requirements != "", true, false},
		{"pre_commands", len(s.PreCommands) > 0, true, false},
		{"detect", s.Detect != nil, false, false},
		{"config.network_disabled", s.Network != "", true, false},
		{"backend", s.Backend != "", true, false},
		{"script", s.Script != "", false, false},
		{"host_directory", s.HostDirectory != "", false, false},
		{"config.memory_mb", s.Limits.MemoryBytes != 0, true, false},
		{"config.disk_mb", s.Limits.DiskBytes != 0, true, false},
		{"config.cpu_shares", s.Limits.CPUShares != 0, true, false},
		{"config.pids", s.Limits.PIDs != 0, true, false},
		{"config.timeout_seconds", s.Limits.Timeout != 0, true, true},
		{"config.cpu_seconds", s.Limits.CPUTime != 0, true, true},
		{"config.output_bytes", s.Limits.OutputBytes != 0, true, true},
		{"config.kill_grace_seconds", s.Limits.KillGrace != 0, true, true},
	}
}

// BriefBytes is the maximum Size of a Spec in brief.
const BriefBytes = 8 << 10

// Size returns the approximate bytes of the parts of s that may be large: Code, Command, Args, Env, Requirements, PreCommands and Outputs.
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

// Brief returns s. If its Size is more than BriefBytes, the parts that Size counts are left out.
func (s Spec) Brief() Spec {
	if s.Size() <= BriefBytes {
		return s
	}
	s.Code, s.Requirements = "", ""
	s.Command, s.Args, s.PreCommands, s.Outputs, s.Env = nil, nil, nil, nil, nil
	return s
}
