package engine

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/store/memory"
)

// gathered fails unless the metrics of these names are as said, each a line "name value".
func gathered(t *testing.T, registry *prometheus.Registry, want ...string) {
	t.Helper()
	families := must(registry.Gather())
	for _, line := range want {
		name, value, _ := strings.Cut(line, " ")
		found := 0
		for _, f := range families {
			if f.GetName() != "python_executor_"+name {
				continue
			}
			found++
			m := f.GetMetric()[0]
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); len(f.GetMetric()) != 1 || got != must(strconv.ParseFloat(value, 64)) {
				t.Errorf("%s is %v, want %s", name, f.GetMetric(), value)
			}
		}
		if found != 1 && value != "0" { // a counter by label is not there before its first use
			t.Errorf("there is no %s", name)
		}
	}
}

func TestMetricsTellOfTheQueueAndOfRefusals(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		r := newRig(t, setup{options: Options{Registerer: registry, Engine: config.Engine{MaxConcurrent: 2, MaxQueued: 1}}})
		gathered(t, registry, "slots 2", "slots_used 0", "queue_limit 1", "queue_length 0", "refused_total 0")
		first, second := r.submit(t.Context(), "hang"), r.submit(t.Context(), "hang")
		waits := r.submit(t.Context(), "exit 0")
		synctest.Wait()
		gathered(t, registry, "slots_used 2", "queue_length 1", "running 2", "refused_total 0")
		_, err := r.Submit(t.Context(), executor.Spec{Code: "exit 0"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		wantCode(t, r.Admit(t.Context()), executor.Exhausted)
		gathered(t, registry, "refused_total 2")
		for _, x := range []executor.Execution{first, second} {
			_ = must(r.Cancel(t.Context(), x.ID))
		}
		r.result(waits.ID)
		synctest.Wait()
		gathered(t, registry, "slots_used 0", "queue_length 0", "running 0", "refused_total 2")
		if err := r.closeNow(); err != nil {
			t.Fatal(err)
		}
		if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
			t.Errorf("after Close there are %d metrics, %v", n, err)
		}
	})
}

func TestAnEngineThatCannotRegisterItsMetricsLeavesNone(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "python_executor_slots", Help: "Another one."}))
	o := Options{
		Store: memorystore.New(memorystore.Options{}), Blobs: openBlobs(t), Registerer: registry,
		Backends: map[string]executor.Backend{"fake": fake.New(fake.Options{})},
	}
	if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "register metrics: ") {
		t.Errorf("error %v", err)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 1 {
		t.Errorf("there are %d metrics, %v", n, err)
	}
}

// measured is a backend whose metrics have names that are the same to Prometheus.
type measured struct{ *fake.Backend }

func (b measured) Info(ctx context.Context) (executor.Info, error) {
	info, err := b.Backend.Info(ctx)
	info.Metrics = map[string]float64{"warm-cells": 3, "warm.cells": 3, "up": 5}
	return info, err
}

func TestABackendsMetricsAreThereOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		b := measured{fake.New(fake.Options{})}
		newRig(t, setup{backend: b, options: Options{Registerer: registry}})
		gathered(t, registry, "backend_up 1")
		b.SetHealth("disk full")
		time.Sleep(2 * infoStale)
		_ = must(registry.Gather()) // it asks anew
		synctest.Wait()
		gathered(t, registry, "backend_up 0")
		for _, f := range must(registry.Gather()) {
			if f.GetName() == "python_executor_backend_warm_cells" && f.GetMetric()[0].GetUntyped().GetValue() == 3 {
				return
			}
		}
		t.Error("there is no backend_warm_cells 3")
	})
}

func TestMetricsTellOfSessions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		r := newRig(t, withSessions(func(s *setup) { s.options.Registerer = registry },
			rules(func(c *config.Sessions) { c.Max, c.EvictIdleSeconds = 1, 60 })))
		ctx := as("alice")
		_ = r.open(ctx)
		_, err := r.OpenSession(ctx, executor.Session{})
		wantCode(t, err, executor.Exhausted)
		gathered(t, registry, "sessions 1", "sessions_opened_total 1", "sessions_evicted_total 0", "refused_total 1")
		time.Sleep(2 * time.Minute)
		_ = r.open(ctx) // it takes the place of the other one
		gathered(t, registry, "sessions 1", "sessions_opened_total 2", "sessions_evicted_total 1", "sessions_expired_total 0")
		time.Sleep(time.Hour)
		synctest.Wait()
		gathered(t, registry, "sessions 0", "sessions_opened_total 2", "sessions_evicted_total 1", "sessions_expired_total 1", "sessions_lost_total 0")
	})
}
