package dockerbackend

import (
	"context"
	"strconv"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// reapEvery is how often left-overs are looked for; reapSoon while there are some that end by themselves.
	reapEvery = time.Minute
	reapSoon  = 3 * time.Second
	// unstartedTime is how long a container may be made and not started.
	unstartedTime = 10 * time.Minute
	// orphanTime is what an orphan gets beyond its silence before it is killed.
	orphanTime = 30 * time.Second
)

// reap removes, at the start and then now and then, what lives of this installation's plugin have left: never another
// installation's, and never what may still be attached to.
func (b *Backend) reap(ctx context.Context) {
	r := reaper{b: b, since: map[string]time.Time{}}
	for {
		orphans, err := r.sweep(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			b.log.Warn("left-over containers were not looked for", "error", err)
		}
		pause := reapEvery
		if orphans > 0 {
			pause = reapSoon
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// reaper remembers which containers have nobody. Only its goroutine uses it.
type reaper struct {
	b     *Backend
	since map[string]time.Time
}

// verdict is what becomes of a container.
type verdict int

const (
	verdictKeep verdict = iota
	verdictRemove
	// verdictOrphan: nobody has it, and it may still be attached to.
	verdictOrphan
)

// judge says what becomes of c. It is pure but for the clock of since: alive tells of a boot whether it is, held of a
// container whether somebody who is alive has it.
func judge(c containerInfo, mine string, now time.Time, alive, held func(string) bool) verdict {
	boot := c.Labels[labelBoot]
	passed := func(label string, more time.Duration) bool {
		n, err := strconv.ParseInt(c.Labels[label], 10, 64)
		return err == nil && now.After(time.Unix(n, 0).Add(more))
	}
	switch {
	case passed(labelDeadline, 0):
		return verdictRemove
	case c.State == "exited" || c.State == "dead":
		if boot == mine && c.Labels[labelKind] != kindSandbox {
			return verdictKeep // a preparation: whoever waits for it wants its end
		}
		if c.Labels[labelKind] != kindSandbox && alive(boot) {
			return verdictKeep
		}
		return verdictRemove
	case c.State == "created":
		if passed(labelCreated, unstartedTime) || boot != mine && !alive(boot) {
			return verdictRemove
		}
		return verdictKeep
	case boot == mine || alive(boot) || held(c.ID):
		return verdictKeep
	case c.Labels[labelKind] != kindSandbox:
		return verdictRemove // nobody can go on with a preparation
	}
	return verdictOrphan
}

// sweep looks once, and returns how many have nobody and will end by themselves.
func (r *reaper) sweep(ctx context.Context, now time.Time) (orphans int, err error) {
	b := r.b
	claimed, there := b.claims.all(), map[string]bool{} // before the list: whose container is not in it has none any more
	list, err := b.daemon.containers(ctx, map[string]string{labelInstance: b.place.Instance})
	if err != nil {
		return 0, err
	}
	used, overdue := map[string]bool{}, map[string]bool{}
	for _, c := range claimed {
		used[c.Container] = true
		overdue[c.Container] = now.After(c.Deadline)
	}
	held := func(container string) bool {
		for _, c := range claimed {
			if c.Container == container && (c.Boot == b.place.Boot || bootAlive(c.Boot)) {
				return true
			}
		}
		return false
	}
	for _, c := range list {
		there[c.ID] = true
		v := judge(c, b.place.Boot, now, bootAlive, held)
		if overdue[c.ID] {
			v = verdictRemove
		}
		if v == verdictOrphan && b.claims.dir != "" && !used[c.ID] {
			v = verdictRemove // it only waited for work: what may be attached to again is claimed before it is used
		}
		if v != verdictOrphan {
			delete(r.since, c.ID)
		} else {
			if _, seen := r.since[c.ID]; !seen {
				r.since[c.ID] = now
			}
			// The runner ends by itself; one that cannot (paused, stopped) is killed.
			if now.Sub(r.since[c.ID]) > b.config.silence()+orphanTime {
				v = verdictRemove
			}
		}
		switch v {
		case verdictOrphan:
			orphans++
		case verdictRemove:
			b.log.Info("a left-over container is removed", "container", short(c.ID), "state", c.State, "kind", c.Labels[labelKind])
			b.reaped.Add(1)
			b.cleaner.remove(c.ID)
			orphans++ // look again soon whether it is gone
		case verdictKeep:
		}
	}
	for id := range r.since {
		if !there[id] {
			delete(r.since, id)
		}
	}
	for id, c := range claimed {
		if !there[c.Container] {
			b.claims.drop(id)
		}
	}
	return orphans, r.volumes(ctx)
}

// volumes removes those of this installation that have another runner: an older version's.
func (r *reaper) volumes(ctx context.Context) error {
	names, err := r.b.daemon.volumes(ctx, map[string]string{labelInstance: r.b.place.Instance})
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == r.b.place.Volume {
			continue
		}
		if err := r.b.daemon.removeVolume(ctx, name); err != nil && executor.CodeOf(err) != executor.Conflict && executor.CodeOf(err) != executor.NotFound {
			return err
		}
	}
	return nil
}
