package uvbackend

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// unused fails the test if an environment of b is in use, which could never be evicted. It returns the number of environments.
func unused(t *testing.T, b *Backend, when string) int {
	t.Helper()
	list, _ := b.cache.entries()
	for _, e := range list {
		held, err := tryLock(b.cache.lockPath(e.key), unix.LOCK_EX)
		if err != nil {
			t.Errorf("%s: environment %s is in use: %v", when, e.key, err)
			continue
		}
		held.Close()
	}
	return len(list)
}

func TestAnEnvironmentIsInUseAsLongAsItsProgramOrSession(t *testing.T) {
	b, w := indexed(t, map[string]any{"warm_sessions": -1})
	w.add("pyexec-fat", "1.0", map[string]string{"pyexec_fat.py": "x = b'x' * (200 << 20)\n"})
	used := func(when string) {
		t.Helper()
		list, _ := b.cache.entries()
		for _, e := range list {
			if b.cache.remove(e.key) {
				t.Errorf("%s: environment %s could be removed", when, e.key)
			}
		}
	}
	j := &journal{on: func(e executor.Event) error {
		if _, ok := e.Body.(executor.Output); ok {
			used("while the program runs")
		}
		return nil
	}}
	if r, err := b.Run(t.Context(), job(executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}), j); err != nil || r.Status != executor.StatusSucceeded {
		t.Fatal(r, err)
	}
	unused(t, b, "after a program")
	ctx, cancel := context.WithCancelCause(t.Context())
	j = &journal{on: func(e executor.Event) error {
		if o, ok := e.Body.(executor.Output); ok && strings.Contains(string(o.Data), "on") {
			cancel(errors.New("enough"))
		}
		return nil
	}}
	if r, err := b.Run(ctx, job(executor.Spec{Code: "import time; print('on', flush=True); time.sleep(1000)", Requirements: "pyexec-probe"}), j); err != nil || r.Status != executor.StatusKilled {
		t.Fatal(r, err)
	}
	unused(t, b, "after a program that was cancelled")

	open(t, b, "ctx-1", executor.Spec{Requirements: "pyexec-base"})
	if list, err := b.AddRequirements(t.Context(), "ctx-1", "pyexec-probe"); err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if list, err := b.AddRequirements(t.Context(), "ctx-1", "pyexec-nothing"); err == nil {
		t.Error(list)
	}
	s, err := b.sessions.Get(t.Context(), "ctx-1")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.environments); n != 2 {
		t.Errorf("the session has %d environments", n)
	}
	for _, e := range s.environments {
		if b.cache.remove(e.Key) {
			t.Error("an environment of a session could be removed")
		}
	}
	if err := b.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Fatal(err)
	}
	unused(t, b, "after a session")
	if b.can.Memory {
		s := asked("ctx-2", executor.Spec{Requirements: "pyexec-fat"})
		// The control group holds the sum of both limits.
		s.Preload, s.Limits.MemoryBytes, s.Limits.DiskBytes = []string{"pyexec_fat"}, 32<<20, 32<<20
		if _, err := b.OpenSession(t.Context(), s); err == nil {
			t.Error("the session opened, and its memory limit is too low")
		}
		unused(t, b, "after a session that did not open")
	}
	if b.sessions.Len() != 0 {
		t.Errorf("%d sessions are left", b.sessions.Len())
	}
}

func TestRequirementsForASessionThatIsClosedMeanwhileAreGivenBack(t *testing.T) {
	b, w := indexed(t, map[string]any{"warm_sessions": -1})
	open(t, b, "ctx-1", executor.Spec{})
	w.mu.Lock()
	w.hold = make(chan struct{})
	w.mu.Unlock()
	failed := make(chan error, 1)
	go func() {
		_, err := b.AddRequirements(t.Context(), "ctx-1", "pyexec-probe")
		failed <- err
	}()
	<-w.asked
	if err := b.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Error(err)
	}
	close(w.hold)
	if err := <-failed; executor.CodeOf(err) != executor.NotFound {
		t.Errorf("got %v", err)
	}
	if unused(t, b, "after a session that was closed meanwhile") != 1 {
		t.Error("nothing was built, so the test shows nothing")
	}
}

