package sessions

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/calls"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// desk is a Registry with an engine that is played by the test.
type desk struct {
	*Registry
	t    *testing.T
	fake *fake.Backend
	// backend is fake, or something around it.
	backend executor.Backend
	store   executor.Store
	halt    context.CancelCauseFunc
	// spawns: Spawn runs what it is given.
	spawns  bool
	refused int
	// joined counts the Sessions on the desk.
	joined atomic.Int64
}

func newDesk(t *testing.T, change ...func(*Options)) *desk {
	t.Helper()
	caps := fake.DefaultCapabilities()
	caps.Sessions = true
	d := &desk{t: t, fake: fake.New(fake.Options{Capabilities: &caps, Generation: 1}), store: memorystore.New(memorystore.Options{}), spawns: true}
	d.backend = d.fake
	o := Options{
		Store: d.store, Log: slog.New(slog.DiscardHandler), Rules: config.Default().Sessions, Abandoned: &calls.Abandoned{},
		Prepare: time.Minute, Upload: time.Minute, Stop: time.Second, Stopping: make(chan struct{}),
		Spawn: func(f func()) bool {
			d.free()
			if d.spawns {
				go f()
			}
			return d.spawns
		},
		Full: func(what string) error {
			d.free()
			return executor.Errorf(executor.Exhausted, "%s", what)
		},
		Refused: func() { d.refused++ },
		Internal: func(_ string, err error) error {
			d.free()
			return err
		},
		Home: func(name string) Home {
			if name != "fake" {
				return nil
			}
			return d
		},
	}
	o.Base, d.halt = context.WithCancelCause(context.Background())
	for _, f := range change {
		f(&o)
	}
	d.Registry = New(o)
	t.Cleanup(func() {
		d.Drain()
		d.spawns = true
		d.Release()
		d.halt(nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := d.joined.Load(); n != int64(len(d.Registry.open)) {
			t.Errorf("%d Sessions are at home, and %d are open", n, len(d.Registry.open))
		}
	})
	return d
}

// Sandboxes implements Home.
func (d *desk) Sandboxes() executor.Backend {
	d.free()
	return d.backend
}

// Describe implements Home.
func (d *desk) Describe(ctx context.Context) (executor.Info, error) {
	d.free()
	return d.fake.Info(ctx)
}

// Answered implements Home.
func (d *desk) Answered() bool { return true }

// Join implements Home.
func (d *desk) Join() { d.joined.Add(1) }

// Leave implements Home.
func (d *desk) Leave() { d.joined.Add(-1) }

// free hangs unless the Registry's lock is free, as it must be when the engine is called.
func (d *desk) free() {
	d.mu.Lock()
	d.mu.Unlock() //nolint:staticcheck // it was free
}

func (d *desk) open() *Session {
	d.t.Helper()
	v, err := d.Open(d.t.Context(), executor.Session{
		Owner: "alice", Backend: "fake", Language: executor.LanguagePython, IdleTimeout: time.Hour, Limits: executor.Limits{DiskBytes: 1 << 20},
	}, d)
	if err != nil {
		d.t.Fatal(err)
	}
	s, _, err := d.Find(d.t.Context(), v.ID, func(owner string) bool { return owner == "alice" })
	if err != nil || s == nil {
		d.t.Fatal(s, err)
	}
	return s
}

// run is a Run that notes what it is told.
type run struct {
	desk *desk
	name string
	told []string
	turn *Turn
}

func (r *run) ID() string { return r.name }

func (r *run) Proceed() {
	r.desk.free()
	r.told = append(r.told, "proceed")
}

func (r *run) Stop(cause error) {
	r.desk.free()
	r.told = append(r.told, cause.Error())
}

func (r *run) want(told ...string) {
	r.desk.t.Helper()
	if strings.Join(r.told, ", ") != strings.Join(told, ", ") {
		r.desk.t.Errorf("%s was told %q, want %q", r.name, r.told, told)
	}
}

// join gives a Run a Turn. A Run that is free may start at once if starts is set.
func (d *desk) join(s *Session, name string, uploading, starts bool) *run {
	d.t.Helper()
	x := &run{desk: d, name: name}
	turn, err := s.Join(x, uploading, func(free bool) (bool, error) { return free && starts, nil })
	if err != nil {
		d.t.Fatalf("%s: %v", name, err)
	}
	x.turn = turn
	return x
}

func wantNext(t *testing.T, next Run, want *run) {
	t.Helper()
	if want == nil && next == nil {
		return
	}
	if got, ok := next.(*run); !ok || got != want {
		t.Errorf("next is %v, want %v", next, want)
	}
}

func wantView(t *testing.T, s *Session, running string, waiting int) {
	t.Helper()
	if v := s.View(); v.Running != running || v.Waiting != waiting {
		t.Errorf("%q runs and %d wait, want %q and %d", v.Running, v.Waiting, running, waiting)
	}
}
