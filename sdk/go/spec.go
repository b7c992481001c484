package pyexec

import (
	"io"

	"github.com/python-executor/python-executor/sdk/go/pack"
)

// Spec says what to run: the metadata of the API. Exactly one of Code, Command, Script, or a tar with an entrypoint is the
// program. A field that is not set is not sent, and the server's default holds.
type Spec struct {
	Entrypoint            string            `json:"entrypoint,omitzero" pattern:"^[^\\x00]*$" doc:"Path of the file to run, relative to the root of the tar. Default: main.py, else __main__.py, else the first regular .py file in archive order; stderr names it if there are several. A file whose suffix is not a program's (.ipynb, .txt, .json) is refused."`
	Code                  string            `json:"code,omitzero" doc:"Text of a program. It runs as main.py. Not together with command."`
	Command               []string          `json:"command,omitempty" pattern:"^[^\\x00]*$" doc:"An argv to run instead of an entrypoint. Its first element is looked up on PATH. Not together with code."`
	Args                  []string          `json:"args,omitempty" pattern:"^[^\\x00]*$" doc:"Arguments, appended to those of the program."`
	Env                   map[string]string `json:"env,omitempty" doc:"Environment variables, added to the program's own (PATH, HOME, TMPDIR, LANG, PYTHONUNBUFFERED). An empty PYTHONUNBUFFERED removes that variable."`
	Stdin                 string            `json:"stdin,omitzero" doc:"Standard input of the program, as text. Default: empty and closed. Not together with a part stdin."`
	PythonVersion         string            `json:"python_version,omitzero" pattern:"^([0-9]+\\.[0-9]+)?$" patternDescription:"a minor version such as 3.12" doc:"Minor version of Python, \"3.12\". Default: the backend's."`
	DockerImage           string            `json:"docker_image,omitzero" pattern:"^[^\\x00]*$" doc:"Container image, \"python:3.12-slim\". A backend without images may map some images to its interpreters. It refuses the others with 501."`
	RequirementsTxt       string            `json:"requirements_txt,omitzero" doc:"Requirements in the form of a requirements.txt. Default: the PEP 723 block of the entrypoint, else requirements.txt, uv.lock or pyproject.toml at the root (see detect)."`
	PreCommands           []string          `json:"pre_commands,omitempty" pattern:"^[^\\x00]*$" doc:"Shell commands that run before the program: as root in the image (docker), else as the program's user in the work folder."`
	Detect                *bool             `json:"detect,omitempty" doc:"Whether the server looks for requirements. Default: only in code and in files of a JSON body. true: also in a tar, which the server then keeps on disk until it is read. false: never."`
	Outputs               []string          `json:"outputs,omitempty" pattern:"^[^\\x00]*$" doc:"Globs of files in the work folder to keep as artifacts. ** matches folders. The name of a folder stands for all below it."`
	OutputsChanged        bool              `json:"outputs_changed,omitzero" doc:"Also keep every regular file that is new or changed since the program started."`
	FilesChanged          bool              `json:"files_changed,omitzero" doc:"Only in a session: name the files that were made or changed, and copy none."`
	Config                Config            `json:"config,omitzero" doc:"Limits. A limit that is not given is the server's default. A limit above the server's maximum is 422."`
	Backend               string            `json:"backend,omitzero" pattern:"^[^\\x00]*$" doc:"Name of the backend. Default: the server's."`
	IdempotencyKey        string            `json:"idempotency_key,omitzero" maxLength:"255" pattern:"^[^\\x00]*$" doc:"The same owner, key and Spec return the first execution. Another Spec with the same key is 409. At most 255 bytes. The client libraries repeat a failed call, and send a key of their own where none is given."`
	Language              string            `json:"language,omitzero" enum:"python,javascript,shell" doc:"Language of code or entrypoint. Default: python."`
	Interpreter           string            `json:"interpreter,omitzero" enum:"environment,system" doc:"environment: an interpreter with the requirements, managed by the backend (default). system: the python3 of the sandbox."`
	SessionID             string            `json:"session_id,omitzero" pattern:"^[^\\x00]*$" doc:"Session to run in: its id (\"ctx-…\") or its name. Default: a sandbox of its own."`
	Durable               bool              `json:"durable,omitzero" doc:"Accept the execution only when Spec and tar are on the server's disk. Always true for async."`
	InterruptOnCancel     bool              `json:"interrupt_on_cancel,omitzero" doc:"A cancel sends SIGINT to the program, as Ctrl-C does, and not SIGTERM. Not in sessions, where it always does. Default: false."`
	SampleIntervalSeconds float64           `json:"sample_interval_seconds,omitzero" minimum:"0.01" maximum:"4294967296" doc:"Interval of memory_samples in the Result, at least 0.01. Default: no samples."`
	Script                string            `json:"script,omitzero" pattern:"^[^\\x00]*$" doc:"Path of an allow-listed script of the server's host. Needs the scope scripts."`
	HostDirectory         string            `json:"host_directory,omitzero" pattern:"^[^\\x00]*$" doc:"Folder of the server's host to run in. Needs the scope trusted, or a folder in mcp.directories."`
}

