package sandbox

import (
	"bytes"
	"os"
)

// processMemory is the memory of a process.
type processMemory struct {
	held     bool  // it has not begun to give its memory back
	resident int64 // in bytes
	// leaving reports that the process exits, and that the kernel still takes back its memory. The kernel does not tell how much that is.
	leaving bool
	// runs reports that one that is leaving has a processor or waits for one.
	runs bool
}

// memoryOf asks each thread, because the main thread may have exited alone. Such a thread has no memory, and looks like a process that
// has ended.
func memoryOf(pid int) processMemory { return memoryIn(procfs(pid) + "/task") }

func memoryIn(root string) processMemory {
	threads, _ := os.ReadDir(root) // a process that is gone has none
	var m processMemory
	for _, t := range threads {
		dir := root + "/" + t.Name()
		raw, _ := readGroup(dir, "statm") // nothing has no fields
		// The size is exact. The resident part may be 0 for a process that has just begun.
		if f := bytes.Fields(raw); len(f) > 1 && parseNumber(f[0]) > 0 {
			return processMemory{held: true, resident: parseNumber(f[1]) * int64(os.Getpagesize())}
		}
		f, _ := readStat(dir)
		if len(f) == 0 || f[0][0] == 'Z' || f[0][0] == 'X' || !hasFiles(dir) {
			continue
		}
		m.leaving = true
		m.runs = m.runs || f[0][0] == 'R'
	}
	return m
}

// hasFiles reports whether a thread has a table of files. In its exit it gives up its memory, and then that table. After that the first
// process of a PID namespace waits for the others; up to Linux 6.9 it may run all the time (zap_pid_ns_processes).
func hasFiles(dir string) bool {
	raw, _ := readGroup(dir, "status") // the value is among the first lines
	return !bytes.Contains(raw, []byte("\nFDSize:\t0\n"))
}
