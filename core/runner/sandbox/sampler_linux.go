package sandbox

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// maxSamples bounds Result.MemorySamples. When it is reached, every second sample is dropped and the interval doubles.
const maxSamples = 10_000

// The pauses between two looks at a program whose peak memory its control group may hide.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 200 * time.Millisecond
)

// Sampler looks at a program's memory, for Result.MemorySamples, and for the peak where a control group hides it.
type Sampler struct {
	group    *Group
	pid      int
	started  time.Time
	Interval time.Duration // of the samples; 0 = none wanted
	look     time.Duration
	Samples  []executor.MemorySample
	peak     int64
}

func NewSampler(g *Group, pid int, started time.Time, interval time.Duration) *Sampler {
	if interval > 0 {
		interval = max(interval, 10*time.Millisecond)
	}
	return &Sampler{group: g, pid: pid, started: started, Interval: interval, look: firstLook}
}

// Next returns how long to wait until the next Take. 0 is for ever.
func (s *Sampler) Next() time.Duration {
	if s.Interval > 0 {
		return s.Interval
	}
	if s.group.Memory == "" || s.group.watched == nil || !s.group.watched.hides() {
		return 0 // the group counts the peak, or the kernel tells it at the end of the process (Exit.MaxRSS)
	}
	s.look = min(2*s.look, lastLook)
	return s.look
}

func (s *Sampler) Take() {
	var now int64
	if s.group.Memory != "" {
		now = number(s.group.Memory, memoryFilesOf(s.group.v2).now)
		s.peak = max(s.peak, now)
	} else {
		v := statusBytes(s.pid, "VmHWM", "VmRSS")
		s.peak = max(s.peak, v[0])
		now = v[1]
	}
	if s.Interval == 0 || now == 0 {
		return
	}
	s.Samples = append(s.Samples, executor.MemorySample{Offset: time.Since(s.started), Bytes: now})
	if len(s.Samples) >= maxSamples {
		for i := range len(s.Samples) / 2 {
			s.Samples[i] = s.Samples[2*i]
		}
		s.Samples = s.Samples[:len(s.Samples)/2]
		s.Interval *= 2
	}
}

// Result returns the peak in bytes, and 0 if unknown. Without a control group it is that of the last Take.
func (s *Sampler) Result() int64 {
	if s.group.Memory != "" {
		return max(s.group.MemoryPeak(), s.peak)
	}
	return s.peak
}
