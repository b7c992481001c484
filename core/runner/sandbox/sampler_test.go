//go:build linux

package sandbox

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestManySamplesAreThinnedOut(t *testing.T) {
	t.Parallel()
	s := NewSampler(&Group{}, os.Getpid(), time.Now(), 10*time.Millisecond)
	for range maxSamples + maxSamples/2 {
		s.Take()
	}
	if len(s.Samples) > maxSamples || s.Interval != 40*time.Millisecond {
		t.Errorf("%d samples every %s", len(s.Samples), s.Interval)
	}
}

func TestASampleOfTwoIsKept(t *testing.T) {
	t.Parallel()
	s := NewSampler(&Group{}, os.Getpid(), time.Now(), time.Millisecond)
	if s.Interval != 10*time.Millisecond {
		t.Errorf("the shortest interval is %s", s.Interval)
	}
	for range maxSamples - 1 {
		s.Take()
	}
	before := slices.Clone(s.Samples)
	if s.Take(); len(s.Samples) != maxSamples/2 || s.Samples[1] != before[2] || s.Samples[maxSamples/2-1] != before[maxSamples-2] {
		t.Errorf("%d samples, and the first are %v of %v", len(s.Samples), s.Samples[:2], before[:3])
	}
}

func TestAProgramIsLookedAtLessAndLessOften(t *testing.T) {
	t.Parallel()
	hidden := &Group{Memory: "/sys/fs/cgroup/memory", watched: &Watched{peakBefore: 1 << 30}}
	s := NewSampler(hidden, os.Getpid(), time.Now(), 0)
	for _, want := range []time.Duration{4, 8, 16, 32, 64, 128, 200, 200} {
		if got := s.Next(); got != want*time.Millisecond {
			t.Errorf("the next look is in %s, want %d ms", got, want)
		}
	}
	for what, g := range map[string]*Group{
		"a control group counts it": {Memory: "/sys/fs/cgroup/memory"}, "the kernel tells it at the end": {},
		"the container's group counts it": {Memory: "/sys/fs/cgroup/memory", watched: &Watched{}},
	} {
		if got := NewSampler(g, os.Getpid(), time.Now(), 0).Next(); got != 0 {
			t.Errorf("a program is looked at in %s, although %s", got, what)
		}
	}
	s = NewSampler(&Group{}, os.Getpid(), time.Now(), 0)
	if s.Take(); len(s.Samples) > 0 || s.Result() == 0 {
		t.Errorf("%d samples, a peak of %d bytes", len(s.Samples), s.Result())
	}
}

func TestAProcessThatHasEndedGivesNoSample(t *testing.T) {
	t.Parallel()
	s := NewSampler(&Group{}, 1<<30, time.Now(), time.Second)
	if s.Take(); len(s.Samples) > 0 {
		t.Errorf("the samples are %v", s.Samples)
	}
}
