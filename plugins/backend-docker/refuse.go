package dockerbackend

import (
	"errors"
	"slices"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
)

const (
	// minMemory is the smallest memory limit that a daemon accepts. It is enough for the runner and a small interpreter.
	minMemory   = 6 << 20
	memoryField = "config.memory_mb"
)

// refuse returns why a job cannot run here; nil means that it can. can holds what this backend enforces.
func refuse(job executor.Job, can executor.Capabilities) error {
	spec := job.Spec
	p := backend.CheckSpec(spec, can, map[string]string{
		"script":                  "the docker backend runs no host scripts",
		"host_directory":          "the docker backend shows no folder of the host to programs",
		"config.network_disabled": "the runtime is configured without a network",
		"requirements_txt":        "the runtime has no network to install from: set prepare.runtime",
		"pre_commands":            "the runtime has no network for preparations: set prepare.runtime",
		memoryField:               "cannot be enforced here: this daemon cannot limit memory",
		"config.cpu_shares":       "cannot be enforced here: this daemon cannot limit CPU",
		"config.pids":             "cannot be enforced here: this daemon cannot limit processes",
	})
	p.Require(job.Limits.MemoryBytes >= minMemory, memoryField, "must be at least %d (got %d)", minMemory>>20, job.Limits.MemoryBytes>>20)
	backend.CheckCommands(p, spec.PreCommands)
	return p.Err()
}

// ofField reports whether err names a field.
func ofField(err error, field string) bool {
	e, ok := errors.AsType[*executor.Error](err)
	return ok && slices.ContainsFunc(e.Fields, func(f executor.FieldError) bool { return f.Field == field })
}
