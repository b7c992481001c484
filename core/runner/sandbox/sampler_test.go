//go:build linux

package sandbox

import (
	"os"
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
