package jobs

import (
	"encoding/base64"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/job"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// jobPrefix begins the id of every job. The Execution's id follows.
const jobPrefix = "python-executor-"

// The keys of a job's meta, by which people and this backend find it.
const (
	metaExecution = "python-executor.execution"
	metaOwner     = "python-executor.owner"
	metaInstance  = "python-executor.instance"
	metaBackend   = "python-executor.backend"
	metaAttempt   = "python-executor.attempt"
)

// labelInstance is the label of a container with the installation. It is not metaInstance: the Docker backend of the same installation takes
// containers with that label for its own, and removes those that it does not know.
const labelInstance = "python-executor.nomad-instance"

// The names in a job.
const (
	groupName   = "execution"
	taskProgram = "program"
	taskPrepare = "prepare"
	taskFeed    = "stdin"
)

// The folders of a task, as its container sees them, and the runner in them.
const (
	inputFolder    = "/local/input"
	outputFolder   = "/local/output"
	runnerFolder   = "/local/runner"
	runnerFile     = "python-executor-runner"
	preparedFolder = "/alloc/data/prepared"
	// outputPath is outputFolder in the API of an allocation's files, after the name of the task.
	outputPath = "local/output"
)

const (
	// scratchBytes is the size of /dev/shm. Its content counts as memory of the container.
	scratchBytes = 64 << 20
	// filesSoft and filesHard bound the open files of a process.
	filesSoft, filesHard = 1024, 4096
	// stopMargin is how much longer than the grace of a program Nomad waits for the runner.
	stopMargin = 10 * time.Second
	// logMB bounds what Nomad keeps of the container's output. The runner copies 1 MiB of each stream there.
	logMB = 2
)

// capabilities are those that the runner keeps. It needs them to own and fill folders, to kill processes, and to switch to the user of
// programs. The driver allows them by default. The program has none.
var capabilities = []string{"chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setpcap", "setuid"}

// protected are the folders that Nomad mounts and that programs must not see.
var protected = []string{"/alloc", "/local", "/secrets"}

// files is the input of a task: small files in the job itself, and the URL of an archive with the others.
type files struct {
	inline map[string][]byte
	url    string
}

// size returns the size of the files in the job, in bytes.
func (f files) size() (n int) {
	for _, content := range f.inline {
		n += len(content)
	}
	return n
}

// order describes a job to make.
type order struct {
	id, owner         string
	instance, backend string // the installation, and the name of the backend in it
	attempt           int
	image             string
	network           bool
	limits            executor.Limits
	inMemory          bool // the folders of programs are in memory: Config.Work
	runner            runnerSource
	program           files
	// prepare is the input of the preparation; nil if there is none. prepareLimits are its limits.
	prepare       *files
	prepareLimits executor.Limits
	// feed is the input of the task that brings the standard input; nil if there is none.
	feed *files
}

// runnerSource is where a task gets the runner.
type runnerSource struct {
	url     string
	sha256  string // of the archive
	command []string
}

// jobID returns the id of an Execution's job.
func jobID(execution string) string { return jobPrefix + execution }

// build returns the job of an Execution. It is a pure function.
func build(c Config, o order) *api.Job {
	group := api.NewTaskGroup(groupName, 1)
	// Nothing is run twice: neither after a failure, nor elsewhere while a node is out of reach.
	group.RestartPolicy = &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail"), Interval: ptr(5 * time.Second), Delay: ptr(time.Second)}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)}
	group.Disconnect = &api.DisconnectStrategy{LostAfter: ptr(c.lostAfter()), Replace: ptr(false)}
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: ptr(diskMB(o)), Sticky: ptr(false), Migrate: ptr(false)}
	if o.prepare != nil {
		group.Tasks = append(group.Tasks, o.task(taskPrepare))
	}
	if o.feed != nil {
		group.Tasks = append(group.Tasks, o.task(taskFeed))
	}
	group.Tasks = append(group.Tasks, o.task(taskProgram))

	j := api.NewBatchJob(jobID(o.id), jobID(o.id), "", c.Priority)
	j.Region = nil // that of the client
	j.Datacenters = c.Datacenters
	if c.NodePool != "" {
		j.NodePool = &c.NodePool
	}
	j.Meta = map[string]string{
		metaExecution: o.id, metaOwner: o.owner, metaInstance: o.instance, metaBackend: o.backend, metaAttempt: strconv.Itoa(o.attempt),
	}
	j.Constraints = append([]*api.Constraint{
		api.NewConstraint("${attr.kernel.name}", "=", "linux"),
		api.NewConstraint("${attr.cpu.arch}", "=", runtime.GOARCH),
	}, constraints(c.Constraints)...)
	j.TaskGroups = []*api.TaskGroup{group}
	return j
}

