package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KillLeftovers kills the processes that an earlier host left behind: those whose HOME or current folder lies under
// workRoot, and those whose real uid is in [firstUID, firstUID+uids). This process and its ancestors are spared. It
// returns how many it killed. Call it before the first runner is started.
func KillLeftovers(workRoot string, firstUID, uids int) (int, error) {
	spared := ancestors()
	killed := map[int]bool{}
	deadline := time.Now().Add(killPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left, err := leftovers(workRoot, firstUID, uids, spared)
		if err != nil {
			return len(killed), err
		}
		if len(left) == 0 {
			return len(killed), nil
		}
		for _, pid := range left {
			killed[pid] = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // seen again if it did not work
		}
		if time.Now().After(deadline) {
			return len(killed), fmt.Errorf("processes of an earlier run do not die: %v", left)
		}
		time.Sleep(pause)
	}
}

// ancestors are this process and those above it.
func ancestors() map[int]bool {
	spared := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !spared[pid]; {
		spared[pid] = true
		_, pid = processState(pid)
	}
	return spared
}

// leftovers lists the processes that KillLeftovers is about; zombies are dead already.
func leftovers(workRoot string, firstUID, uids int, spared map[int]bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find leftovers: %w", err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || spared[pid] {
			continue
		}
		if state, _ := processState(pid); state == 'Z' || state == 0 {
			continue
		}
		uid := realUID(pid)
		if uids > 0 && uid >= firstUID && uid < firstUID+uids || livesUnder(pid, workRoot) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// processState reads the state letter and the parent of a process; 0 = gone.
func processState(pid int) (state byte, parent int) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") //nolint:gosec // a path of procfs
	if err != nil {
		return 0, 0
	}
	f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]) // the name before may contain anything
	if len(f) < 2 || len(f[0]) != 1 {
		return 0, 0
	}
	parent, err = strconv.Atoi(string(f[1]))
	if err != nil {
		return 0, 0
	}
	return f[0][0], parent
}

// realUID is -1 for a process that is gone.
func realUID(pid int) int {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") //nolint:gosec // a path of procfs
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				if uid, err := strconv.Atoi(string(f[0])); err == nil {
					return uid
				}
			}
		}
	}
	return -1
}

// livesUnder reports whether a process's HOME or current folder lies under root. What we may not read is not ours.
func livesUnder(pid int, root string) bool {
	if root == "" || root == "/" {
		return false
	}
	under := func(p string) bool {
		rel, err := filepath.Rel(root, strings.TrimSuffix(p, " (deleted)"))
		return err == nil && !leaves(rel) && filepath.IsAbs(p)
	}
	proc := "/proc/" + strconv.Itoa(pid)
	if cwd, err := os.Readlink(proc + "/cwd"); err == nil && under(cwd) {
		return true
	} else if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	raw, err := os.ReadFile(proc + "/environ") //nolint:gosec // a path of procfs
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(raw, []byte{0}) {
		if home, ok := bytes.CutPrefix(kv, []byte("HOME=")); ok {
			return under(string(home))
		}
	}
	return false
}
