package awaittest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// evidenceBegins is between the words of a failure and its evidence.
const evidenceBegins = "what the machine did:\n"

// WithoutEvidence returns the words of a failure only. It is for failures that are shown to users of the product.
func WithoutEvidence(failure string) string {
	words, _, _ := strings.Cut(failure, "\n"+evidenceBegins)
	return words
}

// evidence describes the machine and this process: load, pressure, the processes below this one, and all stacks. Files that a system does not
// have are left out.
func evidence() string {
	var b strings.Builder
	b.WriteString(evidenceBegins)
	for _, name := range []string{"/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"} {
		if text, err := os.ReadFile(name); err == nil {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; "))
		}
	}
	b.WriteString("processes:\n")
	tree(&b, readProcesses(), os.Getpid(), 1)
	stacks := make([]byte, 1<<20)
	fmt.Fprintf(&b, "goroutines:\n%s\n", stacks[:runtime.Stack(stacks, true)])
	return b.String()
}

// process is a process as /proc/PID/stat and cmdline show it.
type process struct {
	state, command string
	children       []int
}

// readProcesses returns the processes of this machine by their pid.
func readProcesses() map[int]*process {
	all, parents := map[int]*process{}, map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			continue
		}
		command := name[strings.IndexByte(name, '(')+1:]
		if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(line) > 0 {
			command = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		}
		all[pid] = &process{state: fields[0], command: command[:min(len(command), 160)]}
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	for pid, parent := range parents {
		if p := all[parent]; p != nil {
			p.children = append(p.children, pid)
		}
	}
	return all
}

// tree writes the process pid and all below it.
func tree(b *strings.Builder, all map[int]*process, pid, depth int) {
	p := all[pid]
	if p == nil {
		return
	}
	fmt.Fprintf(b, "%s%d %s %s\n", strings.Repeat("  ", depth), pid, p.state, p.command)
	for _, child := range p.children {
		tree(b, all, child, depth+1)
	}
}
