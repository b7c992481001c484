package jobs

import (
	"bytes"
	"debug/elf"
	"os"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/binary"
)

// program is the runner's executable.
type program struct {
	content []byte
	// command holds the arguments that precede those of the runner.
	command []string
}

// runnerProgram returns the embedded runner, else this program with the command runner. Codes: unavailable (neither can run in a
// container).
func runnerProgram() (program, error) {
	if content := binary.Bytes(); content != nil {
		return program{content: content}, nil
	}
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return program{}, executor.Errorf(executor.Unavailable, "read this program: %w", err)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return program{}, executor.Errorf(executor.Unavailable, "read this program: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return program{}, executor.Errorf(executor.Unavailable, "this program has no embedded runner and is not static, so it cannot run in a container: build it with make build")
		}
	}
	return program{content: content, command: []string{"runner"}}, nil
}
