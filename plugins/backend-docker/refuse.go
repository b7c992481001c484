package dockerbackend

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// refusal collects what a job asks for and cannot have. The first code that is found counts; every field is named.
type refusal struct {
	code   executor.Code
	fields []executor.FieldError
}

func (r *refusal) add(code executor.Code, field, format string, args ...any) {
	if r.code == "" || code == executor.Invalid {
		r.code = code
	}
	r.fields = append(r.fields, executor.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (r *refusal) err() error {
	if len(r.fields) == 0 {
		return nil
	}
	lines := make([]string, len(r.fields))
	for i, f := range r.fields {
		lines[i] = f.Field + ": " + f.Message
	}
	return &executor.Error{Code: r.code, Op: "run", Message: strings.Join(lines, "\n"), Fields: r.fields}
}

// minorForm is an exact minor version.
var minorForm = regexp.MustCompile(`^3\.(0|[1-9][0-9]?)$`)

const (
	// leastMemory is the least that a daemon accepts for a container. It holds the runner and a small interpreter.
	leastMemory = 6 << 20
	memoryField = "config.memory_mb"
)

// refuse says why a job cannot run here; nil: it can. can is what this backend enforces.
func refuse(job executor.Job, can executor.Capabilities) error {
	var r refusal
	spec := job.Spec
	no := func(asked bool, field, message string) {
		if asked {
			r.add(executor.Unimplemented, field, "%s", message)
		}
	}
	language := spec.Language
	if language == executor.LanguageDefault {
		language = executor.LanguagePython
	}
	no(!slices.Contains(can.Languages, language), "language", "this backend does not know it; use command")
	no(spec.Script != "", "script", "the docker backend runs no host scripts")
	no(spec.HostDirectory != "", "host_directory", "the docker backend shows no folder of the host to programs")
	no(spec.Session != "" && !can.Sessions, "session", "the docker backend has no sessions")
	no(spec.Network == executor.NetworkOn && !can.NetworkOn, "config.network_disabled", "the runtime is told to give programs no network")
	no(strings.TrimSpace(spec.Requirements) != "" && !can.Requirements, "requirements_txt", "the runtime has no network to install from: set prepare.runtime")
	no(len(spec.PreCommands) > 0 && !can.PreCommands, "pre_commands", "the runtime has no network for preparations: set prepare.runtime")
	no(spec.Limits.MemoryBytes > 0 && !can.Memory, memoryField, "cannot be enforced here: this daemon cannot limit memory")
	no(spec.Limits.CPUShares > 0 && !can.CPU, "config.cpu_shares", "cannot be enforced here: this daemon cannot limit CPU")
	no(spec.Limits.PIDs > 0 && !can.PIDs, "config.pids", "cannot be enforced here: this daemon cannot limit processes")
	if job.Limits.MemoryBytes < leastMemory {
		r.add(executor.Invalid, memoryField, "must be at least %d (got %d)", leastMemory>>20, job.Limits.MemoryBytes>>20)
	}
	checkCommands(&r, spec.PreCommands)
	if spec.Interpreter == executor.InterpreterSystem && strings.TrimSpace(spec.Requirements) != "" {
		r.add(executor.Invalid, "requirements_txt", "cannot be installed into the system interpreter")
	}
	if spec.PythonVersion != "" && !minorForm.MatchString(spec.PythonVersion) {
		r.add(executor.Invalid, "python_version", "must be an exact minor version such as 3.12 (got %q)", spec.PythonVersion)
	}
	return r.err()
}

// ofField reports whether err names a field.
func ofField(err error, field string) bool {
	e, ok := errors.AsType[*executor.Error](err)
	return ok && slices.ContainsFunc(e.Fields, func(f executor.FieldError) bool { return f.Field == field })
}
