package uvbackend

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

func TestTheEndOfARangeIsForBuilds(t *testing.T) {
	t.Parallel()
	for r, want := range map[uids]int{{70000, 70003}: 0, {70000, 70007}: 1, {70000, 70039}: 5, {70000, 70127}: 16, {70000, 70511}: 16} {
		if got := r.programs(); r.reserved() != want || got.first != r.first || got.last != r.last-want {
			t.Errorf("of %s %d uids are reserved, and programs have %s; want %d", r, r.reserved(), got, want)
		}
	}
}

// poolWithoutProcesses returns the pool of a range whose uids have no processes.
func poolWithoutProcesses(t *testing.T, r uids) *uidPool {
	t.Helper()
	p := newUIDPool(t.TempDir(), r, sandbox.Marks{}, slog.New(slog.DiscardHandler))
	p.end = func(int) error { return nil }
	return p
}

// hold releases a claim when t ends. A claim that nothing refers to ends with its file.
func hold(t *testing.T, c *uidClaim) {
	t.Helper()
	t.Cleanup(c.release)
}

func TestABuildPrefersTheUIDThatOwnsItsPackageCache(t *testing.T) {
	t.Parallel()
	r := uids{70000, 70015} // two are reserved
	p := &slots{how: mechanisms{uids: r}, ids: poolWithoutProcesses(t, r)}
	for _, c := range []struct{ n, want int }{{1, 70014}, {0, 70015}, {1, 70013}, {0, 70012}, {20, 70000}} {
		if got, err := p.builderUID(c.n); err != nil || got.uid != c.want {
			t.Fatalf("build %d got %+v, %v, want uid %d", c.n, got, err, c.want)
		} else {
			hold(t, got)
		}
	}
	for c, err := p.programUID(); err == nil; c, err = p.programUID() {
		hold(t, c)
	}
	if got, err := p.builderUID(0); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("without a free uid: %+v, %v", got, err)
	}
}

func TestABuildTakesTheUIDOfAnIdleSlot(t *testing.T) {
	t.Parallel()
	r := uids{70000, 70003}
	ids := poolWithoutProcesses(t, r)
	for range r.count() - 1 {
		c, err := ids.take(r)
		if err != nil {
			t.Fatal(err)
		}
		hold(t, c)
	}
	last, err := ids.take(r)
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	idle := &slot{dir: filepath.Join(work, "idle"), uid: last, ids: ids, log: ids.log}
	p := &slots{
		claim: &workClaim{dir: work}, how: mechanisms{uids: r}, ids: ids, log: ids.log,
		idle: []*slot{idle}, all: map[*slot]struct{}{idle: {}}, closed: make(chan struct{}),
	}
	close(p.closed) // a slot that has its uid then starts no runner
	b := &Backend{slots: p}
	if _, err := b.takeBuilder(t.Context(), 0, 1); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("got %v, want a slot with a uid", err)
	}
	if len(p.idle)+len(p.all) > 0 {
		t.Errorf("%d slots are idle, %d in all", len(p.idle), len(p.all))
	}
	c, err := ids.take(r)
	if err != nil || c.uid != last.uid {
		t.Fatalf("the uid of the failed slot was not given back: %+v, %v", c, err)
	}
	hold(t, c)
	if _, err := b.takeBuilder(t.Context(), 0, 1); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("without an idle slot: %v", err)
	}
}
