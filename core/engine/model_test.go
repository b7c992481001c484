package engine

import (
	"archive/tar"
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
)

// moody is a backend that does, run by run, one of the things that backends do: most of them wrong.
type moody struct {
	runFunc
	mu     sync.Mutex
	random *rand.Rand
}

func (m *moody) pick(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

func (m *moody) Info(ctx context.Context) (executor.Info, error) {
	switch m.pick(10) {
	case 0:
		return executor.Info{}, executor.Errorf(executor.Unavailable, "away")
	case 1:
		time.Sleep(time.Duration(m.pick(8)) * time.Second)
	}
	return m.runFunc.Info(ctx)
}

func (m *moody) Remove(context.Context, string) error {
	if m.pick(3) == 0 {
		return errors.New("cannot")
	}
	return nil
}

func (m *moody) Run(ctx context.Context, job executor.Job, s executor.Sink) (executor.Result, error) {
	if job.Workspace != nil && m.pick(4) > 0 {
		if r, err := job.Workspace.Open(); err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(r, int64(m.pick(5000))))
			_ = r.Close()
		}
	}
	if m.pick(3) == 0 {
		_ = emit(s, executor.Progress{Phase: executor.PhasePrepare})
	}
	switch m.pick(12) {
	case 0:
		panic("moody")
	case 1:
		return executor.Result{}, executor.Errorf(executor.Unavailable, "gone")
	case 2:
		return executor.Result{}, executor.FieldErrorf(executor.Invalid, "code", "no")
	case 3:
		<-ctx.Done()
		return executor.Result{Status: executor.StatusKilled}, nil
	case 4:
		time.Sleep(time.Duration(m.pick(100)) * time.Hour)
	}
	_ = emit(s, executor.Started{PID: 1, Handle: []byte("h")})
	offset := int64(0)
	for range m.pick(20) {
		chunk := strings.Repeat("x", 1+m.pick(1000))
		if err := emit(s, out(offset, chunk)); err != nil {
			return executor.Result{}, err
		}
		offset += int64(len(chunk))
	}
	switch m.pick(12) {
	case 0:
		panic("moody")
	case 1:
		return executor.Result{}, executor.Errorf(executor.Unavailable, "gone")
	case 2:
		return succeeded, emit(s, out(offset+1, "gap"))
	case 3:
		time.Sleep(100 * time.Hour)
	case 4:
		return executor.Result{}, nil
	case 5:
		return succeeded, s.Artifact(&tar.Header{Name: "a", Size: 3}, strings.NewReader("abc"))
	}
	select {
	case <-ctx.Done():
		return executor.Result{Status: executor.StatusKilled, Signal: "SIGTERM"}, nil
	case <-time.After(time.Duration(m.pick(600)) * time.Second):
		return succeeded, nil
	}
}

// TestEveryIdReachesOneEnd drives the Engine with random submits, cancels, broken uploads, moody backends, a store that
// fails at times, and deaths of the core. Whatever happens: every id ends once, with a legal log; the bounds hold at every
// moment; nothing stays behind.
func TestEveryIdReachesOneEnd(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) { model(t, uint64(seed)) })
		})
	}
}

// player drives one model run.
type player struct {
	t       *testing.T
	random  *rand.Rand
	backend *moody
	store   *failingStore
	options Options
	rig     *rig
	// adopted is how many came over from the last life, past the bounds.
	adopted int
	calls   sync.WaitGroup

	mu  sync.Mutex
	ids map[string]string // by id, the owner
}

func model(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	p := &player{
		t: t, random: random, ids: map[string]string{},
		backend: &moody{random: rand.New(rand.NewPCG(seed, 2))},
		store:   newFailingStore(),
	}
	p.backend.runFunc = func(context.Context, executor.Job, executor.Sink) (executor.Result, error) { return succeeded, nil }
	p.options = Options{
		Store: p.store, Blobs: openBlobs(t), SpoolBytes: 20000,
		Engine: config.Engine{MaxConcurrent: 1 + random.IntN(4), MaxQueued: random.IntN(10), MaxPerOwner: random.IntN(2) * 6},
	}
	p.rig = newRig(t, setup{backend: p.backend, options: p.options})
	for range 150 {
		p.step()
		p.checkBounds()
	}
	p.store.set(nil)
	// Long enough for every deadline.
	time.Sleep(100 * 24 * time.Hour)
	p.calls.Wait()
	p.rig.wantIdle()
	p.checkEnds()
	if err := p.rig.closeNow(); err != nil {
		t.Error(err)
	}
}

func (p *player) step() {
	switch n := p.random.IntN(100); {
	case n < 55:
		p.submit()
	case n < 70:
		p.cancel()
	case n < 90:
		time.Sleep(time.Duration(p.random.IntN(300)) * time.Second)
	case n < 94:
		p.breakStore()
	case n < 96:
		p.die()
	default:
		synctest.Wait()
	}
}

