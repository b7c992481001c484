package plugin_test

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// BenchmarkRun measures what the boundary adds to one execution: a Run with one event, in another process.
func BenchmarkRun(b *testing.B) {
	p := plugintest.Process(b, "odd", nil)
	s := &quiet{}
	for b.Loop() {
		if _, err := p.Backend.Run(b.Context(), job("one"), s); err != nil {
			b.Fatal(err)
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
	p := plugintest.Process(b, "odd", nil)
	for b.Loop() {
		if _, err := p.Backend.Info(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// quiet is a Sink that takes everything.
type quiet struct{ executor.Sink }

func (*quiet) Emit(executor.Event) error { return nil }
