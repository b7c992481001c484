package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// TestSessionsUnderEverythingAtOnce drives sessions with random opens, runs, uploads, cancels, interrupts, restarts,
// closes, tools and files, while plugins, interpreters, sandboxes and the core itself die and the store fails at times.
// Whatever happens: every Execution ends once, with a legal log; those of a Session never run at the same time, and in the
// order of their ids; nobody waits for ever; and once all is closed, nothing is left.
func TestSessionsUnderEverythingAtOnce(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) { sessionModel(t, uint64(seed)) })
		})
	}
}

// guest drives one model run.
type guest struct {
	t      *testing.T
	random *rand.Rand
	plugin *relay
	store  *failingStore
	set    setup
	rig    *rig
	calls  sync.WaitGroup

	mu       sync.Mutex
	sessions []string
	ids      []string
	// inside counts what runs in a Session now, last is the id that ran in it last; loose are those with an upload, which
	// others may pass.
	inside map[string]int
	last   map[string]string
	loose  map[string]bool
}

func sessionModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	g := &guest{
		t: t, random: random, store: newFailingStore(),
		inside: map[string]int{}, last: map[string]string{}, loose: map[string]bool{},
	}
	changes := []func(*setup){
		func(s *setup) {
			s.options.Store, s.options.Blobs = g.store, openBlobs(t)
			s.options.Engine = config.Engine{MaxConcurrent: 1 + random.IntN(4), MaxQueued: 5 + random.IntN(50)}
			s.fake.Hook = g.watch
		},
		rules(func(c *config.Sessions) {
			c.Max, c.MaxWaiting, c.EvictIdleSeconds = 2+random.IntN(5), 1+random.IntN(8), float64(random.IntN(2)*60)
			c.IdleTimeoutSeconds = 600
		}),
	}
	if seed%2 == 0 {
		changes = append(changes, lasting)
	}
	g.set, g.plugin = withRelay(changes...)
	g.rig = newRig(t, g.set)
	for range 200 {
		g.step()
	}
	g.store.set(nil)
	time.Sleep(3 * 24 * time.Hour) // long enough for every deadline, and for every session to expire
	g.calls.Wait()
	g.rig.wantIdle()
	g.check()
	if err := g.rig.closeNow(); err != nil {
		t.Error(err)
	}
	if left := g.plugin.current().Sessions(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}

// watch is the hook of every run.
func (g *guest) watch(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
	id := job.Spec.Session
	began := false
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if began && g.inside[id] > 0 {
			g.inside[id]--
		}
	}()
	return run(ctx, job, &startWatcher{Sink: sink, started: func() {
		began = true
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.inside[id]++; g.inside[id] > 1 {
			g.t.Errorf("%d run in %s at once", g.inside[id], id)
		}
		if job.Attempt == 1 && !g.loose[job.ID] {
			if job.ID < g.last[id] {
				g.t.Errorf("in %s %s ran after %s", id, job.ID, g.last[id])
			}
			g.last[id] = job.ID
		}
	}})
}

// startWatcher tells when a program has started.
type startWatcher struct {
	executor.Sink
	started func()
}

func (w *startWatcher) Emit(e executor.Event) error {
	err := w.Sink.Emit(e)
	if _, ok := e.Body.(executor.Started); ok && err == nil {
		w.started()
	}
	return err
}

func (g *guest) step() {
	switch n := g.random.IntN(100); {
	case n < 8:
		g.open()
	case n < 55:
		g.submit()
	case n < 60:
		g.onExecution(func(ctx context.Context, e *Engine, id string) { _, _ = e.Cancel(ctx, id) })
	case n < 76:
		g.onSession(g.random.IntN(9))
	case n < 80:
		g.plugin.die(time.Duration(g.random.IntN(40)) * time.Second)
		g.forget()
	case n < 82:
		g.breakStore()
	case n < 84:
		g.restart(g.random.IntN(2) == 0)
	case n < 94:
		time.Sleep(time.Duration(g.random.IntN(120)) * time.Second)
	default:
		synctest.Wait()
	}
}

// forget lets what ran in a plugin that died be over: nobody saw its end.
func (g *guest) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.inside)
}

func (g *guest) open() {
	engine := g.rig.Engine
	g.calls.Go(func() {
		ctx, cancel := context.WithTimeout(as("alice"), time.Hour)
		defer cancel()
		s, err := engine.OpenSession(ctx, executor.Session{})
		if err == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.sessions = append(g.sessions, s.ID)
		}
	})
}

func (g *guest) any(list *[]string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(*list) == 0 {
		return ""
	}
	return (*list)[max(0, len(*list)-1-g.random.IntN(5))]
}

