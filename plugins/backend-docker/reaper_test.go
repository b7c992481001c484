package dockerbackend

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
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
		"mine and running":                                 {container("running", "mine", kindSandbox), false, verdictKeep},
		"mine and ended":                                   {container("exited", "mine", kindSandbox), false, verdictRemove},
		"mine and not started yet":                         {container("created", "mine", kindSandbox), false, verdictKeep},
		"mine and never started":                           {container("created", "mine", kindSandbox, labelCreated, ago(time.Hour)), false, verdictRemove},
		"my preparation that still gets its files":         {container("created", "mine", kindPrepare, labelCreated, ago(time.Hour), labelDeadline, ago(-time.Hour)), false, verdictKeep},
		"mine and past its deadline":                       {container("running", "mine", kindSandbox, labelDeadline, ago(time.Second)), false, verdictRemove},
		"mine and before its deadline":                     {container("running", "mine", kindSandbox, labelDeadline, ago(-time.Second)), false, verdictKeep},
		"my preparation that has ended":                    {container("exited", "mine", kindPrepare), false, verdictKeep},
		"another life's preparation that has ended, alive": {container("exited", "alive", kindPrepare), false, verdictKeep},
		"a dead life's preparation that has ended":         {container("exited", "dead", kindPrepare), false, verdictRemove},
		"another life's that is alive, running":            {container("running", "alive", kindSandbox), false, verdictKeep},
		"another life's that is alive, created":            {container("created", "alive", kindSandbox), false, verdictKeep},
		"a dead life's, between create and start":          {container("created", "dead", kindSandbox), false, verdictRemove},
		"a dead life's, ended":                             {container("exited", "dead", kindSandbox), false, verdictRemove},
		"a dead life's, broken":                            {container("dead", "dead", kindSandbox), false, verdictRemove},
		"a dead life's that may be attached to":            {container("running", "dead", kindSandbox), false, verdictOrphan},
		"a dead life's that another took over":             {container("running", "dead", kindSandbox), true, verdictKeep},
		"a dead life's preparation":                        {container("running", "dead", kindPrepare), false, verdictRemove},
		"a dead life's that is paused":                     {container("paused", "dead", kindSandbox), false, verdictOrphan},
		"labels that say nothing":                          {container("running", "", kindSandbox, labelCreated, "x", labelDeadline, "y"), false, verdictOrphan},
	} {
		got := judge(c.container, "mine", now, func(boot string) bool { return boot == "mine" || boot == "alive" }, func(string) bool { return c.held })
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	unknown := func(string) bool { return false } // a machine on which no process can be looked at
	for _, state := range []string{"created", "running", "exited"} {
		if got := judge(container(state, "mine", kindPrepare), "mine", now, unknown, unknown); got != verdictKeep {
			t.Errorf("my preparation that is %s, where no process can be found: %d", state, got)
		}
	}
}

func TestABootTellsWhetherItsProcessIsThere(t *testing.T) {
	t.Parallel()
	mine := newBoot()
	for boot, want := range map[string]bool{
		mine:       true,
		mine + "0": false, // on another machine
		strings.Replace(mine, startTime(os.Getpid()), "17", 1): false, // another process has the number
		strings.TrimSuffix(mine, processNumbers()):             false,
		"x.1":                               false,
		"":                                  false,
		"a.4194304999.17":                   false,
		"a.-1.":                             false,
		"a.4194304999.." + processNumbers(): false, // no process and no start time are not the same
	} {
		if got := bootAlive(boot); got != want {
			t.Errorf("%q: %v, want %v", boot, got, want)
		}
	}
}

func TestABootIsOverOnlyWhereThatCanBeTold(t *testing.T) {
	t.Parallel()
	mine := newBoot()
	for boot, want := range map[string]bool{
		mine: false,
		strings.Replace(mine, startTime(os.Getpid()), "17", 1): true,
		"a.4194304999.17." + processNumbers():                  true,
		"a.4194304999.17.another":                              false,
		"a.4194304999.17":                                      false,
		"":                                                     false,
	} {
		if got := bootOver(boot); got != want {
			t.Errorf("%q: %v, want %v", boot, got, want)
		}
	}
}

