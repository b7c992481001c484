package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestTheSessionsOfASilentServerAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		can := fake.DefaultCapabilities()
		can.Sessions = true
		b := fake.New(fake.Options{Capabilities: &can})
		g := newGuard(Options{Backend: b, Slots: 2, Log: slog.New(slog.DiscardHandler)})
		s := &sessionGuard{g, b}
		life, end := context.WithCancelCause(t.Context())
		defer end(errors.New("the test is over"))
		go g.sweep(life, time.Minute)
		as := func(instance string) context.Context {
			return metadata.NewIncomingContext(t.Context(), metadata.Pairs(instanceKey, instance))
		}
		for _, name := range []string{"silent", "asks", "runs"} {
			if _, err := s.OpenSession(as(name), executor.Session{ID: "ctx-" + name}); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			_, _ = s.Run(as("runs"), executor.Job{ID: "exe_1", Spec: executor.Spec{Code: "sleep 10m"}, Limits: executor.Limits{
				Timeout: time.Hour, MemoryBytes: 1 << 30, DiskBytes: 1 << 30, PIDs: 9, OutputBytes: 9, KillGrace: 1,
			}}, discard{})
		}()
		for range 5 {
			time.Sleep(30 * time.Second)
			if _, err := s.Info(as("asks")); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got := b.Sessions(); len(got) != 2 || got[0] != "ctx-asks" || got[1] != "ctx-runs" {
			t.Errorf("open are %v", got)
		}
		time.Sleep(8 * time.Minute) // the run has ended 30 seconds ago
		synctest.Wait()
		if got := b.Sessions(); len(got) != 1 || got[0] != "ctx-runs" {
			t.Errorf("open are %v: the end of a run is a sign of life", got)
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := b.Sessions(); len(got) != 0 {
			t.Errorf("open are %v", got)
		}
	})
}

func TestASessionThatWasNotHandedOverIsNotHeld(t *testing.T) {
	t.Parallel()
	var gone context.CancelCauseFunc
	refuse := executor.Errorf(executor.Exhausted, "no room")
	for name, c := range map[string]struct {
		hook func() error
		code executor.Code
	}{
		"the backend refuses it":             {func() error { return refuse }, executor.Exhausted},
		"its caller went away in the making": {func() error { gone(executor.ErrCallerGone); return nil }, executor.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			can := fake.DefaultCapabilities()
			can.Sessions = true
			first := true
			b := fake.New(fake.Options{Capabilities: &can, OpenHook: func(context.Context, executor.Session) error {
				if !first {
					return nil
				}
				first = false
				return c.hook()
			}})
			g := newGuard(Options{Backend: b, Slots: 2, Log: slog.New(slog.DiscardHandler)})
			s := &sessionGuard{g, b}
			var ctx context.Context
			ctx, gone = context.WithCancelCause(t.Context())
			defer gone(nil)
			if _, err := s.OpenSession(ctx, executor.Session{ID: "ctx-1"}); executor.CodeOf(err) != c.code || len(b.Sessions()) > 0 {
				t.Errorf("got %v, and the backend has %v", err, b.Sessions())
			}
			over, end := context.WithCancelCause(t.Context())
			end(nil)
			if err := g.wait(over); err != nil {
				t.Errorf("something is held: %v", err)
			}
			if _, err := s.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
				t.Errorf("open it again: %v", err)
			}
		})
	}
}

type discard struct{ executor.Sink }

func (discard) Emit(executor.Event) error { return nil }
