package runner

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// maxSamples bounds Result.MemorySamples: when it is reached every second one goes and the interval doubles.
const maxSamples = 10_000

// The pauses between two looks at a program whose peak memory no control group knows.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 200 * time.Millisecond
)

// sampler looks at a program's memory: for Result.MemorySamples, and for the peak where no control group counts it.
type sampler struct {
	group    *group
	pid      int
	started  time.Time
	interval time.Duration // of the samples; 0 = none wanted
	look     time.Duration
	samples  []executor.MemorySample
	peak     int64
}

func newSampler(g *group, pid int, started time.Time, interval time.Duration) *sampler {
	if interval > 0 {
		interval = max(interval, 10*time.Millisecond)
	}
	return &sampler{group: g, pid: pid, started: started, interval: interval, look: firstLook}
}

// next is how long to wait until the next take; 0 = for ever.
func (s *sampler) next() time.Duration {
	if s.interval > 0 {
		return s.interval
	}
	if s.group.memory != "" && (s.group.watched == nil || !s.group.watched.hides()) {
		return 0
	}
	s.look = min(2*s.look, lastLook)
	return s.look
}

func (s *sampler) take() {
	var now int64
	if s.group.memory != "" {
		now = s.group.memoryNow()
		s.peak = max(s.peak, now)
	} else {
		v := statusBytes(s.pid, "VmHWM", "VmRSS")
		s.peak = max(s.peak, v[0])
		now = v[1]
	}
	if s.interval == 0 || now == 0 {
		return
	}
	s.samples = append(s.samples, executor.MemorySample{Offset: time.Since(s.started), Bytes: now})
	if len(s.samples) >= maxSamples {
		for i := range len(s.samples) / 2 {
			s.samples[i] = s.samples[2*i]
		}
		s.samples = s.samples[:len(s.samples)/2]
		s.interval *= 2
	}
}

// result is the peak in bytes; 0 = unknown.
func (s *sampler) result() int64 {
	if s.group.memory != "" {
		return max(s.group.memoryPeak(), s.peak)
	}
	return s.peak
}
