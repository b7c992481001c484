package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Tier says when a part runs.
type Tier string

// The tiers of docs/testing.md.
const (
	Gate Tier = "gate" // each change
	Long Tier = "long" // whenever its inputs have changed since its last green run
)

// Part is one row of the table: something that passes or fails as a whole.
type Part struct {
	Name string
	Tier Tier
	// Dir is the folder of the command, from the root of the repository.
	Dir string
	// Test holds the arguments of `go test`: flags and packages. Gate adds -count=1, -vet=off and -timeout.
	Test []string
	// Except holds ends of packages that ./... in Test finds and this part does not run.
	Except []string
	// Command is the command of a part that is no `go test`.
	Command []string
	// Env is added to the environment.
	Env []string
	// Uses names resources, such as "cpu:100 uids:1". The unit of cpu is one hundredth of a processor.
	Uses string
	// Apart parts have processes, IPC and folders for temporary files of their own where gate may give them (tools/apart.sh). Then
	// they need no uids that others do not use.
	Apart bool
	// After names the parts that must have passed before.
	After []string
	// Seconds is what the part takes on two quiet processors. It decides the order only.
	Seconds int
	// Inputs are patterns of files that matter beside those that `go list -deps -test` finds: a path, a folder with all below
	// it ("docs/"), or a pattern of path.Match.
	Inputs []string
	// Builds are packages, from the root, that the part runs as programs. Their files are inputs.
	Builds []string
	// Floors compares the coverage that the part prints with tools/coverage.txt.
	Floors bool
	// Serves is true for a command that serves the parts after it. It prints variables for their environment, one NAME=VALUE in a
	// line, and an empty line when it is ready. It ends when its standard input is closed, after all parts.
	Serves bool
	// Real parts start real programs. They run under load in `make test-load`, and not in `make check`.
	Real bool
}

// resources reads Uses.
func (p Part) resources() (map[string]int, error) {
	all := map[string]int{}
	for word := range strings.FieldsSeq(p.Uses) {
		name, number, ok := strings.Cut(word, ":")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 1 {
			return nil, fmt.Errorf("part %s: resource %q: must be NAME:NUMBER", p.Name, word)
		}
		all[name] = n
	}
	if p.Apart && canBeApart() {
		delete(all, "uids")
	}
	return all, nil
}

// canBeApart reports whether tools/apart.sh works here: a container may deny root what it needs.
var canBeApart = sync.OnceValue(func() bool {
	return os.Geteuid() == 0 && exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--ipc", "--mount", "true").Run() == nil
})

// apart wraps a command of an Apart part.
func (p Part) apart(root string, command []string) []string {
	if !p.Apart || !canBeApart() {
		return command
	}
	return append([]string{filepath.Join(root, "tools", "apart.sh")}, command...)
}

// command is what gate starts.
func (p Part) command(root string) ([]string, error) {
	if p.Test == nil {
		return p.Command, nil
	}
	args := p.Test
	if p.Except != nil {
		last := len(p.Test) - 1
		list := exec.Command("go", "list", p.Test[last])
		list.Dir = filepath.Join(root, p.Dir)
		list.Stderr = os.Stderr
		found, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("list the packages of %s: %w", p.Name, err)
		}
		packages := slices.DeleteFunc(strings.Fields(string(found)), func(path string) bool {
			return slices.ContainsFunc(p.Except, func(end string) bool { return strings.HasSuffix(path, end) })
		})
		args = append(slices.Clone(p.Test[:last]), packages...)
	}
	return append([]string{"go", "test", "-json", "-count=1", "-vet=off", "-timeout=40m"}, args...), nil
}

// checkParts returns the first mistake in a table.
func checkParts(parts []Part) error {
	names := map[string]bool{}
	for _, p := range parts {
		if names[p.Name] {
			return fmt.Errorf("part %s: is there twice", p.Name)
		}
		if (p.Test == nil) == (p.Command == nil) {
			return fmt.Errorf("part %s: must have either Test or Command", p.Name)
		}
		if p.Seconds < 1 {
			return fmt.Errorf("part %s: Seconds must be > 0 (got %d)", p.Name, p.Seconds)
		}
		if _, err := p.resources(); err != nil {
			return err
		}
		for _, before := range p.After {
			// A part comes after its own in the table, so there is no circle.
			if !names[before] {
				return fmt.Errorf("part %s: after %q: no such part above it", p.Name, before)
			}
		}
		names[p.Name] = true
	}
	return nil
}

// withNeeded returns the parts that choose chooses and all that they come after, in the order of the table.
func withNeeded(parts []Part, choose func(Part) bool) []Part {
	wanted := map[string]bool{}
	for _, p := range slices.Backward(parts) {
		if wanted[p.Name] || choose(p) {
			wanted[p.Name] = true
			for _, before := range p.After {
				wanted[before] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return !wanted[p.Name] })
}