// submit makes a call of its own for what may block.
func (p *player) submit() {
	owner := string(rune('a' + p.random.IntN(3)))
	spec := executor.Spec{Durable: p.random.IntN(2) == 0}
	if p.random.IntN(4) == 0 {
		spec.IdempotencyKey = string(rune('k' + p.random.IntN(3)))
	}
	var in executor.Input
	body := io.NopCloser(nil)
	switch p.random.IntN(5) {
	case 0:
		spec.Code = "exit 0"
	case 1: // breaks off
		in.Workspace = sourceOf(io.NopCloser(io.MultiReader(strings.NewReader("x"), errReader{errors.New("broken")})))
	case 2: // trickles
		r, w := io.Pipe()
		wait := time.Duration(p.random.IntN(120)) * time.Second
		p.calls.Go(func() {
			for range 40 {
				if _, err := w.Write(make([]byte, 512)); err != nil {
					return
				}
				time.Sleep(wait)
			}
			_ = w.Close()
		})
		in.Workspace, body = sourceOf(r), r
	default:
		in.Workspace = once(tarOf(p.t, "main.py", strings.Repeat("x", p.random.IntN(30000))))
		in.Stdin = once([]byte("input"))
	}
	ctx, cancel := context.WithCancelCause(as(owner))
	if p.random.IntN(5) == 0 {
		patience := time.Duration(p.random.IntN(100)) * time.Second
		time.AfterFunc(patience, func() { cancel(errors.New("the client left")) })
	}
	engine := p.rig.Engine
	p.calls.Go(func() {
		defer cancel(nil)
		x, err := engine.Submit(ctx, spec, in)
		if known, ok := errors.AsType[*executor.Error](err); ok {
			x.ID = known.ExecutionID
		}
		if x.ID != "" {
			p.mu.Lock()
			p.ids[x.ID] = owner
			p.mu.Unlock()
		}
		_ = body.Close() // a caller that has gone closes its stream
	})
	if p.random.IntN(3) > 0 {
		synctest.Wait()
	}
}

func (p *player) cancel() {
	p.mu.Lock()
	var id, owner string
	for id, owner = range p.ids {
		break
	}
	p.mu.Unlock()
	if id == "" {
		return
	}
	engine := p.rig.Engine
	p.calls.Go(func() {
		ctx, cancel := context.WithTimeout(as(owner), time.Hour)
		defer cancel()
		if x, err := engine.Cancel(ctx, id); err == nil && !x.Status.Terminal() {
			p.t.Errorf("%s was cancelled and is %s", id, x.Status)
		}
	})
}

// breakStore lets a kind of call fail for a while.
func (p *player) breakStore() {
	op := []string{"create", "append", "update", "delete"}[p.random.IntN(4)]
	code := []executor.Code{executor.Unavailable, executor.Internal}[p.random.IntN(2)]
	p.store.set(func(got string, _ ...executor.Event) error {
		if got == op {
			return executor.Errorf(code, "the disk is full")
		}
		return nil
	})
	time.AfterFunc(time.Duration(p.random.IntN(600))*time.Second, func() { p.store.set(nil) })
}

// die is a kill -9 of the core, as far as one process can play it: nothing more gets into the store.
func (p *player) die() {
	p.store.set(func(string, ...executor.Event) error { return errors.New("dead") })
	_ = p.rig.closeNow()
	synctest.Wait()
	p.store.set(nil)
	p.rig = newRig(p.t, setup{backend: p.backend, options: p.options})
	p.rig.mu.Lock()
	defer p.rig.mu.Unlock()
	p.adopted = len(p.rig.live)
}

func (p *player) checkBounds() {
	e := p.rig.Engine
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queue
	if q.arriving < 0 || q.arriving > q.slots/2 {
		p.t.Errorf("%d of %d slots are held by senders", q.arriving, q.slots)
	}
	// One that pauses has given its slot to another, so it is the sum that is bounded.
	if q.running > q.slots || q.running+q.queued > q.slots+q.maxQueued+p.adopted {
		p.t.Errorf("running %d of %d, queued %d of %d, adopted %d", q.running, q.slots, q.queued, q.maxQueued, p.adopted)
	}
}

func (p *player) checkEnds() {
	blobs := 0
	counts := map[executor.Status]int{}
	seen := map[string]bool{}
	f := executor.Filter{Limit: 500}
	for {
		page := must(p.rig.List(as("root", executor.ScopeAdmin), f))
		for _, x := range page {
			seen[x.ID] = true
			counts[x.Status]++
			res := p.rig.result(x.ID)
			blobs += min(1, len(res.Artifacts))
			if x.Status != res.Status {
				p.t.Errorf("%s is %s and finished %s", x.ID, x.Status, res.Status)
			}
		}
		if len(page) < f.Limit {
			break
		}
		f.After = page[len(page)-1].ID
	}
	for id := range p.ids {
		if !seen[id] {
			p.t.Errorf("%s was accepted and is gone", id)
		}
	}
	p.rig.wantBlobs(blobs)
	p.t.Logf("ends: %v", counts)
}

var _ executor.Backend = (*moody)(nil)