// task returns one task of the job.
func (o order) task(name string) *api.Task {
	t := api.NewTask(name, "docker")
	t.User = "0" // the runner's; programs are protocol.Config.UID
	t.KillTimeout = ptr(o.limits.KillGrace + stopMargin)
	// No KillSignal: with one, Nomad's docker driver cannot kill a container that has just ended, and tries again for minutes (handle.go
	// Kill, 1.11.2). The runner takes the image's signal as SIGTERM.
	t.LogConfig = &api.LogConfig{MaxFiles: ptr(1), MaxFileSizeMB: ptr(logMB)}
	// The variables are for the runner only, which makes the program's itself. Without GOMAXPROCS Go would start a thread per CPU.
	t.Env = map[string]string{"GOMAXPROCS": "2"}
	input, output, limits, command, network := o.program, outputFolder, o.limits, "job", "none"
	if o.network {
		network = "bridge"
	}
	switch name {
	case taskPrepare:
		input, limits, command, network = *o.prepare, o.prepareLimits, "job-prepare", "bridge"
		t.Lifecycle = &api.TaskLifecycle{Hook: api.TaskLifecycleHookPrestart}
	case taskFeed: // it reaches what Nomad's client reaches, which fetches the artifacts
		input, output, limits, command, network = *o.feed, feedFolder, feedLimits, "job-feed", "host"
		t.Lifecycle = &api.TaskLifecycle{Hook: api.TaskLifecycleHookPrestart, Sidecar: true}
	}
	t.Resources = &api.Resources{CPU: ptr(int(limits.CPUShares)), MemoryMB: ptr(max(minMemoryMB, megabytes(limits.MemoryBytes)))}
	t.Config = o.container(limits, network)
	argv := append(append([]string{runnerFolder + "/" + runnerFile}, o.runner.command...), command, "--input", inputFolder, "--output", output)
	if name == taskProgram && o.feed != nil {
		argv = append(argv, "--feed", feedFolder)
	}
	if name != taskFeed {
		o.addFolders(t.Config, limits)
	}
	t.Config["entrypoint"] = argv
	t.Artifacts = []*api.TaskArtifact{{
		GetterSource: &o.runner.url, RelativeDest: ptr(runnerFolder[1:]), GetterMode: ptr("dir"),
		GetterOptions: map[string]string{"archive": "tar", "checksum": "sha256:" + o.runner.sha256},
	}}
	if input.url != "" {
		t.Artifacts = append(t.Artifacts, &api.TaskArtifact{
			GetterSource: &input.url, RelativeDest: ptr(inputFolder[1:]), GetterMode: ptr("dir"), GetterOptions: map[string]string{"archive": "tar"},
		})
	}
	for _, file := range slices.Sorted(maps.Keys(input.inline)) {
		t.Templates = append(t.Templates, template(inputFolder[1:]+"/"+file, input.inline[file]))
	}
	return t
}

// template returns a file of any bytes but none. base64 has no characters that a template or an interpolation would act on.
func template(path string, content []byte) *api.Template {
	text := fmt.Sprintf("{{ base64Decode %q }}", base64.StdEncoding.EncodeToString(content))
	return &api.Template{
		EmbeddedTmpl: &text, DestPath: &path, ChangeMode: ptr("noop"), Perms: ptr("0600"), Once: ptr(true),
		Wait: &api.WaitConfig{Min: ptr(time.Duration(0)), Max: ptr(time.Duration(0))},
	}
}

// container returns the driver's settings of a task.
func (o order) container(limits executor.Limits, network string) map[string]any {
	return map[string]any{
		"image":             o.image,
		"network_mode":      network,
		"hostname":          "sandbox",
		"readonly_rootfs":   true,
		"cap_drop":          []string{"all"},
		"cap_add":           capabilities,
		"security_opt":      []string{"no-new-privileges"},
		"pids_limit":        limits.PIDs + protocol.OwnThreads,
		"memory_hard_limit": megabytes(limits.MemoryBytes + scratchBytes),
		"ipc_mode":          "private",
		"shm_size":          scratchBytes,
		"ulimit":            []map[string]string{{"nofile": fmt.Sprintf("%d:%d", filesSoft, filesHard), "core": "0:0"}},
		"labels":            []map[string]string{{metaExecution: o.id, labelInstance: o.instance}},
		"work_dir":          "/",
	}
}

// addFolders adds the folders of programs to a container's settings.
func (o order) addFolders(set map[string]any, limits executor.Limits) {
	config := job.DefaultConfig()
	if !o.inMemory {
		set["volumes"] = []string{"local/work:" + config.WorkRoot, "local/tmp:" + config.Temp} // Docker makes the folders
		return
	}
	tmpfs := func(target string) map[string]any {
		return map[string]any{"type": "tmpfs", "target": target, "tmpfs_options": []map[string]any{{"size": limits.DiskBytes, "mode": 0o1777}}}
	}
	set["mount"] = []map[string]any{tmpfs(config.WorkRoot), tmpfs(config.Temp)}
	set["memory_hard_limit"] = megabytes(limits.MemoryBytes + limits.DiskBytes) // the files count as memory of the container
}

// constraints returns the Constraints of valid texts: ATTRIBUTE OPERATOR VALUE.
func constraints(texts []string) []*api.Constraint {
	var list []*api.Constraint
	for _, text := range texts {
		words := strings.Fields(text)
		list = append(list, api.NewConstraint(words[0], words[1], strings.Join(words[2:], " ")))
	}
	return list
}

// diskMB returns the space that the allocation's folder takes, for the scheduler. Nothing enforces it but the bounds of the runner.
func diskMB(o order) int {
	return 64 + 2*logMB*2 + megabytes(3*max(o.limits.OutputBytes, 0))
}

// minMemoryMB is the smallest memory that Nomad accepts.
const minMemoryMB = 10

// megabytes returns n bytes in MiB, rounded up.
func megabytes(n int64) int { return int((n + 1<<20 - 1) >> 20) }

func ptr[T any](v T) *T { return &v }
