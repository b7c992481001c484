package sqlitestore_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func queued(n int, durable bool) executor.Record {
	return executor.Record{Execution: executor.Execution{
		ID: fmt.Sprintf("exe_%026d", n), Owner: "local", Status: executor.StatusQueued, Backend: "uv",
		Spec: executor.Spec{Code: "print('hello, world')", Durable: durable, Args: []string{"a"}},
	}, SpecDigest: "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
}

// BenchmarkCreate is 10,000 acceptances by 8 writers: durable as async ones are, and not.
func BenchmarkCreate(b *testing.B) {
	for _, durable := range []bool{true, false} {
		b.Run(fmt.Sprintf("durable=%t", durable), func(b *testing.B) {
			const n, writers = 10_000, 8
			for b.Loop() {
				b.StopTimer()
				s := open(b, filepath.Join(b.TempDir(), "store.db"))
				b.StartTimer()
				var next atomic.Int64
				var wg sync.WaitGroup
				for range writers {
					wg.Go(func() {
						for i := next.Add(1); i <= n; i = next.Add(1) {
							if _, _, err := s.Create(b.Context(), queued(int(i), durable)); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Error(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "creates/s")
		})
	}
}

// BenchmarkLife is what one execution writes: creation, four events, its end.
func BenchmarkLife(b *testing.B) {
	for _, durable := range []bool{true, false} {
		b.Run(fmt.Sprintf("durable=%t", durable), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "store.db"))
			var next atomic.Int64
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r := queued(int(next.Add(1)), durable)
					if _, _, err := s.Create(b.Context(), r); err != nil {
						b.Error(err)
					}
					for _, body := range []executor.Body{executor.Queued{}, executor.Started{PID: 1}, out(0, 100), out(100, 100), finished} {
						if err := s.Append(b.Context(), r.ID, executor.Event{Body: body}); err != nil {
							b.Error(err)
						}
					}
				}
			})
		})
	}
}

// BenchmarkOutput is a flood of full pieces of output, read by one follower.
func BenchmarkOutput(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "store.db"))
	r := queued(1, false)
	if _, _, err := s.Create(b.Context(), r); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, err := range s.Events(b.Context(), r.ID, 0) {
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.SetBytes(executor.MaxOutputData)
	offset := int64(0)
	for b.Loop() {
		if err := s.Append(b.Context(), r.ID, executor.Event{Body: out(offset, executor.MaxOutputData)}); err != nil {
			b.Fatal(err)
		}
		offset += executor.MaxOutputData
	}
	if err := s.Append(b.Context(), r.ID, executor.Event{Body: finished}); err != nil {
		b.Fatal(err)
	}
	wg.Wait()
}

var finished = executor.Finished{Result: executor.Result{Status: executor.StatusSucceeded}}

func out(offset int64, n int) executor.Output {
	return executor.Output{Stream: executor.Stdout, Offset: offset, Data: make([]byte, n)}
}
