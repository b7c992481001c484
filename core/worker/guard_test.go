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
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		if got := b.Sessions(); len(got) != 0 {
			t.Errorf("open are %v", got)
		}
	})
}

type discard struct{ executor.Sink }

func (discard) Emit(executor.Event) error { return nil }
