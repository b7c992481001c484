package dockerbackend

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// pooled is a section with a pool, which the tests' default has not.
var pooled = map[string]any{"pool": map[string]any{"min_idle": 2, "sessions": 0}}

// settled waits until the pool has its target, and nothing is being made or removed.
func settled(t testing.TB, b *Backend) {
	awaittest.Until(t, "a pool that waits", func() bool {
		idle, making, busy := b.pool.counts()
		return idle > 0 && making == 0 && busy == 0 && b.results.count() == 0 && len(b.cleaner.turns) == 0 && len(b.cleaner.queue) == 0
	})
}

// BenchmarkWarm runs a program in a container that was waiting. Its median counts.
func BenchmarkWarm(b *testing.B) {
	d := openBackend(b, pooled)
	succeeds(b, d, executor.Spec{Code: "pass"})
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		settled(b, d)
		b.StartTimer()
		begun := time.Now()
		succeeds(b, d, executor.Spec{Code: "pass"})
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}

// BenchmarkSustained runs programs, 8 at a time.
func BenchmarkSustained(b *testing.B) {
	d := openBackend(b, pooled)
	succeeds(b, d, executor.Spec{Code: "pass"})
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			succeeds(b, d, executor.Spec{Code: "pass"})
		}
	})
}

// BenchmarkWorkspace sends a large tar into /work.
func BenchmarkWorkspace(b *testing.B) {
	const size = 1 << 30
	d := openBackend(b, pooled)
	succeeds(b, d, executor.Spec{Code: "pass"})
	b.SetBytes(size)
	for b.Loop() {
		b.StopTimer()
		settled(b, d)
		b.StartTimer()
		j := job(executor.Spec{Command: []string{"true"}})
		j.Workspace = &executor.Source{SizeBytes: -1, Open: func() (io.ReadCloser, error) {
			r, w := io.Pipe()
			go func() {
				t := tar.NewWriter(w)
				err := t.WriteHeader(&tar.Header{Name: "large", Size: size, Mode: 0o644})
				for chunk := make([]byte, 1<<20); err == nil; {
					if _, err = t.Write(chunk); errors.Is(err, tar.ErrWriteTooLong) {
						err = t.Close()
						break
					}
				}
				_ = w.CloseWithError(err)
			}()
			return r, nil
		}}
		r, err := d.Run(b.Context(), j, &journal{})
		if err != nil || r.Status != executor.StatusSucceeded {
			b.Fatalf("%v %+v %+v", err, r, r.Failure)
		}
		if err := d.Remove(b.Context(), j.ID); err != nil {
			b.Fatal(err)
		}
	}
}
