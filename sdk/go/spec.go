package pyexec

import "io"

// Spec says what to run: the metadata of the API. Exactly one of Code, Command, or a tar with an entrypoint is the
// program. What is not set is not sent, and the server's default holds.
type Spec struct {
	// Entrypoint is the path of the file to run, relative to the tar's root. Default: main.py, else __main__.py, else the
	// first .py file.
	Entrypoint string `json:"entrypoint,omitzero"`
	// Code is a program text; it runs as main.py.
	Code string `json:"code,omitzero"`
	// Command is an argv to run instead of an entrypoint.
	Command []string `json:"command,omitempty"`
	// Args are appended to the program's arguments.
	Args []string `json:"args,omitempty"`
	// Env is added to the program's environment.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is the program's standard input as text. Not together with Input.Stdin.
	Stdin string `json:"stdin,omitzero"`
	// PythonVersion is an exact minor version, "3.12".
	PythonVersion string `json:"python_version,omitzero"`
	// DockerImage is a container image, "python:3.12-slim".
	DockerImage string `json:"docker_image,omitzero"`
	// RequirementsTxt is text in requirements.txt form.
	RequirementsTxt string `json:"requirements_txt,omitzero"`
	// PreCommands are shell commands that prepare the image.
	PreCommands []string `json:"pre_commands,omitempty"`
	// Detect lets the server look for requirements: true also in a tar, false nowhere.
	Detect *bool `json:"detect,omitempty"`
	// Outputs are globs (with **) of files to keep as artifacts.
	Outputs []string `json:"outputs,omitempty"`
	// OutputsChanged also keeps every file that is new or changed.
	OutputsChanged bool `json:"outputs_changed,omitzero"`
	// FilesChanged has Execution.FilesChanged name the files of the session that were made or changed. Only in a session.
	FilesChanged bool `json:"files_changed,omitzero"`
	// Config bounds the run.
	Config Config `json:"config,omitzero"`
	// Backend names the backend to run on.
	Backend string `json:"backend,omitzero"`
	// IdempotencyKey makes the same Submit return the first Execution instead of making another; at most 255 bytes. It
	// also lets the client retry Submit and Run.
	IdempotencyKey string `json:"idempotency_key,omitzero"`
	// Language of Code or the entrypoint: "python" (default), "javascript", "shell".
	Language string `json:"language,omitzero"`
	// Interpreter is "environment" (default) or "system".
	Interpreter string `json:"interpreter,omitzero"`
	// SessionID is the session to run in ("ctx-…").
	SessionID string `json:"session_id,omitzero"`
	// Durable makes a Run be accepted only when it is on the server's disk; Submit always is.
	Durable bool `json:"durable,omitzero"`
	// SampleIntervalSeconds > 0 samples memory use at that interval; at least 0.01.
	SampleIntervalSeconds float64 `json:"sample_interval_seconds,omitzero"`
	// Script is an allow-listed script of the server's host. Needs the scope "scripts".
	Script string `json:"script,omitzero"`
	// HostDirectory is a folder of the server's host to run in. Needs the scope "trusted".
	HostDirectory string `json:"host_directory,omitzero"`
}

// Config bounds a run. A nil or zero field is not sent. MB are 2^20 bytes.
type Config struct {
	// TimeoutSeconds from the program's start; 0 asks for the server's maximum.
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
	// NetworkDisabled: true insists on no network, false asks for one.
	NetworkDisabled *bool `json:"network_disabled,omitempty"`
	MemoryMB        int64 `json:"memory_mb,omitzero"`
	DiskMB          int64 `json:"disk_mb,omitzero"`
	// CPUShares is a weight; 1024 = one share.
	CPUShares int64 `json:"cpu_shares,omitzero"`
	PIDs      int64 `json:"pids,omitzero"`
	// OutputBytes is how much of each output stream is kept.
	OutputBytes int64 `json:"output_bytes,omitzero"`
	// KillGraceSeconds is the time between SIGTERM and SIGKILL.
	KillGraceSeconds float64 `json:"kill_grace_seconds,omitzero"`
}

// Input is what goes with a Spec. Both are streamed, Tar before Stdin, and read by nobody once the call has returned and
// a Read that was under way has ended. They are not closed.
type Input struct {
	// Tar is an uncompressed tar of the files to start with; nil: none. If it is an io.Seeker it can be sent again.
	Tar io.Reader
	// Stdin is the program's standard input as bytes; nil: empty.
	Stdin io.Reader
}
