package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	gosync "sync"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

// perSecond does something at so many connections for so long.
func perSecond(connections int, length time.Duration, do func() error) (float64, error) {
	var done atomic.Int64
	var failure atomic.Value
	var wg gosync.WaitGroup
	begin := time.Now()
	for range connections {
		wg.Go(func() {
			for time.Since(begin) < length {
				if err := do(); err != nil {
					failure.Store(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if err, ok := failure.Load().(error); ok {
		return 0, err
	}
	return float64(done.Load()) / time.Since(begin).Seconds(), nil
}

// sustained compares 8 connections to us with 8 `docker run` in parallel, in turns of half the length each.
func (d *docker) sustained(r *report, length time.Duration) error {
	const connections, turns = 8, 2
	run := append(append(append([]string{"run", "--rm"}, hardening...), d.image), helloCommand...)
	for name, do := range map[string]func() error{
		"docker http sync at 8, per second": func() error { return sync(d.warm, httpHello) },
		"docker run at 8, per second":       func() error { return d.command(run...) },
	} {
		for range turns {
			rate, err := perSecond(connections, length/turns, do)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.Figures[name] += rate / turns
		}
	}
	return nil
}

// neighbours measures what a warm call takes while somebody else's program does its worst.
func (d *docker) neighbours(r *report) error {
	for name, code := range map[string]string{
		"a fork bomb":      `import os\nwhile True:\n  try: os.fork()\n  except OSError: pass`,
		"a memory bomb":    `import os, time\nwhile True:\n  if os.fork() == 0: x = bytearray(1 << 33)\n  time.sleep(0.05)`,
		"an output flood":  `import os\nwhile True: os.write(1, b'x' * 65536)`,
		"a full work disk": `while True:\n  try:\n    with open('f', 'wb') as f:\n      while True: f.write(bytes(1 << 20))\n  except OSError: pass`,
	} {
		var v struct {
			ID string `json:"execution_id"`
		}
		if err := d.warm.JSON("POST", "/api/v1/exec/async", `{"code":"`+code+`","config":{"timeout_seconds":120,"memory_mb":128,"disk_mb":128}}`, &v); err != nil {
			return err
		}
		for {
			var e struct{ Status string }
			if err := d.warm.JSON("GET", "/api/v1/executions/"+v.ID, "", &e); err != nil {
				return err
			}
			if e.Status == "running" {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for range 40 {
			begin := time.Now()
			if err := sync(d.warm, httpHello); err != nil {
				return fmt.Errorf("beside %s: %w", name, err)
			}
			of := "docker http sync beside " + name
			r.Samples[of] = append(r.Samples[of], float64(time.Since(begin).Microseconds())/1000)
		}
		if err := d.warm.JSON("DELETE", "/api/v1/executions/"+v.ID, "", &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// tars sends the same large tar to both backends, in turns.
func (d *docker) tars(r *report, opts options, dir, binary string) error {
	path := filepath.Join(dir, "docker-big.tar")
	if err := writeTar(path, opts.tarMB); err != nil {
		return err
	}
	defer os.Remove(path)
	own := filepath.Join(dir, "dockertars")
	if err := os.MkdirAll(own, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	uv := &serve.Server{Binary: binary, Dir: own}
	if err := uv.Start(); err != nil {
		return err
	}
	defer uv.Stop()
	for range 4 {
		for name, s := range map[string]*serve.Server{"docker tar through exec/sync": d.warm, "uv tar through exec/sync": uv} {
			begin := time.Now()
			if err := upload(s, path, opts.tarMB); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.Samples[name] = append(r.Samples[name], float64(time.Since(begin).Milliseconds()))
		}
	}
	return nil
}

// idle reads what a container takes that waits: its control group's memory, and the daemon's shim beside it.
func (d *docker) idle(r *report) error {
	label, err := instance(d.warm)
	if err != nil {
		return err
	}
	out, err := exec.Command("docker", "--host", d.host, "ps", "--quiet", "--no-trunc", "--filter", "label="+label).Output()
	if err != nil {
		return err
	}
	ids := strings.Fields(string(out))
	if len(ids) == 0 {
		return fmt.Errorf("no container waits")
	}
	var total, shims, counted float64
	for _, id := range ids {
		used, _, _ := strings.Cut(d.line("stats", "--no-stream", "--format", "{{.MemUsage}}", id), " / ")
		n, err := units.RAMInBytes(used)
		if err != nil {
			continue // it was taken a moment ago
		}
		total, counted = total+mb(n), counted+1
		shims += mb(shim(id))
	}
	if counted > 0 {
		r.Figures["docker idle container, MB"], r.Figures["docker shim of one, MB"] = total/counted, shims/counted
	}
	r.Figures["docker containers that wait"] = float64(len(ids))
	return nil
}

// shim is the resident memory of the process that holds a container for the daemon; 0: it is not on this machine.
func shim(id string) int64 {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !strings.Contains(string(raw), "containerd-shim") || !strings.Contains(string(raw), id) {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err == nil {
			now, _ := serve.RSS(pid)
			return now
		}
	}
	return 0
}

// load is what is measured after the interleaved rounds.
func (d *docker) load(r *report, opts options, dir, binary string) error {
	if d == nil {
		return nil
	}
	if opts.cases.MatchString("docker idle") {
		if err := d.idle(r); err != nil {
			return err
		}
	}
	if opts.cases.MatchString("docker sustained") {
		if err := d.sustained(r, opts.sustained); err != nil {
			return err
		}
	}
	if opts.cases.MatchString("docker neighbours") {
		if err := d.neighbours(r); err != nil {
			return err
		}
	}
	if opts.tarMB > 0 && opts.cases.MatchString("docker tar") {
		return d.tars(r, opts, dir, binary)
	}
	return nil
}
