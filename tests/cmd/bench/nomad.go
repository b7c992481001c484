package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
	"github.com/python-executor/python-executor/tests/internal/nomadsite"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// nomad is the part of the benchmark that needs one: a cluster with a server and a client, and a server of ours for each mode.
type nomad struct {
	cluster       *nomadtest.Cluster
	site          *nomadsite.Site
	jobs, workers *serve.Server
	// uv has the backend of the workers, and no Nomad.
	uv     *serve.Server
	number int
}

// The names of the cases, which a choice of cases may match.
const (
	bareJob     = "nomad bare batch job"
	modeJob     = "nomad mode job, http sync"
	modeWorkers = "nomad mode workers, http sync"
	withoutIt   = "http sync beside nomad"
	scaling     = "nomad workers throughput"
)

var nomadNames = []string{bareJob, modeJob, modeWorkers, withoutIt, scaling, throughputOf(1), throughputOf(2)}

const (
	// workerSlots is how many executions a worker runs at once in the measurement of throughput.
	workerSlots = 4
	// sleeper does nothing for most of its time, so that slots are short and processors are not.
	sleeper = `{"code":"import time\ntime.sleep(0.5)\nprint('hello')"}`
)

// startNomad starts it; nil without an error: there is no Nomad here, and it has said so.
func startNomad(r *report, s *serve.Server, binary string) (_ *nomad, err error) {
	cluster, err := nomadtest.Launch(nomadtest.Options{RawExec: true})
	if errors.Is(err, nomadtest.ErrMissing) {
		fmt.Println("no Nomad is at hand: nothing of it is measured:", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := &nomad{cluster: cluster, uv: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.stop())
		}
	}()
	if n.site, err = nomadsite.New(cluster, binary); err != nil {
		return nil, err
	}
	if err = n.site.StartWorkers(2, workerSlots); err != nil {
		return nil, err
	}
	if n.jobs, err = start(n.site.Jobs("jobs")); err != nil {
		return nil, err
	}
	if n.workers, err = start(n.site.Workers("workers")); err != nil {
		return nil, err
	}
	out, err := cluster.Command(context.Background(), "version").Output()
	r.Versions["nomad"], _, _ = strings.Cut(string(out), "\n")
	if err = errors.Join(err, nomadsite.Usable(n.workers, 2)); err != nil {
		return nil, err
	}
	return n, nil
}

// start starts a server, unless there is an error already.
func start(s *serve.Server, err error) (*serve.Server, error) {
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// stop ends all of it. Safe with what was not started.
func (n *nomad) stop() (err error) {
	if n == nil {
		return nil
	}
	for _, s := range []*serve.Server{n.jobs, n.workers} {
		if s != nil {
			s.Stop()
		}
	}
	if n.site != nil {
		err = n.site.Close()
	}
	return errors.Join(err, n.cluster.Stop())
}

// cases are interleaved. The two that start a container take turns of the same number.
func (n *nomad) cases() []measure {
	return []measure{
		{bareJob, 4, timed(n.bare)},
		{modeJob, 4, timed(func() error { return sync(n.jobs, httpHello) })},
		{modeWorkers, 1, timed(func() error { return sync(n.workers, httpHello) })},
		{withoutIt, 1, timed(func() error { return sync(n.uv, httpHello) })},
	}
}

// bare registers a batch job with one task of the docker driver, and waits by blocking queries until its allocation is complete.
func (n *nomad) bare() error {
	n.number++
	id := fmt.Sprintf("bare-%d", n.number)
	task := api.NewTask("hello", "docker")
	task.Config = map[string]any{"image": n.site.Image, "command": helloCommand[0], "args": helloCommand[1:]}
	job := api.NewBatchJob(id, id, "global", 50).AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("hello", 1).AddTask(task))
	if _, _, err := n.cluster.API().Jobs().Register(job, nil); err != nil {
		return err
	}
	for index, deadline := uint64(0), time.Now().Add(time.Minute); time.Now().Before(deadline); {
		list, meta, err := n.cluster.API().Jobs().Allocations(id, true, &api.QueryOptions{WaitIndex: index, WaitTime: time.Minute})
		if err != nil {
			return err
		}
		index = meta.LastIndex
		if len(list) == 0 {
			continue
		}
		switch list[0].ClientStatus {
		case api.AllocClientStatusComplete:
			return nil
		case api.AllocClientStatusFailed, api.AllocClientStatusLost:
			return fmt.Errorf("allocation %s is %s: %s", list[0].ID, list[0].ClientStatus, list[0].ClientDescription)
		}
	}
	return fmt.Errorf("%s did not end", id)
}

// throughput compares two workers with one. All slots are always taken by programs that sleep, which two processors can do.
func (n *nomad) throughput(r *report) error {
	const turns, length = 2, 15 * time.Second
	for range turns {
		for _, count := range []int{2, 1} {
			if err := errors.Join(n.site.Scale(count), nomadsite.Usable(n.workers, count)); err != nil {
				return err
			}
			rate, err := perSecond(2*2*workerSlots, length, func() error { return sync(n.workers, sleeper) })
			if err != nil {
				return fmt.Errorf("%d workers: %w", count, err)
			}
			r.Figures[throughputOf(count)] += rate / turns
		}
	}
	return nil
}

func throughputOf(workers int) string { return fmt.Sprintf("nomad %d workers, per second", workers) }

// measureNomad measures both modes beside a bare job.
func measureNomad(b *bench) (err error) {
	n, err := startNomad(b.run, b.server, b.binary)
	if n == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := b.interleave(n.cases()); err != nil {
		return err
	}
	if b.wants(scaling, throughputOf(1), throughputOf(2)) {
		return n.throughput(b.run)
	}
	return nil
}
