package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	gosync "sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/tests/internal/serve"
)

// The series of loads, and of large inputs.
const (
	rateSync        = "http sync at 8, per second"
	rateBare        = "bare python at 8, per second"
	rateModules     = "20 modules as files at 8, per second"
	rateModulesBare = "20 modules in a folder without bytecode at 8, per second"
	tarSync         = "tar through exec/sync"
	tarX            = "tar x to a tmpfs"
	tarCoreMB       = "rss core peak after tars, MB"
	coreMB          = "rss core peak, MB" // of the server of most groups

	connections = 8
)

// load is one side of a comparison of rates.
type load struct {
	series string
	rate   func() (float64, error)
}

// turns is how many turns each load has. Those of the repetitions of a check add up.
func (b *bench) turns() int {
	if b.check {
		return 2
	}
	return 4
}

// alternate keeps the rates of loads that take turns.
func (b *bench) alternate(turns int, loads ...load) error {
	for range turns {
		for _, l := range loads {
			rate, err := l.rate()
			if err != nil {
				return fmt.Errorf("%s: %w", l.series, err)
			}
			b.run.Rates[l.series] = append(b.run.Rates[l.series], rate)
		}
	}
	return nil
}

// perSecond does something at so many connections for so long.
func perSecond(connections int, length time.Duration, do func() error) (float64, error) {
	var done atomic.Int64
	var failure atomic.Value
	var wg gosync.WaitGroup
	begin := time.Now()
	for range connections {
		wg.Go(func() {
			for time.Since(begin) < length && failure.Load() == nil {
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

// sustained returns a load of 8 connections for one turn.
func (b *bench) sustained8(do func() error) func() (float64, error) {
	return func() (float64, error) { return perSecond(connections, b.turn, do) }
}

// throughput compares 8 connections to us with 8 bare processes.
func throughput(b *bench) error {
	return b.alternate(b.turns(),
		load{rateSync, b.sustained8(func() error { return sync(b.server, httpHello) })},
		load{rateBare, b.sustained8(func() error { return command(nil, b.python, b.script) })},
	)
}

// modules compares a program of 20 modules, sent as files, with the same folder run by a process that finds no bytecode and writes none.
func modules(b *bench) error {
	dir, err := b.folder("modules")
	if err != nil {
		return err
	}
	files := moduleFiles(20)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // read by another user
			return err
		}
	}
	body, err := json.Marshal(map[string]any{"files": files})
	if err != nil {
		return err
	}
	main := filepath.Join(dir, "main.py")
	return b.alternate(b.turns(),
		load{rateModules, b.sustained8(func() error { return sync(b.server, string(body)) })},
		load{rateModulesBare, b.sustained8(func() error { return command([]string{"PYTHONDONTWRITEBYTECODE=1"}, b.python, main) })},
	)
}

// moduleFiles are a main.py that imports so many modules of some functions each.
func moduleFiles(count int) map[string]string {
	files := map[string]string{}
	var main strings.Builder
	for i := range count {
		var text strings.Builder
		for j := range 20 {
			fmt.Fprintf(&text, "def f%d(a, b=%d):\n    \"\"\"Adds, unless a is odd.\"\"\"\n    if a %% 2:\n        return [x * b for x in range(a)]\n    return a + b\n\n\n", j, j)
		}
		files[fmt.Sprintf("m%d.py", i)] = text.String()
		fmt.Fprintf(&main, "import m%d\nassert m%d.f%d(2) == %d\n", i, i, i, 2+i)
	}
	files["main.py"] = main.String() + hello
	return files
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }

// bigTar sends a large tar through exec/sync and unpacks the same file with tar, in turns, and reads peak memory.
func bigTar(b *bench) error {
	if b.tarMB == 0 {
		return nil
	}
	path := filepath.Join(b.dir, "big.tar")
	if err := writeTar(path, b.tarMB); err != nil {
		return err
	}
	defer os.Remove(path)
	own, err := b.folder("tarserver") // a fresh server, so that the peaks are this upload's
	if err != nil {
		return err
	}
	s := &serve.Server{Binary: b.binary, Dir: own}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Stop()
	idleCore, _ := serve.RSS(s.PID())
	idlePlugin, _ := serve.RSS(s.PluginPID())
	f := b.run.Figures
	f["rss idle core, MB"], f["rss idle plugin, MB"] = mb(idleCore), mb(idlePlugin)
	out := filepath.Join("/dev/shm", fmt.Sprintf("pyexec-bench-%d", os.Getpid()))
	measures := []measure{
		{tarX, 1, func() (time.Duration, error) {
			if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // as above
				return 0, err
			}
			begin := time.Now()
			err := exec.Command("tar", "-xf", path, "-C", out).Run()
			took := time.Since(begin)
			return took, errors.Join(err, os.RemoveAll(out))
		}},
		{tarSync, 1, timed(func() error { return upload(s, path, b.tarMB) })},
	}
	const rounds = 9 // the time of tar itself varies by a third
	if err := b.interleaveRounds(measures, rounds); err != nil {
		return err
	}
	_, corePeak := serve.RSS(s.PID())
	_, pluginPeak := serve.RSS(s.PluginPID())
	f[tarCoreMB], f["rss plugin peak after tars, MB"] = mb(corePeak), mb(pluginPeak)
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
