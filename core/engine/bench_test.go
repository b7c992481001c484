package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/python-executor/python-executor/core/blobs/dir"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/store/memory"
	sqlitestore "github.com/python-executor/python-executor/core/store/sqlite"
)

// BenchmarkExecution is what the Engine and its Store add to a run: from Submit to the reader's Finished, on a backend
// that takes no time. The executions wait in the queue if there are more callers than slots.
func BenchmarkExecution(b *testing.B) {
	for _, kind := range []string{"memory", "bolt"} {
		for _, durable := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/durable=%v", kind, durable), func(b *testing.B) {
				var store executor.Store = memorystore.New(memorystore.Options{})
				if kind == "bolt" {
					s, err := sqlitestore.Open(b.TempDir()+"/store", sqlitestore.Options{})
					if err != nil {
						b.Fatal(err)
					}
					store = s
				}
				defer store.Close()
				blobs, err := dirblobs.Open(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				quick := runFunc(func(_ context.Context, _ executor.Job, s executor.Sink) (executor.Result, error) {
					return succeeded, emit(s, executor.Started{}, out(0, "hello\n"))
				})
				e, err := New(Options{Store: store, Blobs: blobs, Backends: map[string]executor.Backend{"quick": quick},
					Engine: config.Engine{MaxConcurrent: 4, MaxQueued: 1000}, Retention: config.Retention{MaxExecutions: 1000}})
				if err != nil {
					b.Fatal(err)
				}
				if err := e.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				defer e.Close(b.Context())
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						x, err := e.Submit(b.Context(), executor.Spec{Code: "x", Durable: durable}, executor.Input{})
						if err != nil {
							b.Error(err)
							return
						}
						for _, err := range e.Events(b.Context(), x.ID, 0) {
							if err != nil {
								b.Error(err)
							}
						}
					}
				})
			})
		}
	}
}