func TestABuildMakesRoomForItselfAndStays(t *testing.T) {
	b, w := indexed(t, map[string]any{"cache_bytes": 1})
	w.add("pyexec-other", "1.0", map[string]string{"pyexec_other.py": ""})
	succeeds(t, b, executor.Spec{Code: "import pyexec_base", Requirements: "pyexec-base"})
	first, _ := b.cache.entries()
	succeeds(t, b, executor.Spec{Code: "import pyexec_other", Requirements: "pyexec-other"})
	awaittest.Until(t, "the eviction of the first", func() bool {
		list, _ := b.cache.entries()
		return len(list) == 1 && len(first) == 1 && list[0].key != first[0].key
	})
	b.builder.Wait()
	if list, _ := b.cache.entries(); len(list) != 1 {
		t.Errorf("%d environments after the build", len(list))
	}
	for n := range parallelBuilds {
		if _, bytes, _ := measure(b.cache.packages(n)); bytes > 0 {
			t.Errorf("package cache %d has %d bytes", n, bytes)
		}
	}
	if b.cache.evicted.Load() != 1 {
		t.Errorf("%d evicted", b.cache.evicted.Load())
	}
}

// TestWhatWasJustBuiltIsNotEvictedBeforeItIsUsed matters because a job opens its environment a moment after the build.
func TestWhatWasJustBuiltIsNotEvictedBeforeItIsUsed(t *testing.T) {
	b, _ := indexed(t, map[string]any{"cache_bytes": 1})
	i, _, err := b.choose(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	w := want{i, []string{"pyexec-base"}}
	key := b.builder.key(w)
	if failure, err := b.builder.shared(t.Context(), key, w, backend.NoProgress); failure != nil || err != nil {
		t.Fatal(failure, err)
	}
	b.builder.Wait() // for the eviction after the build
	env, ok := b.cache.open(key)
	if !ok {
		t.Fatal("the new environment was evicted")
	}
	env.release()
}

func TestSlotsBeyondTheKeptOnesGoWhenTheyAreIdle(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	p := b.slots
	var taken []*slot
	for range keptSlots + 2 {
		s, _, err := p.take(t.Context(), false, "me")
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o711 || s.fork != "me" {
			t.Errorf("a slot for forks of %q with the folder %v, %v", s.fork, info, err)
		}
		taken = append(taken, s)
	}
	if all, busy := p.counts(); busy != len(taken) || all < busy {
		t.Errorf("%d slots, %d busy, with %d taken", all, busy, len(taken))
	}
	for _, s := range taken {
		p.put(s)
	}
	p.mu.Lock()
	idle := slices.Clone(p.idle)
	p.mu.Unlock()
	for i, s := range idle {
		if timed := s.idle != nil; timed && i >= len(idle)-keptSlots {
			t.Errorf("slot %d of %d has a timer, and must be kept", i, len(idle))
		}
	}
	if idle[0].idle == nil {
		t.Error("the oldest idle slot has no timer")
	}
	for _, s := range idle {
		p.shrink(s)
	}
	if all, busy := p.counts(); all != keptSlots || busy != 0 {
		t.Errorf("%d slots are left, %d busy", all, busy)
	}
	for _, s := range idle[:len(idle)-keptSlots] {
		if s.alive() {
			t.Error("the runner of a dropped slot is alive")
		}
	}
}

func TestACallThatHasEndedGivesItsSlotBack(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	succeeds(t, b, executor.Spec{Code: "print(1)"})
	awaittest.Until(t, "the start of the kept slots", func() bool { _, busy := b.slots.counts(); return busy == 0 })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	if r, err := b.Run(ctx, job(executor.Spec{Code: "print(1)"}), &journal{}); err != nil || r.Status != executor.StatusKilled {
		t.Errorf("%+v, %v", r, err)
	}
	// The backend may still be starting others.
	awaittest.Until(t, "the return of all slots", func() bool { _, busy := b.slots.counts(); return busy == 0 })
}

func TestAnIdleRunnerThatDiesGivesItsUIDBack(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	succeeds(t, b, executor.Spec{Code: "print(1)"})
	awaittest.Until(t, "the start of the kept slots", func() bool { all, busy := b.slots.counts(); return all > 0 && busy == 0 })
	awaittest.Until(t, "the end of all slots", func() bool {
		b.slots.mu.Lock()
		defer b.slots.mu.Unlock()
		for s := range b.slots.all { // the backend may still be starting some
			if s.alive() {
				_ = unix.Kill(s.cmd.Process.Pid, unix.SIGKILL)
			}
		}
		return len(b.slots.all) == 0
	})
	if b.how.Setuid {
		for uid := b.how.uids.first; uid < b.how.uids.first+2; uid++ {
			c, err := b.slots.ids.take(uids{uid, uid})
			if executor.CodeOf(err) == executor.Exhausted {
				continue // another installation has the uid
			}
			if err != nil {
				t.Fatal(err)
			}
			c.release()
		}
	}
	succeeds(t, b, executor.Spec{Code: "print(1)"})
}
