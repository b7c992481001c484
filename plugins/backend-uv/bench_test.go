package uvbackend

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// BenchmarkHello compares a program in the backend with the bare process, without and with an environment. The runs are
// interleaved, so that the load of the machine affects all alike. It reports medians and 99th percentiles.
func BenchmarkHello(b *testing.B) {
	needUV(b)
	w := newWheelhouse(b)
	w.probe()
	u := openBackend(b, map[string]any{"index_url": w.url()})
	python := u.inventory.Load().fallback.Path
	hello := filepath.Join(folder(b), "hello.py")
	if err := os.WriteFile(hello, []byte("print('hello')\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	bare := func(python string) func() {
		return func() {
			cmd := exec.Command(python, hello)
			cmd.Env = []string{"PATH=" + defaultPath, "LANG=C.UTF-8", "PYTHONUNBUFFERED=1"}
			if _, err := cmd.Output(); err != nil {
				b.Fatal(err)
			}
		}
	}
	ours := func(requirements string) func() {
		return func() {
			r, err := u.Run(b.Context(), job(executor.Spec{Code: "print('hello')", Requirements: requirements}), &journal{})
			if err != nil || r.Status != executor.StatusSucceeded {
				b.Fatal(r, err)
			}
		}
	}
	ours("pyexec-probe")()
	list, _ := u.cache.entries()
	ways := []struct {
		name string
		run  func()
	}{
		{"bare", bare(python)}, {"run", ours("")}, {"bare-venv", bare(filepath.Join(u.cache.path(list[0].key), "bin", "python"))}, {"run-requirements", ours("pyexec-probe")},
	}
	times := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, way := range ways {
			began := time.Now()
			way.run()
			times[i] = append(times[i], time.Since(began))
		}
	}
	for i, way := range ways {
		slices.Sort(times[i])
		b.ReportMetric(float64(times[i][len(times[i])/2].Microseconds())/1000, way.name+"-p50-ms")
		b.ReportMetric(float64(times[i][len(times[i])*99/100].Microseconds())/1000, way.name+"-p99-ms")
	}
}

// BenchmarkStart measures the start of a backend with warm caches, as for a single call of the command line.
func BenchmarkStart(b *testing.B) {
	options := section(b, nil)
	for b.Loop() {
		u, err := newBackend(b.Context(), plugin.Configure{Name: "uv", Instance: "bench", Embedded: true, Options: options})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := u.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
