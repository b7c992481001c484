package workers

import (
	"errors"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// idle returns a worker with four slots that can be used; change may change it.
func idle(id string, change func(*member)) *member {
	m := &member{registration: registration{ID: id}, listed: true, info: executor.Info{Healthy: true, Capacity: 4}, sessions: map[string]bool{}}
	if change != nil {
		change(m)
	}
	return m
}

func TestTheWorkerThatIsNextIsTheLeastLoadedThatCanBeUsed(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		order func(a, b *member) int
		busy  func(*member) // of the worker a; b is the same without it, and has the later ID
		want  string
	}{
		"the same load":              {byLoad, nil, "a"},
		"our executions":             {byLoad, func(m *member) { m.running = 1 }, "b"},
		"those of other servers":     {byLoad, func(m *member) { m.others = 1 }, "b"},
		"all slots are others'":      {byLoad, func(m *member) { m.others = 4 }, "b"},
		"it was used more":           {byLoad, func(m *member) { m.used = 1 }, "b"},
		"it has refused one":         {byLoad, func(m *member) { m.blocked = true }, "b"},
		"it is not healthy":          {byLoad, func(m *member) { m.info.Healthy = false }, "b"},
		"it does not answer":         {byLoad, func(m *member) { m.err = away }, "b"},
		"it is not registered":       {byLoad, func(m *member) { m.listed = false }, "b"},
		"sessions do not count":      {byLoad, func(m *member) { m.sessions["s"] = true }, "a"},
		"sessions count":             {bySessions, func(m *member) { m.sessions["s"] = true }, "b"},
		"the load counts after them": {bySessions, func(m *member) { m.running = 1 }, "b"},
	} {
		p := &Pool{members: map[string]*member{"a": idle("a", c.busy), "b": idle("b", nil)}}
		if got := p.bestLocked(func(m *member) bool { return m.running+m.others < m.info.Capacity }, c.order); got == nil || got.ID != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	large := idle("a", func(m *member) { m.info.Capacity, m.sessions["s"], m.sessions["t"] = 8, true, true })
	small := idle("b", func(m *member) { m.info.Capacity, m.sessions["s"] = 1, true })
	if bySessions(large, small) >= 0 {
		t.Error("a session on a worker with one slot counts as little as one on a worker with eight")
	}
	for _, busy := range []func(*member){func(m *member) { m.running, m.others = 3, 1 }, func(m *member) { m.blocked = true }, func(m *member) { m.err = away }} {
		if idle("a", busy).free() {
			t.Errorf("%+v is free", idle("a", busy))
		}
	}
}

func TestWhyThereIsNoSlotNamesTheWorkers(t *testing.T) {
	t.Parallel()
	p := &Pool{config: Default(), members: map[string]*member{
		"b": idle("b", func(m *member) { m.info.Healthy = false }),
		"a": idle("a", func(m *member) { m.err = errors.New("away") }),
	}}
	const reasons = "no worker can be used: a at : away; b at : it is not healthy"
	for range 10 { // the workers are in a map
		if got := p.aloneLocked(); got != reasons {
			t.Errorf("%q, want %q", got, reasons)
		}
	}
	for only, want := range map[string]executor.Code{"": executor.Exhausted, "b": executor.Exhausted, "a": executor.Unavailable, "c": executor.NotFound} {
		if err := p.fullLocked(only); executor.CodeOf(err) != want {
			t.Errorf("only %q: %v, want %s", only, err, want)
		}
	}
	if got := idle("a", func(m *member) { m.running, m.others = 1, 2 }).describe(); !strings.Contains(got, "3 of 4 slots taken") {
		t.Errorf("%q", got)
	}
}
