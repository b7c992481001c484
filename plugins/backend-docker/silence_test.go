package dockerbackend

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestWhatNobodyAttachesToEndsByItself(t *testing.T) {
	t.Parallel() // the test mostly waits
	// A plugin on a busy machine may be silent for some seconds.
	const silence = 15
	id, dir, options := instance(t), t.TempDir(), section(t, map[string]any{"silence_seconds": silence})
	first := process(t, id, dir, options)
	r := begin(t, first.Backend, executor.Spec{Code: "import time; print('up', flush=True); time.sleep(3600)"}, "up")
	first.Kill()
	<-r.ended
	next := process(t, id, dir, section(t, map[string]any{"silence_seconds": silence}))
	if _, err := next.Backend.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, "the end of its container", func() bool { return len(containersOf(t, id)) == 0 })
	if _, err := next.Backend.Attach(t.Context(), r.job, r.resume(), &journal{}); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("Attach to a container that has ended: %v", err)
	}
}

func TestWhatWaitsEndsByItselfWhenThePluginIsKilled(t *testing.T) {
	t.Parallel() // the test mostly waits
	id, options := instance(t), section(t, map[string]any{"silence_seconds": 5, "pool": map[string]any{"min_idle": 1, "sessions": 1}})
	p := process(t, id, t.TempDir(), options)
	succeeds(t, p.Backend, executor.Spec{Code: "print(1)"})
	// Each runner has had a client. A runner without one waits longer.
	awaittest.Until(t, "a full pool", func() bool {
		info, err := p.Backend.Info(t.Context())
		return err == nil && info.Metrics["pool_idle"] >= 2 && info.Metrics["pool_making"] == 0
	})
	p.Kill()
	awaittest.Until(t, "the end of every container, without a plugin that removes it", func() bool {
		for _, c := range containersOf(t, id) {
			if c.State != "created" { // the next life removes a container that was never started
				return false
			}
		}
		return true
	})
	nothingLeft(t, id, options)
}
