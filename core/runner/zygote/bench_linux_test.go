package zygote

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkHello compares a fork that waits with a new interpreter, in turn: the time from the request to the end of the program,
// and its CPU time.
func BenchmarkHello(b *testing.B) {
	cfg := usual(b.TempDir())
	z := start(b, cfg)
	const text = `print("hi")`
	run(b, z, text, nil)
	var forked, spawned []time.Duration
	var forkedCPU, spawnedCPU time.Duration
	for b.Loop() {
		began := time.Now()
		p, err := beginTimed(b, z, &began)
		must(b, err)
		if out, _, exit := p.finish(b); out != "hi\n" {
			b.Fatal(out, exit)
		} else {
			forked = append(forked, time.Since(began))
			forkedCPU += exit.CPU
		}
		cmd := exec.Command(python, filepath.Join(cfg.Dir, "main.py"))
		cmd.Env = cfg.Env
		began = time.Now()
		out, err := cmd.Output()
		must(b, err)
		spawned = append(spawned, time.Since(began))
		spawnedCPU += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if string(out) != "hi\n" {
			b.Fatal(string(out))
		}
	}
	report := func(name string, all []time.Duration, cpu time.Duration) {
		slices.Sort(all)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
		b.ReportMetric(ms(all[len(all)/2]), name+"-p50-ms")
		b.ReportMetric(ms(all[len(all)*99/100]), name+"-p99-ms")
		b.ReportMetric(ms(cpu/time.Duration(len(all))), name+"-cpu-ms")
	}
	report("fork", forked, forkedCPU)
	report("spawn", spawned, spawnedCPU)
	b.ReportMetric(0, "ns/op")
}

// beginTimed starts the main file that is there. It sets began when the copy waits, which is not part of the request.
func beginTimed(b *testing.B, z *Zygote, began *time.Time) (*running, error) {
	text, err := os.ReadFile(filepath.Join(z.cfg.Dir, "main.py"))
	must(b, err)
	return begin(b, z, string(text), func(*Request) { *began = time.Now() })
}
