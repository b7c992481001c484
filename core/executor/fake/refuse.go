package fake

import (
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// refuse returns an error that names every field that these capabilities cannot honour, or nil.
func refuse(c executor.Capabilities, images []string, job executor.Job) error {
	s := job.Spec
	var fields []executor.FieldError
	no := func(asked bool, able bool, field string) {
		if asked && !able {
			fields = append(fields, executor.FieldError{Field: field, Message: "this backend cannot do or enforce it"})
		}
	}
	no(s.Language != "" && !slices.Contains(c.Languages, s.Language), false, "language")
	no(len(s.Command) > 0, c.Commands, "command")
	no(s.Requirements != "", c.Requirements, "requirements_txt")
	no(s.Image != "" && !slices.Contains(images, s.Image) && !slices.Contains(c.PythonVersions, imageVersion(s.Image)), c.Images, "docker_image")
	no(len(s.PreCommands) > 0, c.PreCommands, "pre_commands")
	no(s.PythonVersion != "" && !slices.Contains(c.PythonVersions, s.PythonVersion), false, "python_version")
	no(s.Interpreter == executor.InterpreterSystem, c.SystemInterpreter, "interpreter")
	no(len(s.Outputs) > 0, c.Artifacts, "outputs")
	no(s.OutputsChanged, c.Artifacts, "outputs_changed")
	no(s.SampleInterval > 0, c.MemorySamples, "sample_interval_seconds")
	no(s.Script != "", c.Scripts, "script")
	no(s.HostDirectory != "", c.HostDirectories, "host_directory")
	no(s.Session != "", c.Sessions, "session")
	no(s.Network == executor.NetworkOff, c.NetworkOff, "config.network_disabled")
	no(s.Network == executor.NetworkOn, c.NetworkOn, "config.network_disabled")
	no(s.Limits.MemoryBytes != 0, c.Memory, "config.memory_mb")
	no(s.Limits.DiskBytes != 0, c.Disk, "config.disk_mb")
	no(s.Limits.CPUShares != 0, c.CPU, "config.cpu_shares")
	no(s.Limits.PIDs != 0, c.PIDs, "config.pids")
	no(s.Limits.CPUTime != 0, c.CPUTime, "config.cpu_seconds")
	if len(fields) > 0 {
		return &executor.Error{Code: executor.Unimplemented, Op: "run", Message: fields[0].Field + ": " + fields[0].Message, Fields: fields}
	}
	bad := func(wrong bool, field, message string) {
		if wrong {
			fields = append(fields, executor.FieldError{Field: field, Message: message})
		}
	}
	bad(s.Interpreter != "" && s.Interpreter != executor.InterpreterEnvironment && s.Interpreter != executor.InterpreterSystem, "interpreter", "environment or system")
	bad(s.Interpreter == executor.InterpreterSystem && s.Requirements != "", "requirements_txt", "the system interpreter takes none")
	bad(s.Code != "" && len(s.Command) > 0, "command", "code and command exclude each other")
	bad(s.SampleInterval < 0 || s.SampleInterval > 0 && s.SampleInterval < 10_000_000, "sample_interval_seconds", "at least 0.01")
	if len(fields) > 0 {
		return &executor.Error{Code: executor.Invalid, Op: "run", Message: fields[0].Field + ": " + fields[0].Message, Fields: fields}
	}
	return nil
}

// imageVersion returns the minor version of a Python image: "3.12" for "python:3.12.1-slim", "" for other images.
func imageVersion(image string) string {
	tag, ok := strings.CutPrefix(image, "python:")
	if !ok {
		return ""
	}
	parts := strings.SplitN(tag, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	digits := strings.IndexFunc(parts[1], func(c rune) bool { return c < '0' || c > '9' })
	if digits >= 0 {
		parts[1] = parts[1][:digits]
	}
	return parts[0] + "." + parts[1]
}
