package host

import (
	"slices"
	"testing"
	"time"
)

func TestPausesGrowToTheirBound(t *testing.T) {
	t.Parallel()
	p := pauses{steady: steadyTime}
	var got []time.Duration
	for _, uptime := range []time.Duration{0, 0, time.Second, 0, 0, 0, 0, 0, 0, 0, steadyTime - 1, steadyTime, 0} {
		got = append(got, p.next(uptime))
	}
	want := []time.Duration{firstPause}
	for len(want) < 9 {
		want = append(want, 2*want[len(want)-1])
	}
	if want = append(want, maxPause, maxPause, firstPause, 2*firstPause); !slices.Equal(got, want) {
		t.Errorf("paused %v, want %v", got, want)
	}
}
