package dockerbackend

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// things removes the volumes and networks that nobody uses any more: of this installation those volumes that have another
// runner, an older version's; of others what strayThing says. Nobody's work is lost by a mistake: a daemon does not remove
// what is in use, and whoever finds a volume or a network gone makes it again.
func (r *reaper) things(ctx context.Context, containers []containerInfo, now time.Time) {
	d, mine := r.b.daemon, r.b.place
	volumes, err := d.volumes(ctx, map[string]string{labelInstance: ""})
	if err != nil {
		r.missed(ctx, "volumes", err)
	}
	for _, v := range volumes {
		old := mine.Instance != "" && v.Labels[labelInstance] == mine.Instance
		if v.Name == mine.Volume || !old && !strayThing(v.Labels, v.Created, containers, now, bootOver) {
			continue
		}
		if err := d.removeVolume(ctx, v.Name); err == nil {
			r.b.log.Info("a volume that nobody uses is removed", "volume", v.Name, "instance", v.Labels[labelInstance])
		} else if code := executor.CodeOf(err); code != executor.Conflict && code != executor.NotFound {
			r.missed(ctx, "volume "+v.Name, err)
		}
	}
	list, err := d.networks(ctx, map[string]string{labelInstance: ""})
	if err != nil {
		r.missed(ctx, "networks", err)
	}
	for _, found := range list {
		instance := found.Labels[labelInstance]
		n := newNetworks(d, "", instance, r.b.log)
		if instance == mine.Instance || found.Name != n.own || !strayThing(found.Labels, found.Created, containers, now, bootOver) {
			continue
		}
		// Not cut off between the network and its rules.
		within, cancel := cleanUp(ctx)
		if err := n.remove(within); err != nil {
			r.missed(ctx, "network "+found.Name, err)
		}
		cancel()
	}
}

func (r *reaper) missed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		r.b.log.Warn("left-overs were not removed", "what", what, "error", err)
	}
}

// strayThing reports whether a volume or a network of another installation is left over. A thing without an installation's label
// is not ours and never left over. Of an installation whose life is certainly over it is left over if no container of another
// life uses the installation. Of an owner who may be elsewhere it is left over after strayThings, if the installation has no
// container at all. created may be zero: unknown.
func strayThing(labels map[string]string, created time.Time, containers []containerInfo, now time.Time, over func(boot string) bool) bool {
	instance := labels[labelInstance]
	if instance == "" {
		return false
	}
	ended := over(labels[labelBoot])
	for _, c := range containers {
		if c.Labels[labelInstance] == instance && (!ended || !over(c.Labels[labelBoot])) {
			return false
		}
	}
	return ended || !created.IsZero() && now.Sub(created) > strayThings
}