func TestOfAnotherInstallationOnlyLeftoversAreRemoved(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration) string { return strconv.FormatInt(now.Add(-d).Unix(), 10) }
	for name, c := range map[string]struct {
		state, boot, kind, created, deadline string
		want                                 bool
	}{
		"half made by one that is gone":               {"created", "over", kindSandbox, ago(time.Second), "", true},
		"half made by one that may be alive":          {"created", "far", kindSandbox, ago(time.Minute), "", false},
		"half made, and long ago":                     {"created", "far", kindSandbox, ago(2 * time.Hour), "", true},
		"half made at no time":                        {"created", "far", kindSandbox, "", "", false},
		"a volume's that was never filled":            {"created", "over", kindFill, ago(time.Second), "", true},
		"what runs, of one that is gone":              {"running", "over", kindSandbox, ago(24 * time.Hour), "", false},
		"what has ended, of one that is gone":         {"exited", "over", kindSandbox, ago(24 * time.Hour), "", false},
		"a preparation of one that is gone":           {"running", "over", kindPrepare, ago(time.Second), ago(-time.Hour), true},
		"a preparation that has ended":                {"exited", "over", kindPrepare, ago(time.Second), ago(-time.Hour), true},
		"a preparation of one that may be alive":      {"running", "far", kindPrepare, ago(24 * time.Hour), ago(time.Minute), false},
		"a preparation long after its deadline":       {"running", "far", kindPrepare, ago(24 * time.Hour), ago(2 * time.Hour), true},
		"of a kind that a later version may have":     {"created", "over", "later", ago(24 * time.Hour), "", false},
		"of a kind that a later version may have, up": {"running", "over", "later", ago(24 * time.Hour), ago(24 * time.Hour), false},
	} {
		one := containerInfo{State: c.state, Labels: map[string]string{labelBoot: c.boot, labelKind: c.kind, labelCreated: c.created, labelDeadline: c.deadline}}
		if got := leftover(one, now, func(boot string) bool { return boot == "over" }); got != c.want {
			t.Errorf("%s: leftover is %v", name, got)
		}
	}
}

func TestTheReaperLeavesOtherInstallationsAlone(t *testing.T) {
	t.Parallel()
	a := openBackend(t, nil)
	b := openBackend(t, nil)
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
	// It was created by a process that is gone, and never started: no later life of its installation would remove it.
	over := sandboxSpec(a.place, class{Image: image.ID, DiskBytes: 1 << 20}, capacity{MemoryBytes: 64 << 20, PIDs: 32}, nil, newName(kindSandbox), time.Now())
	over.Labels[labelBoot], over.Labels[labelInstance] = "dead.4194304999.1."+processNumbers(), t.Name()+"-gone-"+random()
	over.Volume = ""
	halfMade, err := a.daemon.create(t.Context(), over)
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
			t.Errorf("after the sweep: %v; want the container to exist: %v", err, one.left)
		}
		if _, err := a.daemon.inspect(context.Background(), halfMade); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("the unstarted container of a process that is gone still exists: %v", err)
		}
	}
}

