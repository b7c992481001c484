package dockerbackend

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// sweepObjects removes volumes and networks that nobody uses any more. Of this installation it removes volumes with another
// version of the runner. Of others it removes those that leftoverObject names. A mistake loses no work: a daemon does not
// remove what is in use, and a backend creates a missing volume or network again.
func (r *reaper) sweepObjects(ctx context.Context, containers []containerInfo, now time.Time) {
	d, mine := r.b.daemon, r.b.place
	volumes, err := d.volumes(ctx, map[string]string{labelInstance: ""})
	if err != nil {
		r.warn(ctx, "volumes", err)
	}
	for _, v := range volumes {
		old := mine.Instance != "" && v.Labels[labelInstance] == mine.Instance
		if v.Name == mine.Volume || !old && !leftoverObject(v.Labels, v.Created, containers, now, bootOver) {
			continue
		}
		if err := d.removeVolume(ctx, v.Name); err == nil {
			r.b.log.Info("leftover volume removed", "volume", v.Name, "instance", v.Labels[labelInstance])
		} else if code := executor.CodeOf(err); code != executor.Conflict && code != executor.NotFound {
			r.warn(ctx, "volume "+v.Name, err)
		}
	}
	list, err := d.networks(ctx, map[string]string{labelInstance: ""})
	if err != nil {
		r.warn(ctx, "networks", err)
	}
	for _, found := range list {
		instance := found.Labels[labelInstance]
		n := newNetworks(d, "", instance, r.b.log)
		if instance == mine.Instance || found.Name != n.own || !leftoverObject(found.Labels, found.Created, containers, now, bootOver) {
			continue
		}
		// The network and its rules are removed together, even if ctx ends.
		within, cancel := cleanUp(ctx)
		if err := n.remove(within); err != nil {
			r.warn(ctx, "network "+found.Name, err)
		}
		cancel()
	}
}

func (r *reaper) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		r.b.log.Warn("remove leftovers", "what", what, "error", err)
	}
}

// leftoverObject reports whether a volume or a network of another installation is left over. Without an installation's label it
// is not ours, and never left over. If the process of its boot has certainly ended, it is left over unless a container of
// another life belongs to the same installation. If its owner may be elsewhere, it is left over after leftoverObjectAge, if the
// installation has no container at all. created may be zero, which means unknown.
func leftoverObject(labels map[string]string, created time.Time, containers []containerInfo, now time.Time, over func(boot string) bool) bool {
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
	return ended || !created.IsZero() && now.Sub(created) > leftoverObjectAge
}
