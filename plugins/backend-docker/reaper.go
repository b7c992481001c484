package dockerbackend

import (
	"context"
	"slices"
	"strconv"
	"time"
)

const (
	// reapInterval is the time between two sweeps. It is reapSoonInterval while orphans exist that will end by themselves.
	reapInterval     = time.Minute
	reapSoonInterval = 3 * time.Second
	// unstartedTime is how long a container may stay created without a start.
	unstartedTime = 10 * time.Minute
	// leftoverAge is how long a container of another installation is kept after its deadline or creation, if its owner may be
	// on another machine. leftoverObjectAge is how long after its creation a volume or network of an installation without
	// containers is kept.
	leftoverAge       = time.Hour
	leftoverObjectAge = 24 * time.Hour
	// orphanTime is how long beyond its silence an orphan may run before it is killed.
	orphanTime = 30 * time.Second
)

// reap removes what earlier lives of this installation's plugin have left, at the start and then regularly. It never removes a
// container that may still be attached to. Of another installation it removes only leftovers that nobody can use any more: see
// leftover and leftoverObject.
func (b *Backend) reap(ctx context.Context) {
	r := reaper{b: b, since: map[string]time.Time{}}
	for again := 2; ; again-- {
		orphans, err := r.sweep(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			b.log.Warn("look for leftover containers", "error", err)
		}
		pause := reapInterval
		if orphans > 0 || again > 0 { // the daemon may finish a request of a killed life only now
			pause = reapSoonInterval
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

// reaper remembers since when a container is an orphan. Only its goroutine uses it.
type reaper struct {
	b     *Backend
	since map[string]time.Time
}

// verdict is what the reaper does with a container.
type verdict int

const (
	verdictKeep verdict = iota
	verdictRemove
	// verdictOrphan is for a container without an owner that may still be attached to.
	verdictOrphan
)

// judge returns the verdict on c. mine is this life's boot. alive reports whether the process of a boot runs. held reports
// whether a life that runs has claimed a container.
func judge(c containerInfo, mine string, now time.Time, alive, held func(string) bool) verdict {
	boot := c.Labels[labelBoot]
	switch {
	case passed(c, labelDeadline, now):
		return verdictRemove
	case c.State == "exited" || c.State == "dead":
		if boot == mine && c.Labels[labelKind] != kindSandbox {
			return verdictKeep // a preparation: this life waits for its end
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
		return verdictRemove // a preparation cannot be resumed
	}
	return verdictOrphan
}

// leftover reports whether a container of another installation was never started, or is a preparation whose owner is gone. Each
// embedded call is an installation of its own. If it is killed between creating and starting a container, no later life of it
// can remove that container. A container that runs ends by itself. over reports whether the process of a boot has certainly
// ended. For an owner on another machine only the age of the container counts.
func leftover(c containerInfo, now time.Time, over func(string) bool) bool {
	boot := c.Labels[labelBoot]
	switch kind := c.Labels[labelKind]; {
	case kind == kindPrepare:
		return over(boot) || passed(c, labelDeadline, now.Add(-leftoverAge))
	case c.State == "created" && (kind == kindSandbox || kind == kindFill):
		return over(boot) || passed(c, labelCreated, now.Add(-leftoverAge))
	}
	return false
}

// passed reports whether the time in a label is before now. A label that is not a time never passes.
func passed(c containerInfo, label string, now time.Time) bool {
	n, err := strconv.ParseInt(c.Labels[label], 10, 64)
	return err == nil && now.After(time.Unix(n, 0))
}

// own returns the containers of this installation from a list of all, and removes leftovers of others.
func (r *reaper) own(list []containerInfo, now time.Time) []containerInfo {
	return slices.DeleteFunc(list, func(c containerInfo) bool {
		if c.Labels[labelInstance] == r.b.place.Instance && r.b.place.Instance != "" {
			return false
		}
		if leftover(c, now, bootOver) {
			r.b.log.Info("removing a leftover container of another installation", "container", short(c.ID), "state", c.State, "kind", c.Labels[labelKind], "instance", c.Labels[labelInstance])
			r.b.reaped.Add(1)
			r.b.cleaner.remove(c.ID)
		}
		return true
	})
}

// sweep judges all containers once. It returns the number of orphans and of containers whose removal has begun.
func (r *reaper) sweep(ctx context.Context, now time.Time) (orphans int, err error) {
	b := r.b
	b.expire(now)
	claimed, there := b.claims.all(), map[string]bool{} // read before the list: a claim whose container is not in the list is out of date
	list, err := b.daemon.containers(ctx, map[string]string{labelInstance: ""})
	if err != nil {
		return 0, err
	}
	r.sweepObjects(ctx, list, now)
	list = r.own(list, now)
	claims := map[string]claim{} // by container
	for _, c := range claimed {
		claims[c.Container] = c
	}
	held := func(container string) bool {
		c, ok := claims[container]
		return ok && (c.Boot == b.place.Boot || bootAlive(c.Boot))
	}
	for _, c := range list {
		there[c.ID] = true
		v := judge(c, b.place.Boot, now, bootAlive, held)
		claim, used := claims[c.ID]
		if used && now.After(claim.Deadline) {
			v = verdictRemove
		}
		if v == verdictOrphan && b.claims.dir != "" && !used {
			v = verdictRemove // it only waited for work: containers are claimed before they are used
		}
		if v != verdictOrphan {
			delete(r.since, c.ID)
		} else {
			if _, seen := r.since[c.ID]; !seen {
				r.since[c.ID] = now
			}
			// The runner ends by itself. A paused or stopped one cannot, and is killed.
			if now.Sub(r.since[c.ID]) > b.config.silence()+orphanTime {
				v = verdictRemove
			}
		}
		switch v {
		case verdictOrphan:
			orphans++
		case verdictRemove:
			b.log.Info("removing a leftover container", "container", short(c.ID), "state", c.State, "kind", c.Labels[labelKind])
			b.reaped.Add(1)
			b.cleaner.remove(c.ID)
			orphans++ // the next sweep comes soon, and checks that it is gone
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
