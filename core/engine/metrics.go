package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/python-executor/python-executor/core/executor"
)

// metrics are the Engine's metrics and those that its backends report. No label has a value that a request chooses freely, so the number of
// series is bounded.
type metrics struct {
	registry prometheus.Registerer
	all      []prometheus.Collector
	once     sync.Once

	executions *prometheus.CounterVec
	phases     *prometheus.HistogramVec
	active     *prometheus.GaugeVec
	refused    prometheus.Counter
}

func newMetrics(e *Engine, registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registry: registry,
		executions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "python_executor_executions_total", Help: "Executions that have ended.",
		}, []string{"status", "backend"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "python_executor_phase_seconds", Help: "Time that an execution spent in a phase.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 11),
		}, []string{"phase", "backend"}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "python_executor_running", Help: "Executions that are with their backend now.",
		}, []string{"backend"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "python_executor_refused_total", Help: "Submits that found no place.",
		}),
	}
	for _, name := range e.now().names {
		m.active.WithLabelValues(name).Set(0)
	}
	gauge := func(name, help string, value func(*queue) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			return float64(value(e.queue))
		})
	}
	m.all = append(e.sessions.Collectors(),
		m.executions, m.phases, m.active, m.refused,
		gauge("python_executor_queue_length", "Executions that wait.", func(q *queue) int { return q.queued }),
		gauge("python_executor_queue_limit", "How many may wait.", func(q *queue) int { return q.maxQueued }),
		gauge("python_executor_slots", "How many executions may run at once.", func(q *queue) int { return q.slots }),
		gauge("python_executor_slots_used", "Slots in use.", func(q *queue) int { return q.running }),
		&backendCollector{e},
	)
	if registry == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := registry.Register(c); err != nil {
			for _, done := range m.all[:i] {
				registry.Unregister(done)
			}
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) unregister() {
	if m.registry == nil {
		return
	}
	m.once.Do(func() {
		for _, c := range m.all {
			m.registry.Unregister(c)
		}
	})
}

func (m *metrics) began(backend string) { m.active.WithLabelValues(backend).Inc() }
func (m *metrics) ended(backend string) { m.active.WithLabelValues(backend).Dec() }

func (m *metrics) finished(backend string, r executor.Result) {
	m.executions.WithLabelValues(string(r.Status), backend).Inc()
	for phase, d := range map[executor.Phase]time.Duration{
		executor.PhaseQueue: r.Phases.Queue, executor.PhasePrepare: r.Phases.Prepare,
		executor.PhaseRun: r.Phases.Run, executor.PhaseCollect: r.Phases.Collect,
	} {
		if d > 0 || phase == executor.PhaseQueue {
			m.phases.WithLabelValues(string(phase), backend).Observe(d.Seconds())
		}
	}
}

// backendCollector shows Info.Metrics of every backend as python_executor_backend_<name>. It is an unchecked collector, because the names
// are known only when a backend is asked. A registry cannot unregister such a collector, so it returns nothing when its Engine stops.
type backendCollector struct{ engine *Engine }

// Describe implements prometheus.Collector.
func (c *backendCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *backendCollector) Collect(out chan<- prometheus.Metric) {
	select {
	case <-c.engine.stopping:
		return
	default:
	}
	ctx, cancel := context.WithTimeoutCause(c.engine.base, infoTimeout, errors.New("a backend does not answer"))
	defer cancel()
	up := prometheus.NewDesc("python_executor_backend_up", "Whether the backend is expected to work.", []string{"backend"}, nil)
	now := c.engine.now()
	for _, name := range now.names {
		info, err := c.engine.lookup(ctx, now.backends[name])
		healthy := 0.0
		if err == nil && info.Healthy {
			healthy = 1
		}
		out <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, healthy, name)
		seen := map[string]bool{"up": true}
		for metric, value := range info.Metrics {
			metric = metricName(metric)
			if seen[metric] {
				continue
			}
			seen[metric] = true
			desc := prometheus.NewDesc("python_executor_backend_"+metric, "As the backend reports it.", []string{"backend"}, nil)
			out <- prometheus.MustNewConstMetric(desc, prometheus.UntypedValue, value, name)
		}
	}
}

// metricName replaces the characters of name that Prometheus does not allow.
func metricName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