func TestOfVolumesAndNetworksOnlyLeftoversAreRemoved(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	over := func(boot string) bool { return boot == "over" }
	for name, c := range map[string]struct {
		boot       string
		made       time.Duration // how long ago; negative means unknown
		containers []string      // the boots of the installation's containers
		want       bool
	}{
		"of one that is gone":                        {"over", time.Second, nil, true},
		"of one that is gone, in use":                {"over", time.Second, []string{"over"}, true}, // the daemon refuses to remove it while it is in use
		"of an installation that lives again":        {"over", 48 * time.Hour, []string{"over", "alive"}, false},
		"of one that lives":                          {"alive", time.Hour, nil, false},
		"of one that may live elsewhere":             {"far", time.Hour, nil, false},
		"of one that may live elsewhere, old":        {"far", 25 * time.Hour, nil, true},
		"of one that may live elsewhere, old, used":  {"far", 25 * time.Hour, []string{"far"}, false},
		"of one that may live elsewhere, at no time": {"far", -1, nil, false},
		"of a version that did not say":              {"", 25 * time.Hour, nil, true},
	} {
		labels := map[string]string{labelInstance: "other", labelBoot: c.boot}
		list := []containerInfo{{Labels: map[string]string{labelInstance: "another", labelBoot: "alive"}}}
		for _, boot := range c.containers {
			list = append(list, containerInfo{Labels: map[string]string{labelInstance: "other", labelBoot: boot}})
		}
		created := now.Add(-c.made)
		if c.made < 0 {
			created = time.Time{}
		}
		if got := leftoverObject(labels, created, list, now, over); got != c.want {
			t.Errorf("%s: leftover is %v", name, got)
		}
	}
	for name, labels := range map[string]map[string]string{
		"a user's":              nil,
		"a user's with labels":  {"com.example.team": "a"},
		"without its owner":     {labelBoot: "over", labelKind: kindSandbox},
		"of an owner unnamed":   {labelInstance: "", labelBoot: "over"},
		"of an owner elsewhere": {"other." + labelInstance: "other", labelBoot: "over"},
	} {
		if leftoverObject(labels, now.Add(-48*time.Hour), nil, now, over) {
			t.Errorf("%s: taken for a leftover", name)
		}
	}
}

// TestWhatAKilledInstallationLeavesIsTakenByAnother: a killed installation may have no later life.
func TestWhatAKilledInstallationLeavesIsTakenByAnother(t *testing.T) { // not parallel: backends of other tests would remove the leftovers
	b := openBackend(t, nil)
	dead := "dead.4194304999.1." + processNumbers()
	for boot, left := range map[string]bool{dead: false, newBoot(): true} {
		other := t.Name() + "-other-" + random()
		volume := "python-executor-runner-" + random()
		labels := map[string]string{labelInstance: other, labelBoot: boot}
		if _, err := b.daemon.createVolume(t.Context(), volume, labels); err != nil {
			t.Fatal(err)
		}
		n := newNetworks(b.daemon, "", other, b.log)
		n.boot = boot
		if _, err := n.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := reaper{b: b, since: map[string]time.Time{}}
		if _, err := r.sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if found := len(objects(t, other)); found != map[bool]int{true: 2, false: 0}[left] {
			t.Errorf("the life is over: %v; %d objects are left", !left, found)
		}
		if forward, _ := n.chains(); n.iptables != nil && (n.iptables(t.Context(), "-L", forward, "-n") == nil) != left {
			t.Errorf("the life is over: %v; its firewall rules exist: %v", !left, !left)
		}
		if err := errors.Join(n.close(context.Background()), gone(b.daemon.removeVolume(context.Background(), volume))); err != nil {
			t.Error(err)
		}
	}
}

// TestALaterLifeMakesTheVolumeItsOwn: other installations would take the volume of an ended life for a leftover.
func TestALaterLifeMakesTheVolumeItsOwn(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	labels := map[string]string{labelInstance: b.place.Instance, labelBoot: "dead.4194304999.1." + processNumbers()}
	if _, err := b.daemon.createVolume(t.Context(), b.place.Volume, labels); err != nil {
		t.Fatal(err)
	}
	owner := func(when string) {
		t.Helper()
		if out, _ := succeeds(t, b, executor.Spec{Code: "print(1)"}); out != "1\n" {
			t.Errorf("%s: %q", when, out)
		}
		list, err := b.daemon.volumes(t.Context(), map[string]string{labelInstance: b.place.Instance})
		if err != nil || len(list) != 1 || list[0].Labels[labelBoot] != b.place.Boot || list[0].Created.IsZero() {
			t.Errorf("%s: %+v, %v", when, list, err)
		}
	}
	owner("taken over")
	awaittest.Until(t, "the end of its container", func() bool { return len(containersOf(t, b.place.Instance)) == 0 })
	removeRunner(t, b)
	owner("removed and made again")
}
