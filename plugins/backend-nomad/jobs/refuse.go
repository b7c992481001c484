package jobs

import (
	"context"
	"fmt"
	"strings"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

const (
	// minMemory is enough for the runner and a small interpreter.
	minMemory   = 10 << 20
	memoryField = "config.memory_mb"
	// maxCommands and maxCommandBytes bound the number of pre_commands and their total length.
	maxCommands     = 256
	maxCommandBytes = 64 << 10
)

// refuse returns why a job cannot run here; nil means that it can.
func (b *Backend) refuse(job executor.Job) error {
	spec := job.Spec
	p := backend.CheckSpec(spec, b.can(), map[string]string{
		"script":         "the nomad backend runs no host scripts",
		"host_directory": "the nomad backend shows no folder of a host to programs",
		"config.disk_mb": "nothing bounds the disk of a job: set job.work of this backend to memory",
		"session":        "a batch job has no session: use a backend of type nomad with mode workers",
	})
	p.Require(job.Limits.MemoryBytes >= minMemory, memoryField, "must be at least %d (got %d)", minMemory>>20, job.Limits.MemoryBytes>>20)
	total := 0
	for n, c := range spec.PreCommands {
		p.Require(!strings.ContainsRune(c, 0), fmt.Sprintf("pre_commands[%d]", n), "must not contain a NUL character")
		total += len(c)
	}
	p.Require(len(spec.PreCommands) <= maxCommands && total <= maxCommandBytes, "pre_commands",
		"must be at most %d commands of %d bytes together (got %d of %d)", maxCommands, maxCommandBytes, len(spec.PreCommands), total)
	return p.Err()
}

// image returns the image of a Spec. Codes: invalid, denied.
func (b *Backend) image(ctx context.Context, spec executor.Spec) (string, error) {
	name, err := imagename.Choose(spec.Image, spec.PythonVersion, b.config.DefaultImage)
	if err != nil {
		return "", err
	}
	ref, err := b.images.Check(name)
	if err == nil {
		err = b.images.CheckRegistry(ctx, ref)
	}
	if err != nil {
		return "", err
	}
	return ref.Familiar(), nil
}
