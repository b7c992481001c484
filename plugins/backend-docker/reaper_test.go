package dockerbackend

import (
	"context"
	"strconv"
	"testing"
	"time"
)

func TestTheReaperTouchesOnlyWhatNobodyCanWant(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration) string { return strconv.FormatInt(now.Add(-d).Unix(), 10) }
	container := func(state, boot, kind string, more ...string) containerInfo {
		c := containerInfo{ID: "id", State: state, Labels: map[string]string{labelBoot: boot, labelKind: kind, labelCreated: ago(time.Minute)}}
		for i := 0; i < len(more); i += 2 {
			c.Labels[more[i]] = more[i+1]
		}
		return c
	}
	for name, c := range map[string]struct {
		container containerInfo
		held      bool
		want      verdict
	}{
		"mine and running":                        {container("running", "mine", kindSandbox), false, verdictKeep},
		"mine and ended":                          {container("exited", "mine", kindSandbox), false, verdictRemove},
		"mine and not started yet":                {container("created", "mine", kindSandbox), false, verdictKeep},
		"mine and never started":                  {container("created", "mine", kindSandbox, labelCreated, ago(time.Hour)), false, verdictRemove},
		"mine and past its deadline":              {container("running", "mine", kindSandbox, labelDeadline, ago(time.Second)), false, verdictRemove},
		"mine and before its deadline":            {container("running", "mine", kindSandbox, labelDeadline, ago(-time.Second)), false, verdictKeep},
		"my preparation that has ended":           {container("exited", "mine", kindPrepare), false, verdictKeep},
		"another life's that is alive, running":   {container("running", "alive", kindSandbox), false, verdictKeep},
		"another life's that is alive, created":   {container("created", "alive", kindSandbox), false, verdictKeep},
		"a dead life's, between create and start": {container("created", "dead", kindSandbox), false, verdictRemove},
		"a dead life's, ended":                    {container("exited", "dead", kindSandbox), false, verdictRemove},
		"a dead life's, broken":                   {container("dead", "dead", kindSandbox), false, verdictRemove},
		"a dead life's that may be attached to":   {container("running", "dead", kindSandbox), false, verdictOrphan},
		"a dead life's that somebody took over":   {container("running", "dead", kindSandbox), true, verdictKeep},
		"a dead life's preparation":               {container("running", "dead", kindPrepare), false, verdictRemove},
		"a dead life's that is paused":            {container("paused", "dead", kindSandbox), false, verdictOrphan},
		"labels that say nothing":                 {container("running", "", kindSandbox, labelCreated, "x", labelDeadline, "y"), false, verdictOrphan},
	} {
		got := judge(c.container, "mine", now, func(boot string) bool { return boot == "mine" || boot == "alive" }, func(string) bool { return c.held })
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestABootTellsWhetherItsProcessIsThere(t *testing.T) {
	t.Parallel()
	mine := newBoot()
	for boot, want := range map[string]bool{
		mine:              true,
		mine + "0":        false, // the number was given to another process
		"x.1":             false,
		"":                false,
		"a.4194304999.17": false,
		"a.-1.":           false,
	} {
		if got := bootAlive(boot); got != want {
			t.Errorf("%q: %v, want %v", boot, got, want)
		}
	}
}

func TestTheReaperLeavesOtherInstallationsAlone(t *testing.T) {
	a := backend(t, map[string]any{"pool": map[string]any{"min_idle": 0, "sessions": 0}})
	b := backend(t, map[string]any{"pool": map[string]any{"min_idle": 0, "sessions": 0}})
	image, err := a.images.ensure(t.Context(), a.config.DefaultImage, nothing)
	if err != nil {
		t.Fatal(err)
	}
	spec := sandboxSpec(a.place, class{Image: image.ID, DiskBytes: 1 << 20}, capacity{MemoryBytes: 64 << 20, PIDs: 32}, nil, newName(kindSandbox), time.Now())
	spec.Labels[labelBoot] = "dead.1.1"
	spec.Volume = ""
	id, err := a.daemon.create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		backend *Backend
		left    bool
	}{{b, true}, {a, false}} {
		r := reaper{b: one.backend, since: map[string]time.Time{}}
		if _, err := r.sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		one.backend.cleaner.wait()
		if _, err := a.daemon.inspect(context.Background(), id); (err == nil) != one.left {
			t.Errorf("after the sweep: %v, want it there %v", err, one.left)
		}
	}
}