func (g *guest) submit() {
	session := g.any(&g.sessions)
	if session == "" {
		return
	}
	programs := []string{
		"set x 1", "print hello", "exit 3", "raise no", "sleep 20s\nprint late", "hang", "ignore-int\nhang", "signal KILL", "later 30s x\nprint y",
		"flood stdout 100KB", "backend-die", "display text/plain x", "backend-error internal no",
	}
	spec := executor.Spec{Session: session, Code: programs[g.random.IntN(len(programs))], Durable: g.random.IntN(2) == 0}
	spec.Limits.Timeout = time.Duration(1+g.random.IntN(300)) * time.Second
	if g.random.IntN(4) == 0 {
		spec.Code, spec.Command = "", []string{"fake", "-c", spec.Code}
	}
	var in executor.Input
	if g.random.IntN(5) == 0 {
		r, w := io.Pipe()
		wait := time.Duration(g.random.IntN(60)) * time.Second
		g.calls.Go(func() {
			time.Sleep(wait)
			_ = w.Close()
		})
		in.Stdin = sourceOf(r)
		in.Accepted = func(x executor.Execution) { g.note(x.ID, true) }
	}
	engine, uploads := g.rig.Engine, in.Stdin != nil
	g.calls.Go(func() {
		ctx, cancel := context.WithTimeout(as("alice"), time.Hour)
		defer cancel()
		x, err := engine.Submit(ctx, spec, in)
		if known, ok := errors.AsType[*executor.Error](err); ok {
			x.ID = known.ExecutionID
		}
		if x.ID != "" {
			g.note(x.ID, uploads)
		}
	})
	if g.random.IntN(3) > 0 {
		synctest.Wait()
	}
}

func (g *guest) note(id string, loose bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if loose {
		g.loose[id] = true
	}
	g.ids = append(g.ids, id)
}

func (g *guest) onExecution(f func(ctx context.Context, e *Engine, id string)) {
	id, engine := g.any(&g.ids), g.rig.Engine
	if id == "" {
		return
	}
	g.calls.Go(func() {
		ctx, cancel := context.WithTimeout(as("alice"), time.Hour)
		defer cancel()
		f(ctx, engine, id)
	})
}

func (g *guest) onSession(what int) {
	id, e := g.any(&g.sessions), g.rig.Engine
	if id == "" {
		return
	}
	switch what {
	case 0:
		g.plugin.current().KillSession(id)
		return
	case 1:
		g.plugin.current().DropSession(id)
		return
	}
	g.calls.Go(func() {
		ctx, cancel := context.WithTimeout(as("alice"), time.Hour)
		defer cancel()
		switch what {
		case 2:
			_, _ = e.InterruptSession(ctx, id)
		case 3, 4:
			_, _ = e.RestartSession(ctx, id, what == 4)
		case 5:
			_, _ = e.CloseSession(ctx, id)
		case 6:
			_, _ = e.Variables(ctx, id)
		case 7:
			_, _ = e.AddRequirements(ctx, id, "a==1")
		case 8:
			_, _ = e.WriteFile(ctx, id, executor.File{Path: "a", SizeBytes: -1}, strings.NewReader("a"))
			if _, r, err := e.ReadFile(ctx, id, "a"); err == nil {
				_ = r.Close()
			}
			_, _ = e.ListFiles(ctx, id, "", true)
		}
	})
}

func (g *guest) breakStore() {
	op := []string{"create", "append", "update", "create session", "update session"}[g.random.IntN(5)]
	g.store.set(func(got string, _ ...executor.Event) error {
		if got == op {
			return executor.Errorf(executor.Unavailable, "the disk is full")
		}
		return nil
	})
	time.AfterFunc(time.Duration(g.random.IntN(120))*time.Second, func() { g.store.set(nil) })
}

// restart ends the core and starts the next; as a crash nothing more gets into the store, and the plugin dies with it.
func (g *guest) restart(crash bool) {
	if crash {
		g.store.set(func(string, ...executor.Event) error { return errors.New("dead") })
	}
	_ = g.rig.closeNow()
	time.Sleep(time.Second) // ids of two lives in one millisecond have no order
	g.store.set(nil)
	g.plugin.die(0)
	g.forget()
	g.rig = newRig(g.t, g.set)
}

func (g *guest) check() {
	counts := map[executor.Status]int{}
	seen := map[string]bool{}
	f := executor.Filter{Limit: 500}
	for {
		page := must(g.rig.List(as("root", executor.ScopeAdmin), f))
		for _, x := range page {
			seen[x.ID] = true
			counts[x.Status]++
			if res := g.rig.result(x.ID); x.Status != res.Status {
				g.t.Errorf("%s is %s and finished %s", x.ID, x.Status, res.Status)
			}
		}
		if len(page) < f.Limit {
			break
		}
		f.After = page[len(page)-1].ID
	}
	for _, id := range g.ids {
		if !seen[id] {
			g.t.Errorf("%s was accepted and is gone", id)
		}
	}
	g.rig.wantBlobs(0)
	if n := g.rig.openSessions(); n != 0 {
		g.t.Errorf("%d sessions are open", n)
	}
	g.t.Logf("%d sessions, ends: %v", len(g.sessions), counts)
}
