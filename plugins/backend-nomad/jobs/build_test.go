package jobs

import (
	"encoding/json"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
)

// anOrder returns an order with everything set that a plain Execution has.
func anOrder() order {
	return order{
		id: "exe_1", owner: "ann", instance: "here", backend: "nomad", attempt: 2, image: "python:3.12-slim", limits: executor.Limits{
			MemoryBytes: 100<<20 + 1, DiskBytes: 50 << 20, CPUShares: 700, PIDs: 10, OutputBytes: 1 << 20, KillGrace: 3 * time.Second,
		},
		runner:  runnerSource{url: "http://h/runner/abc", sha256: "abc", command: []string{"runner"}},
		program: files{inline: map[string][]byte{"start.json": []byte("{}")}},
	}
}

func program1(j *api.Job) *api.Task { return j.TaskGroups[0].Tasks[len(j.TaskGroups[0].Tasks)-1] }

func TestAJobIsNamedAfterItsExecutionAndRunsOnce(t *testing.T) {
	t.Parallel()
	c := Default()
	c.NodePool, c.Priority, c.Datacenters, c.LostAfterSeconds = "pool", 70, []string{"a", "b"}, 60
	c.Constraints = []string{"${node.class} = large one"}
	j := build(c, anOrder())
	if *j.ID != "python-executor-exe_1" || *j.Name != *j.ID || *j.Type != api.JobTypeBatch || *j.Priority != 70 || *j.NodePool != "pool" || !slices.Equal(j.Datacenters, c.Datacenters) {
		t.Errorf("%s %s %s %d %v %v", *j.ID, *j.Name, *j.Type, *j.Priority, j.NodePool, j.Datacenters)
	}
	want := map[string]string{metaExecution: "exe_1", metaOwner: "ann", metaInstance: "here", metaBackend: "nomad", metaAttempt: "2"}
	if !maps.Equal(j.Meta, want) {
		t.Errorf("meta %v, want %v", j.Meta, want)
	}
	if last := j.Constraints[len(j.Constraints)-1]; last.LTarget != "${node.class}" || last.Operand != "=" || last.RTarget != "large one" {
		t.Errorf("constraint %+v", last)
	}
	g := j.TaskGroups[0]
	if *g.RestartPolicy.Attempts != 0 || *g.RestartPolicy.Mode != "fail" || *g.ReschedulePolicy.Attempts != 0 || *g.ReschedulePolicy.Unlimited ||
		*g.Disconnect.Replace || *g.Disconnect.LostAfter != time.Minute || *g.Count != 1 {
		t.Errorf("restart %+v, reschedule %+v, disconnect %+v", g.RestartPolicy, g.ReschedulePolicy, g.Disconnect)
	}
	if plain := build(Default(), anOrder()); plain.NodePool != nil || plain.Region != nil {
		t.Errorf("without a setting the node pool is %v, and the region %v", plain.NodePool, plain.Region)
	}
	if a := j.Constraints[1]; a.LTarget != "${attr.cpu.arch}" || a.Operand != "=" || a.RTarget != runtime.GOARCH {
		t.Errorf("the runner is for this architecture, and the constraint is %+v", a)
	}
	bounded, unbounded := anOrder(), anOrder()
	bounded.limits.OutputBytes, unbounded.limits.OutputBytes = 0, -1<<30
	if got, want := diskMB(unbounded), diskMB(bounded); got != want {
		t.Errorf("a job whose output is not bounded takes %d MB, want %d", got, want)
	}
}

