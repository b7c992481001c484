package plugin_test

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// measure repeats run with a plugin and reports the CPU time of both processes for each repetition.
func measure(b *testing.B, o oddOptions, run func(p *plugintest.Plugin) error) {
	b.Helper()
	p := plugintest.Process(b, "odd", options(b, o))
	if err := run(p); err != nil { // the first run opens the connection
		b.Fatal(err)
	}
	b.ReportAllocs()
	host, plugin := processorTime(b, os.Getpid()), processorTime(b, p.PID)
	for b.Loop() {
		if err := run(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((processorTime(b, os.Getpid())-host).Microseconds())/float64(b.N), "host-µs/op")
	b.ReportMetric(float64((processorTime(b, p.PID)-plugin).Microseconds())/float64(b.N), "plugin-µs/op")
}

// processorTime returns how long the process has run, from its schedstat, of which each thread has its own.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		b.Fatal(err)
	}
	var total time.Duration
	for _, t := range threads {
		raw, err := os.ReadFile(tasks + t.Name() + "/schedstat")
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(ns)
	}
	return total
}

// BenchmarkRun measures what the boundary adds to one execution: a Run with one event, in another process.
func BenchmarkRun(b *testing.B) {
	measure(b, oddOptions{}, func(p *plugintest.Plugin) error {
		_, err := p.Backend.Run(b.Context(), job("one"), &quiet{})
		return err
	})
}

// BenchmarkRuns200 measures 200 small Runs at once.
func BenchmarkRuns200(b *testing.B) {
	measure(b, oddOptions{}, func(p *plugintest.Plugin) error {
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if _, err := p.Backend.Run(b.Context(), job("one"), &quiet{}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		return nil
	})
}

// BenchmarkOutput10MiB measures a Run whose program writes 10 MiB, in events of 256 KiB.
func BenchmarkOutput10MiB(b *testing.B) {
	j := job("flood")
	j.Attempt = 40
	measure(b, oddOptions{}, func(p *plugintest.Plugin) error {
		_, err := p.Backend.Run(b.Context(), j, &quiet{})
		return err
	})
}

// BenchmarkSource measures a Run that reads its workspace: in messages, and from a socket where both share their files.
func BenchmarkSource(b *testing.B) {
	for _, size := range []int64{100, 64 << 20, 1 << 30} {
		for _, shared := range []bool{false, true} {
			if shared && size < 1<<20 {
				continue // a small source always takes messages
			}
			b.Run(strconv.FormatInt(size, 10)+map[bool]string{false: "/messages", true: "/socket"}[shared], func(b *testing.B) {
				j := job("read")
				j.Workspace = &executor.Source{SizeBytes: size, Open: func() (io.ReadCloser, error) {
					return io.NopCloser(io.LimitReader(zeros{}, size)), nil
				}}
				b.SetBytes(size)
				measure(b, oddOptions{LocalPath: shared}, func(p *plugintest.Plugin) error {
					_, err := p.Backend.Run(b.Context(), j, &quiet{})
					return err
				})
			})
		}
	}
}

// BenchmarkEmit measures one acknowledged event.
func BenchmarkEmit(b *testing.B) {
	p := plugintest.Process(b, "odd", nil)
	j := job("events")
	j.Attempt = b.N
	b.ResetTimer()
	if _, err := p.Backend.Run(b.Context(), j, &quiet{}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkInfo measures one unary call.
func BenchmarkInfo(b *testing.B) {
	measure(b, oddOptions{}, func(p *plugintest.Plugin) error {
		_, err := p.Backend.Info(b.Context())
		return err
	})
}

// quiet is a Sink that takes everything.
type quiet struct{ executor.Sink }

func (*quiet) Emit(executor.Event) error { return nil }
