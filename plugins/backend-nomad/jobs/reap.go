package jobs

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/api"
)

// reapInterval is the time between two sweeps, at most. A short Config.PurgeAfterSeconds makes it shorter.
const reapInterval = 30 * time.Second

// reap purges the ended jobs of this backend, those of earlier processes too, until ctx ends.
func (b *Backend) reap(ctx context.Context) {
	again := time.NewTicker(min(reapInterval, max(b.config.purgeAfter(), time.Second)))
	defer again.Stop()
	ended := map[string]time.Time{} // when a job ended
	for {
		if err := b.sweep(ctx, time.Now(), ended); err != nil && ctx.Err() == nil {
			b.log.Debug("look for ended jobs", "error", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweep purges the jobs that ended longer than Config.PurgeAfterSeconds ago, and stops those of earlier processes that still wait for a
// place after Config.QueueTimeoutSeconds. ended remembers when each job ended.
func (b *Backend) sweep(ctx context.Context, now time.Time, ended map[string]time.Time) error {
	b.transfer.sweep(now, b.inputLifetime())
	options := &api.JobListOptions{Fields: &api.JobListFields{Meta: true}}
	q := query(ctx)
	q.Prefix = jobPrefix
	list, _, err := b.cluster.client.Jobs().ListOptions(options, q)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, j := range list {
		if j.Meta[metaInstance] != b.instance || j.Meta[metaBackend] != b.name { // another backend of a server has its own settings
			continue
		}
		there[j.ID] = true
		if j.Status == "pending" && now.Sub(time.Unix(0, j.SubmitTime)) > b.config.queueTimeout()+time.Minute {
			if err := b.alone(ctx, j.ID, func(ctx context.Context) error { return b.cluster.deregister(ctx, j.ID, false) }); err != nil {
				return err
			}
		}
		if j.Status != "dead" {
			delete(ended, j.ID)
			continue
		}
		at, ok := ended[j.ID]
		if !ok {
			if at, err = b.endOf(ctx, j); err != nil {
				return err
			}
			ended[j.ID] = at
		}
		if now.Sub(at) < b.config.purgeAfter() {
			continue
		}
		if err := b.alone(ctx, j.ID, func(ctx context.Context) error { return b.purge(ctx, j.ID) }); err != nil {
			return err
		}
	}
	for id := range ended {
		if !there[id] {
			delete(ended, id)
		}
	}
	return nil
}

// endOf returns when a dead job ended.
func (b *Backend) endOf(ctx context.Context, j *api.JobListStub) (time.Time, error) {
	at := time.Unix(0, j.SubmitTime)
	found, _, err := b.cluster.allocationsOf(ctx, j.ID)
	for _, a := range found {
		if t := time.Unix(0, a.ModifyTime); t.After(at) {
			at = t
		}
	}
	return at, err
}

// alone calls f unless the job's Execution is running or being removed.
func (b *Backend) alone(ctx context.Context, id string, f func(context.Context) error) error {
	inner, leave, err := b.running.Enter(ctx, id[len(jobPrefix):])
	if err != nil {
		return nil //nolint:nilerr // the next sweep comes
	}
	defer leave()
	return f(inner)
}

// purge removes a dead job with its files on the nodes. The files go first: Nomad forgets the allocations with the job.
func (b *Backend) purge(ctx context.Context, id string) error {
	found, _, err := b.cluster.allocationsOf(ctx, id)
	if err != nil && !notFound(err) {
		return refusal("look at the job", err)
	}
	for _, a := range found {
		if err := b.cluster.forget(ctx, a.ID); err != nil { // the node does it later by itself
			b.log.Debug("remove the files of an allocation", "allocation", a.ID, "error", err)
		}
	}
	if err := b.cluster.deregister(ctx, id, true); err != nil {
		return refusal("purge the job", err)
	}
	b.purged.Add(1)
	return nil
}
