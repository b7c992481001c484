package engine

import (
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

func TestOnlyAProgramThatNobodyCanFollowAfterAKillIsRelaxed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attach, durable, waits, lasting, inSession bool
		key                                        string
		want                                       bool
	}{
		"sync":                               {want: true},
		"durable":                            {durable: true},
		"sync, on a backend with attach":     {attach: true},
		"durable, on a backend with attach ": {attach: true, durable: true},
		"sync, with a key":                   {key: "k"},
		"sync, waits":                        {waits: true, want: true},
		"sync, waits, with a key":            {waits: true, key: "k"},
		"of a batch, with a key":             {lasting: true, key: "k", want: true},
		"of a batch, waits":                  {lasting: true, waits: true, want: true},
		"of a batch, with attach, waits":     {lasting: true, waits: true, attach: true},
		"durable, of a batch":                {lasting: true, durable: true},
		"in a session, waits":                {inSession: true, waits: true, want: true},
		"in a session, waits, with a key":    {inSession: true, waits: true, key: "k"},
		"in a session, waits, with attach":   {inSession: true, waits: true, attach: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				r := newRig(t, withSessions(func(s *setup) {
					s.fake.Capabilities.Attach = test.attach
					s.options.Engine = config.Engine{MaxConcurrent: 1, MaxQueued: 10}
				}))
				if test.waits {
					r.submit(as("ann"), "wait gate")
					synctest.Wait()
				}
				spec := executor.Spec{Code: "print x", Durable: test.durable, IdempotencyKey: test.key}
				if test.inSession {
					spec.Session = r.open(as("ann")).ID
				}
				x := must(r.Submit(as("ann"), spec, executor.Input{Lasting: test.lasting}))
				r.fake.Release("gate")
				r.result(x.ID)
				if rec, err := r.store.Get(t.Context(), x.ID); err != nil || rec.Relaxed != test.want {
					t.Errorf("relaxed is %t, want %t, error %v", rec.Relaxed, test.want, err)
				}
			})
		})
	}
}
