package dockerbackend

import (
	"context"
	"slices"
	"strconv"
	"time"
)

const (
	// reapEvery is how often left-overs are looked for; reapSoon while there are some that end by themselves.
	reapEvery = time.Minute
	reapSoon  = 3 * time.Second
	// unstartedTime is how long a container may be made and not started.
	unstartedTime = 10 * time.Minute
	// strayTime is how long after its time another installation's container stays whose owner may be elsewhere, and
	// strayThings how long after it was made a volume or network of one that has no container.
	strayTime   = time.Hour
	strayThings = 24 * time.Hour
	// orphanTime is what an orphan gets beyond its silence before it is killed.
	orphanTime = 30 * time.Second
)

// reap removes, at the start and then now and then, what lives of this installation's plugin have left, and never what may
// still be attached to. Of another installation it removes only what cannot be of use to anybody any more: see stray.
func (b *Backend) reap(ctx context.Context) {
	r := reaper{b: b, since: map[string]time.Time{}}
	for again := 2; ; again-- {
		orphans, err := r.sweep(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			b.log.Warn("left-over containers were not looked for", "error", err)
		}
		pause := reapEvery
		if orphans > 0 || again > 0 { // what a life that was killed had asked for may be made only now
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
	switch {
	case passed(c, labelDeadline, now):
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
		// A preparation is given files before it starts, and has a deadline.
		late := c.Labels[labelKind] != kindPrepare && passed(c, labelCreated, now.Add(-unstartedTime))
		if late || boot != mine && !alive(boot) {
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

// stray says whether a container of another installation was left half made, or is a preparation of somebody who is gone. A
// single call is an installation of its own, so one that is killed between creating and starting a container has no later
// life, and nobody else would ever remove it: what runs ends by itself, but this does not run. over tells of a boot whether
// it is certainly over; of an owner on another machine only time tells.
func stray(c containerInfo, now time.Time, over func(string) bool) bool {
	boot := c.Labels[labelBoot]
	switch kind := c.Labels[labelKind]; {
	case kind == kindPrepare:
		return over(boot) || passed(c, labelDeadline, now.Add(-strayTime))
	case c.State == "created" && (kind == kindSandbox || kind == kindFill):
		return over(boot) || passed(c, labelCreated, now.Add(-strayTime))
	}
	return false
}

// passed reports whether the time in a label is before now. What is no time never passes.
func passed(c containerInfo, label string, now time.Time) bool {
	n, err := strconv.ParseInt(c.Labels[label], 10, 64)
	return err == nil && now.After(time.Unix(n, 0))
}

// ours splits a list of all installations' containers: those of this one are returned, and strays of others removed.
func (r *reaper) ours(list []containerInfo, now time.Time) []containerInfo {
	return slices.DeleteFunc(list, func(c containerInfo) bool {
		if c.Labels[labelInstance] == r.b.place.Instance && r.b.place.Instance != "" {
			return false
		}
		if stray(c, now, bootOver) {
			r.b.log.Info("a container that nobody can want is removed", "container", short(c.ID), "state", c.State, "kind", c.Labels[labelKind], "instance", c.Labels[labelInstance])
			r.b.reaped.Add(1)
			r.b.cleaner.remove(c.ID)
		}
		return true
	})
}

// sweep looks once, and returns how many have nobody and will end by themselves.
func (r *reaper) sweep(ctx context.Context, now time.Time) (orphans int, err error) {
	b := r.b
	b.expire(now)
	claimed, there := b.claims.all(), map[string]bool{} // before the list: whose container is not in it has none any more
	list, err := b.daemon.containers(ctx, map[string]string{labelInstance: ""})
	if err != nil {
		return 0, err
	}
	r.things(ctx, list, now)
	list = r.ours(list, now)
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
	return orphans, nil
}
