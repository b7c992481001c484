package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

// throughput runs 8 connections for 10 s each: ours and bare processes, and reads the memory when all is idle again.
func throughput(r *report, s *serve.Server, python, script string) error {
	const connections, length = 8, 10 * time.Second
	rate := func(do func() error) (float64, error) { return perSecond(connections, length, do) }
	var err error
	if r.Figures["bare python at 8, per second"], err = rate(func() error { return command(nil, python, script) }); err != nil {
		return err
	}
	if r.Figures["http sync at 8, per second"], err = rate(func() error { return sync(s, `{"code":"print('hello')"}`) }); err != nil {
		return err
	}
	core, corePeak := serve.RSS(s.PID())
	plugin, pluginPeak := serve.RSS(s.PluginPID())
	r.Figures["rss core after load, MB"], r.Figures["rss core peak, MB"] = mb(core), mb(corePeak)
	r.Figures["rss plugin after load, MB"], r.Figures["rss plugin peak, MB"] = mb(plugin), mb(pluginPeak)
	return nil
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }

// bigTar sends a large tar through exec/sync and unpacks the same file with tar, in turns, and reads peak memory.
func bigTar(r *report, opts options, dir, binary string) error {
	path := filepath.Join(dir, "big.tar")
	if err := writeTar(path, opts.tarMB); err != nil {
		return err
	}
	own := filepath.Join(dir, "tarserver")          // a fresh server, so that the peaks are this upload's
	if err := os.MkdirAll(own, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	s := &serve.Server{Binary: binary, Dir: own}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Stop()
	idleCore, _ := serve.RSS(s.PID())
	idlePlugin, _ := serve.RSS(s.PluginPID())
	r.Figures["rss idle core, MB"], r.Figures["rss idle plugin, MB"] = mb(idleCore), mb(idlePlugin)
	for i := range 3 {
		out := filepath.Join("/dev/shm", fmt.Sprintf("pyexec-bench-%d-%d", os.Getpid(), i))
		if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // as above
			return err
		}
		begin := time.Now()
		err := exec.Command("tar", "-xf", path, "-C", out).Run()
		r.Samples["tar x to a tmpfs"] = append(r.Samples["tar x to a tmpfs"], float64(time.Since(begin).Milliseconds()))
		os.RemoveAll(out)
		if err != nil {
			return err
		}
		begin = time.Now()
		if err := upload(s, path, opts.tarMB); err != nil {
			return err
		}
		r.Samples["tar through exec/sync"] = append(r.Samples["tar through exec/sync"], float64(time.Since(begin).Milliseconds()))
	}
	_, corePeak := serve.RSS(s.PID())
	_, pluginPeak := serve.RSS(s.PluginPID())
	r.Figures["rss core peak after tars, MB"], r.Figures["rss plugin peak after tars, MB"] = mb(corePeak), mb(pluginPeak)
	return nil
}

func writeTar(path string, megabytes int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	block := make([]byte, 16<<20)
	for i := range block {
		block[i] = byte(rand.Uint32()) //nolint:gosec // filler
	}
	if err := w.WriteHeader(&tar.Header{Name: "main.py", Mode: 0o644, Size: int64(len(hello))}); err != nil {
		return err
	}
	if _, err := io.WriteString(w, hello); err != nil {
		return err
	}
	for i := range megabytes / 16 {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("data/%d.bin", i), Mode: 0o644, Size: int64(len(block))}); err != nil {
			return err
		}
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return w.Close()
}

// upload sends the tar with curl, as the README does. curl needs little CPU, and the benchmark does not measure the client.
func upload(s *serve.Server, path string, megabytes int) error {
	out, err := exec.Command("curl", "-sS", s.URL+"/api/v1/exec/sync", "-H", "Expect:",
		"-F", fmt.Sprintf(`metadata={"config":{"disk_mb":%d}};type=application/json`, 2*megabytes+64), "-F", "tar=@"+path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("upload: %w: %s", err, out)
	}
	if !bytes.Contains(out, []byte(`"status":"succeeded"`)) {
		return fmt.Errorf("upload: %.500s", out)
	}
	return nil
}

// target is a ratio that the project holds itself to.
type target struct {
	name, of, to string
	limit        float64
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s  %v\n%v\n\n%-34s %9s %9s %6s\n", r.Date.Format(time.DateOnly), r.Machine, r.Versions, "ms", "p50", "p99", "n")
	names := make([]string, 0, len(r.Samples))
	for name := range r.Samples {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "%-34s %9.2f %9.2f %6d\n", name, quantile(r.Samples[name], 0.5), quantile(r.Samples[name], 0.99), len(r.Samples[name]))
	}
	figures := make([]string, 0, len(r.Figures))
	for name := range r.Figures {
		figures = append(figures, name)
	}
	slices.Sort(figures)
	fmt.Fprintln(w)
	for _, name := range figures {
		fmt.Fprintf(w, "%-34s %9.1f\n", name, r.Figures[name])
	}
	fmt.Fprintln(w, "\nratio of p50 (target)")
	for _, t := range []target{
		{"http sync / bare python", "http sync", "bare python", 1.3},
		{"cached requirement / venv python", "http sync, cached requirement", "bare venv python, requirement", 1.1},
		{"cli embedded / uv run", "cli embedded", "uv run", 3},
		{"tar through exec/sync / tar x", "tar through exec/sync", "tar x to a tmpfs", 2},
		{"session cell / jupyter cell", "session cell", "jupyter cell", 0.2},
		{"session creation / kernel start", "session creation", "jupyter kernel start", 0.1},
		{"docker warm / docker run", "docker http sync, warm", "docker run, hardened", 0.1},
		{"docker cold / docker run", "docker http sync, cold", "docker run, hardened", 1.3},
		{"docker warm / docker exec", "docker http sync, warm", "docker exec, warm container", 1},
		{"docker tar / uv tar", "docker tar through exec/sync", "uv tar through exec/sync", 1.67},
		{"nomad mode job / bare job", modeJob, bareJob, 1.3},
		{"nomad mode workers / bare job", modeWorkers, bareJob, 1.0 / 30},
		{"nomad mode workers / no nomad", modeWorkers, withoutIt, 1.5},
	} {
		if len(r.Samples[t.of]) == 0 || len(r.Samples[t.to]) == 0 {
			continue
		}
		ratio := quantile(r.Samples[t.of], 0.5) / quantile(r.Samples[t.to], 0.5)
		verdict := "met"
		if ratio > t.limit {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%-34s %9.3f  (at most %.3f: %s)\n", t.name, ratio, t.limit, verdict)
	}
	for _, t := range []target{
		{"docker sustained / docker run", "docker http sync at 8, per second", "docker run at 8, per second", 1.5},
		{"nomad, 2 workers / 1 worker", throughputOf(2), throughputOf(1), 1.7},
	} {
		if r.Figures[t.to] == 0 {
			continue
		}
		ratio := r.Figures[t.of] / r.Figures[t.to]
		verdict := "met"
		if ratio < t.limit {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%-34s %9.2f  (at least %.2f: %s)\n", t.name, ratio, t.limit, verdict)
	}
}
