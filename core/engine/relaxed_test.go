package engine

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestOnlyAProgramThatNobodyCanFollowAfterAKillIsRelaxed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attach, durable, want bool
	}{
		"sync":                               {want: true},
		"durable":                            {durable: true},
		"sync, on a backend with attach":     {attach: true},
		"durable, on a backend with attach ": {attach: true, durable: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				caps := fake.DefaultCapabilities()
				caps.Attach = test.attach
				r := newRig(t, setup{fake: fake.Options{Capabilities: &caps}})
				x := r.submit(as("ann"), "print x", func(s *executor.Spec) { s.Durable = test.durable })
				r.result(x.ID)
				if rec, err := r.store.Get(t.Context(), x.ID); err != nil || rec.Relaxed != test.want {
					t.Errorf("relaxed is %t, want %t, error %v", rec.Relaxed, test.want, err)
				}
			})
		})
	}
}
