package dockerbackend

import (
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// settled waits until the pool has what it wants and nothing is being made or cleared away.
func settled(b *Backend) {
	for again := time.NewTicker(time.Millisecond); ; {
		idle, making, busy := b.pool.counts()
		if idle > 0 && making == 0 && busy == 0 && len(b.cleaner.queue) == 0 {
			return
		}
		<-again.C
	}
}

// BenchmarkWarm is a program in a container that was waiting; the median is what counts.
func BenchmarkWarm(b *testing.B) {
	d := backend(b, nil)
	succeeds(b, d, executor.Spec{Code: "pass"})
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		settled(d)
		b.StartTimer()
		begun := time.Now()
		succeeds(b, d, executor.Spec{Code: "pass"})
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}

// BenchmarkSustained is as many programs as go in by 8 at once.
func BenchmarkSustained(b *testing.B) {
	d := backend(b, nil)
	succeeds(b, d, executor.Spec{Code: "pass"})
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			succeeds(b, d, executor.Spec{Code: "pass"})
		}
	})
}
