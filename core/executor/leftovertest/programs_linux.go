package leftovertest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Programs lists the processes of programs that the uv backend runs below its folder work: those whose home is a work folder there,
// and those in a box whose runner has its folder there.
func Programs(work string) []int {
	own, _ := os.Readlink("/proc/self/ns/pid")
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	boxes := map[string]bool{}
	environ := map[int][]byte{}
	for _, file := range files {
		raw, err := os.ReadFile(file) //nolint:gosec // a path of procfs
		if err != nil {
			continue // it has ended, or belongs to another user
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		environ[pid] = raw
		// The first process of a box is told the folder of its slot.
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline")) //nolint:gosec // a path of procfs
		if box := pidNamespace(pid); box != own && bytes.Contains(append(line, raw...), []byte(work+"/")) {
			boxes[box] = true
		}
	}
	var pids []int
	for pid, raw := range environ {
		boxed := boxes[pidNamespace(pid)] && bytes.Contains(raw, []byte("HOME=/work\x00"))
		if pid != os.Getpid() && (boxed || bytes.Contains(raw, []byte("HOME="+work))) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pidNamespace returns the name of a process's pid namespace, or "".
func pidNamespace(pid int) string {
	name, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid") // the process may have ended
	return name
}
