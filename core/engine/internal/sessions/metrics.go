package sessions

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	opened, lost     *prometheus.CounterVec
	expired, evicted prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		opened: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "python_executor_sessions_opened_total", Help: "Sessions that were opened.",
		}, []string{"backend"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "python_executor_sessions_lost_total", Help: "Sessions whose interpreter died or whose sandbox went away.",
		}, []string{"backend"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "python_executor_sessions_expired_total", Help: "Sessions closed because they were idle, or lived, for too long.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "python_executor_sessions_evicted_total", Help: "Idle sessions closed to make room for another.",
		}),
	}
}

// Collectors returns the metrics of r.
func (r *Registry) Collectors() []prometheus.Collector {
	m := r.metrics
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "python_executor_sessions", Help: "Sessions whose sandbox is there, active or lost.",
	}, func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return float64(len(r.open))
	})
	return []prometheus.Collector{m.opened, m.lost, m.expired, m.evicted, open}
}
