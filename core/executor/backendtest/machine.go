package backendtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// residentBytes returns the resident memory of a process, in bytes, and whether it is known.
func residentBytes(pid string) (int64, bool) {
	status, err := os.ReadFile(filepath.Join("/proc", filepath.Base(pid), "status"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}

// marked lists the processes of this machine whose command line holds mark, except zombies.
func marked(mark string) []string {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	var found []string
	for _, name := range lines {
		line, err := os.ReadFile(name) //nolint:gosec // a name under /proc from Glob
		if err == nil && bytes.Contains(line, []byte(mark)) {
			pid := filepath.Base(filepath.Dir(name))
			if pid != strconv.Itoa(os.Getpid()) {
				found = append(found, "process "+pid+": "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
	}
	return found
}