// Config bounds a run. A nil or zero field is not sent. MB are 2^20 bytes. The maxima here are those of the format. The server's
// own defaults and maxima are in its API description.
type Config struct {
	TimeoutSeconds   *float64 `json:"timeout_seconds,omitempty" minimum:"0" maximum:"4294967296" doc:"Wall time from the start of the program. Queueing and installing do not count. 0: the server's maximum."`
	CPUSeconds       float64  `json:"cpu_seconds,omitzero" exclusiveMinimum:"0" maximum:"4294967296" doc:"CPU time, user and system, of all processes of the program together, also of those that have ended. A program that has used more has timed out, also if it ended by itself. Default: the server's, else no limit but timeout_seconds. The default of timeout_seconds is then at least 10 times as long."`
	NetworkDisabled  *bool    `json:"network_disabled,omitempty" default:"true" doc:"true: no network but the program's own loopback, or 501. false: a network. Default: off where the backend can enforce it."`
	MemoryMB         int64    `json:"memory_mb,omitzero" minimum:"1" maximum:"4398046511104" doc:"Memory of all processes of the program together, in MB of 2^20 bytes."`
	DiskMB           int64    `json:"disk_mb,omitzero" minimum:"1" maximum:"4398046511104" doc:"Size of the work folder, uploaded files included, in MB of 2^20 bytes."`
	CPUShares        int64    `json:"cpu_shares,omitzero" minimum:"1" maximum:"4398046511104" doc:"Relative weight when the CPU is contended. 1024 is one share."`
	PIDs             int64    `json:"pids,omitzero" minimum:"1" maximum:"4398046511104" doc:"Processes and threads that are alive at once."`
	OutputBytes      int64    `json:"output_bytes,omitzero" minimum:"1" maximum:"4398046511104" doc:"Bytes that are kept of each output stream. Bytes beyond it are counted, not kept."`
	KillGraceSeconds float64  `json:"kill_grace_seconds,omitzero" exclusiveMinimum:"0" maximum:"4294967296" doc:"Time between SIGTERM and SIGKILL when the program is stopped."`
}

// Input is what goes with a Spec. It is streamed, the files before Stdin. The client does not close Tar and Stdin, and does not read them
// after the call has returned and a Read under way has ended.
type Input struct {
	// Tar is an uncompressed tar of the files to start with; nil: none. If it is an io.Seeker it can be sent again. Without RequirementsTxt
	// and Detect in the Spec, the server takes the requirements from the files, so it keeps the tar on disk until the tar is whole.
	Tar io.Reader
	// Folder is a local folder that is sent by the rules of the CLI (see package pack), in place of Tar; empty: none. Pack changes
	// what is sent. Without an entrypoint, code or command in the Spec, the entrypoint is that of pack.Entrypoint.
	Folder string
	Pack   pack.Options
	// Stdin is the program's standard input as bytes; nil: empty.
	Stdin io.Reader
}
