package cmd

import (
	"context"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestATimeThatNobodyKnowsIsNotListed(t *testing.T) {
	t.Parallel()
	e := executor.Execution{StartedAt: time.Now(), Result: &executor.Result{Status: executor.StatusLost}}
	if w := wall(e); w != "" {
		t.Errorf("%q", w)
	}
	e.Result.Wall = 1500 * time.Millisecond
	if w := wall(e); w != "1.50" {
		t.Errorf("%q", w)
	}
}

func TestTheWorkOfASessionIsListed(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]executor.Session{"idle": {}, "runs": {Running: "exe_1"}, "runs, 2 wait": {Running: "exe_1", Waiting: 2}} {
		if got := work(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// pages is a Service whose pages have one Execution each.
type pages struct {
	executor.Executions
	ids []string
}

func (p pages) List(_ context.Context, f executor.Filter) ([]executor.Execution, error) {
	for _, id := range p.ids {
		if f.After == "" || id < f.After {
			return []executor.Execution{{ID: id}}, nil
		}
	}
	return nil, nil
}

func TestAPageShorterThanAskedForMayHaveANext(t *testing.T) {
	t.Parallel()
	svc := pages{ids: []string{"exe_2", "exe_1"}}
	f := executor.Filter{Limit: 10}
	first, _ := svc.List(t.Context(), f)
	if next, err := nextPage(t.Context(), svc, f, first); err != nil || next != "exe_2" {
		t.Errorf("after the first page %v, error %v", next, err)
	}
	f.After = "exe_2"
	second, _ := svc.List(t.Context(), f)
	for _, list := range [][]executor.Execution{second, nil} {
		if next, err := nextPage(t.Context(), svc, f, list); err != nil || next != "" {
			t.Errorf("after the last page %v, error %v", next, err)
		}
	}
}
