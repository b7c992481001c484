package host

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second
	// steadyTime is the uptime after which a crash counts as the first.
	steadyTime = time.Minute
)

// pauses are the pauses before a plugin is started again. Each is twice as long as the one before, up to maxPause.
type pauses struct {
	steady time.Duration
	last   time.Duration
}

// next returns the next pause. uptime is how long the plugin ran since the last pause; 0 means that it did not start.
func (p *pauses) next(uptime time.Duration) time.Duration {
	if p.last == 0 || uptime >= p.steady {
		p.last = firstPause
	} else {
		p.last = min(2*p.last, maxPause)
	}
	return p.last
}

// rest waits for about the time of pause. It reports whether life outlasts the wait.
func rest(life context.Context, pause time.Duration) bool {
	// Plugins that died together must not start together.
	jittered := pause/2 + rand.N(pause/2) //nolint:gosec // no secret
	timer := time.NewTimer(jittered)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-life.Done():
		return false
	}
}