func TestTheProgramsContainerIsHardened(t *testing.T) {
	t.Parallel()
	o := anOrder()
	o.inMemory = true
	p := program1(build(Default(), o))
	raw, err := json.Marshal(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	tmpfs := func(target string) any {
		return map[string]any{"type": "tmpfs", "target": target, "tmpfs_options": []any{map[string]any{"size": float64(50 << 20), "mode": float64(0o1777)}}}
	}
	for key, want := range map[string]any{
		"image": "python:3.12-slim", "network_mode": "none", "readonly_rootfs": true, "cap_drop": []any{"all"}, "security_opt": []any{"no-new-privileges"},
		"mount": []any{tmpfs("/work"), tmpfs("/tmp")}, "volumes": nil,
		"pids_limit": float64(10 + 24), "memory_hard_limit": float64(151), "ipc_mode": "private",
		"ulimit":     []any{map[string]any{"nofile": "1024:4096", "core": "0:0"}},
		"labels":     []any{map[string]any{metaExecution: "exe_1", labelInstance: "here"}},
		"entrypoint": []any{"/local/runner/python-executor-runner", "runner", "job", "--input", "/local/input", "--output", "/local/output"},
	} {
		if !reflect.DeepEqual(config[key], want) {
			t.Errorf("%s is %v, want %v", key, config[key], want)
		}
	}
	// The label of the Docker backend's containers: it removes those that it does not know.
	if raw, err := json.Marshal(config["labels"]); err != nil || strings.Contains(string(raw), "python-executor.instance") {
		t.Errorf("labels %s, %v", raw, err)
	}
	if p.Driver != "docker" || *p.Resources.CPU != 700 || *p.Resources.MemoryMB != 101 || *p.KillTimeout != 13*time.Second || p.KillSignal != "" {
		t.Errorf("driver %s, cpu %d, memory %d, kill %s %s", p.Driver, *p.Resources.CPU, *p.Resources.MemoryMB, *p.KillTimeout, p.KillSignal)
	}
	if !maps.Equal(p.Env, map[string]string{"GOMAXPROCS": "2"}) || *p.Templates[0].ChangeMode != "noop" {
		t.Errorf("the environment is %v, and a change of a template means %s", p.Env, *p.Templates[0].ChangeMode)
	}
	o.limits.MemoryBytes = 1 << 20
	if small := program1(build(Default(), o)); *small.Resources.MemoryMB != minMemoryMB {
		t.Errorf("Nomad refuses %d MB", *small.Resources.MemoryMB)
	}
	o = anOrder()
	o.network = true
	if mode := program1(build(Default(), o)).Config["network_mode"]; mode != "bridge" {
		t.Errorf("with a network the mode is %v", mode)
	}
	disk := program1(build(Default(), o)).Config
	if want := []string{"local/work:/work", "local/tmp:/tmp"}; !reflect.DeepEqual(disk["volumes"], want) || disk["mount"] != nil || disk["memory_hard_limit"] != 165 {
		t.Errorf("on disk: %v, %v, %v", disk["volumes"], disk["mount"], disk["memory_hard_limit"])
	}
}

func TestTheRunnerAndTheInputComeAsArtifactsOrInTheJob(t *testing.T) {
	t.Parallel()
	p := program1(build(Default(), anOrder()))
	if len(p.Artifacts) != 1 || *p.Artifacts[0].GetterSource != "http://h/runner/abc" || *p.Artifacts[0].RelativeDest != "local/runner" ||
		!maps.Equal(p.Artifacts[0].GetterOptions, map[string]string{"archive": "tar", "checksum": "sha256:abc"}) {
		t.Errorf("artifacts %+v", p.Artifacts)
	}
	if len(p.Templates) != 1 || *p.Templates[0].DestPath != "local/input/start.json" || *p.Templates[0].EmbeddedTmpl != `{{ base64Decode "e30=" }}` || *p.Templates[0].Perms != "0600" {
		t.Errorf("templates %+v", p.Templates)
	}
	o := anOrder()
	o.program = files{url: "http://h/input/x"}
	p = program1(build(Default(), o))
	if len(p.Templates) != 0 || len(p.Artifacts) != 2 || *p.Artifacts[1].GetterSource != "http://h/input/x" || *p.Artifacts[1].RelativeDest != "local/input" || p.Artifacts[1].GetterOptions["archive"] != "tar" {
		t.Errorf("artifacts %+v", p.Artifacts)
	}
}

func TestAPreparationComesBeforeTheProgramAndHasTheNetwork(t *testing.T) {
	t.Parallel()
	o := anOrder()
	o.prepare, o.prepareLimits = &files{inline: map[string][]byte{"prepare.json": []byte("{}")}}, executor.Limits{MemoryBytes: 2 << 30, CPUShares: 100}
	tasks := build(Default(), o).TaskGroups[0].Tasks
	if len(tasks) != 2 || tasks[0].Name != taskPrepare || tasks[0].Lifecycle.Hook != api.TaskLifecycleHookPrestart || tasks[0].Lifecycle.Sidecar || tasks[1].Lifecycle != nil {
		t.Fatalf("tasks %+v", tasks)
	}
	argv := strings.Join(tasks[0].Config["entrypoint"].([]string), " ") //nolint:forcetypeassert // a failure panics
	if tasks[0].Config["network_mode"] != "bridge" || tasks[1].Config["network_mode"] != "none" || !strings.Contains(argv, " job-prepare ") || *tasks[0].Resources.MemoryMB != 2048 {
		t.Errorf("the preparation has %v and runs %s", tasks[0].Config["network_mode"], argv)
	}
}

func TestAStandardInputThatIsNotThereYetHasATaskOfItsOwn(t *testing.T) {
	t.Parallel()
	o := anOrder()
	o.inMemory = true
	o.feed = &files{inline: map[string][]byte{"feed.json": []byte("{}")}}
	tasks := build(Default(), o).TaskGroups[0].Tasks
	if len(tasks) != 2 || tasks[0].Name != taskFeed || tasks[0].Lifecycle.Hook != api.TaskLifecycleHookPrestart || !tasks[0].Lifecycle.Sidecar || tasks[1].Lifecycle != nil {
		t.Fatalf("tasks %+v", tasks)
	}
	argv := func(n int) string { return strings.Join(tasks[n].Config["entrypoint"].([]string), " ") } //nolint:forcetypeassert // a failure panics
	if !strings.HasSuffix(argv(0), " job-feed --input /local/input --output /alloc/data") || !strings.HasSuffix(argv(1), " job --input /local/input --output /local/output --feed /alloc/data") {
		t.Errorf("%s\n%s", argv(0), argv(1))
	}
	if c := tasks[0].Config; c["network_mode"] != "host" || c["volumes"] != nil || c["mount"] != nil || c["memory_hard_limit"] != 96 || *tasks[0].Resources.MemoryMB != 32 {
		t.Errorf("%+v, %d MB", c, *tasks[0].Resources.MemoryMB)
	}
	if tasks[1].Config["network_mode"] != "none" {
		t.Errorf("the program's network is %v", tasks[1].Config["network_mode"])
	}
}
