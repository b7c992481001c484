package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

const (
	leakBefore = "before the leak watch: "
	leakAfter  = "after the leak watch: "
)

// held is what a server holds, and must not hold more of after a load.
var held = []string{"RSS of core, MB", "RSS of plugin, MB", "descriptors", "processes", "mounts", "control groups"}

func leakSeries() (series []string) {
	for _, name := range held {
		series = append(series, leakBefore+name, leakAfter+name)
	}
	return series
}

// leaks compares what a server of its own holds after a load with what it held after a shorter one.
func leaks(b *bench) error {
	dir, err := b.folder("leaks")
	if err != nil {
		return err
	}
	s := &serve.Server{Binary: b.binary, Dir: dir}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Stop()
	for _, step := range []struct {
		prefix string
		length time.Duration
	}{{leakBefore, b.sustained / 6}, {leakAfter, b.sustained}} {
		if _, err := perSecond(connections, step.length, func() error { return sync(s, httpHello) }); err != nil {
			return err
		}
		now, err := atRest(s)
		if err != nil {
			return err
		}
		for i, name := range held {
			b.run.Figures[step.prefix+name] = now[i]
		}
	}
	return nil
}

// atRest waits until two looks at the server, a second apart, count the same.
func atRest(s *serve.Server) (now []float64, err error) {
	serve.CloseIdle()
	var last []float64
	for range 30 {
		time.Sleep(time.Second)
		if now, err = holds(s); err != nil {
			return nil, err
		}
		if last != nil && fmt.Sprint(now[2:]) == fmt.Sprint(last[2:]) {
			return now, nil
		}
		last = now
	}
	return now, nil // still in motion: the row shows it
}

// holds counts what a server holds, in the order of held.
func holds(s *serve.Server) ([]float64, error) {
	plugin := s.PluginPID()
	if plugin == 0 {
		return nil, fmt.Errorf("the plugin is away")
	}
	core, _ := serve.RSS(s.PID())
	rss, _ := serve.RSS(plugin)
	var descriptors int
	for _, pid := range []int{s.PID(), plugin} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return nil, err
		}
		descriptors += len(entries)
	}
	all := descendants(s.PID())
	return []float64{mb(core), mb(rss), float64(descriptors), float64(len(all)), float64(mounts(all)), float64(controlGroups())}, nil
}

// mounts counts the mounts of the mount namespaces of processes, each namespace once.
func mounts(pids []int) (count int) {
	seen := map[string]bool{}
	for _, pid := range pids {
		namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil || seen[namespace] {
			continue
		}
		seen[namespace] = true
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)) // the process may have ended
		count += strings.Count(string(raw), "\n")
	}
	return count
}

// controlGroups counts those of this machine: one that is left has no process that would lead to it.
func controlGroups() (count int) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(_ string, d fs.DirEntry, err error) error { // a group may go meanwhile
		if err == nil && d.IsDir() {
			count++
		}
		return nil
	})
	return count
}

// descendants returns a process and all that descend from it.
func descendants(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		child, err := strconv.Atoi(e.Name())
		if parent, failed := strconv.Atoi(fields[1]); err == nil && failed == nil {
			children[parent] = append(children[parent], child)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}
