package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

const (
	dockerRateSync = "docker http sync at 8, per second"
	dockerRateRun  = "docker run at 8, per second"
	dockerTar      = "docker tar through exec/sync"
	dockerUVTar    = "uv tar through exec/sync"
)

// measureDocker measures what needs a Docker, if there is one.
func measureDocker(b *bench) error {
	d, err := startDocker(b.run, b.dir, b.binary)
	if d == nil || err != nil {
		return err
	}
	defer d.stop()
	if err := b.interleave(d.cases()); err != nil {
		return err
	}
	return d.load(b)
}

// sustained compares 8 connections to us with 8 `docker run` in parallel, in turns that are together as long as -sustained says.
func (d *docker) sustained(b *bench) error {
	run := append(append(append([]string{"run", "--rm"}, hardening...), d.image), helloCommand...)
	long := *b
	long.turn = b.sustained / time.Duration(b.turns())
	return long.alternate(b.turns(),
		load{dockerRateSync, long.sustained8(func() error { return sync(d.warm, httpHello) })},
		load{dockerRateRun, long.sustained8(func() error { return d.command(run...) })},
	)
}

// neighbours measures what a warm call takes while somebody else's program does its worst.
func (d *docker) neighbours(b *bench) error {
	for _, n := range nuisances {
		if err := b.beside(d.warm, n.code, "docker http sync beside "+n.name, 40); err != nil {
			return err
		}
	}
	return nil
}

// tars sends the same large tar to both backends, in turns.
func (d *docker) tars(b *bench) error {
	r, opts, dir, binary := b.run, b.options, b.dir, b.binary
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
		for name, s := range map[string]*serve.Server{dockerTar: d.warm, dockerUVTar: uv} {
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
func (d *docker) load(b *bench) error {
	if b.wants("docker idle") {
		if err := d.idle(b.run); err != nil {
			return err
		}
	}
	if b.wants("docker sustained", dockerRateSync, dockerRateRun) {
		if err := d.sustained(b); err != nil {
			return err
		}
	}
	if b.wants("docker neighbours") {
		if err := d.neighbours(b); err != nil {
			return err
		}
	}
	if b.tarMB > 0 && b.wants("docker tar", dockerTar, dockerUVTar) {
		return d.tars(b)
	}
	return nil
}
