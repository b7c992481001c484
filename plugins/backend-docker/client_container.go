package dockerbackend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"github.com/python-executor/python-executor/core/executor"
)

// request converts a spec into the daemon's request. It is a pure function; container_test.go compares each field of its
// result.
func (s containerSpec) request() (*container.Config, *container.HostConfig) {
	no := false
	pids := s.Capacity.PIDs
	config := &container.Config{
		Image: s.Image, Entrypoint: s.Command, Env: s.Env, User: s.User, WorkingDir: s.Folder, Labels: s.Labels, Hostname: hostName,
		// The input stays open when a client disconnects, so that another may attach.
		OpenStdin: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		// An image's health check would run its own process in the container.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	host := &container.HostConfig{
		NetworkMode:    container.NetworkMode(s.Network),
		ReadonlyRootfs: !s.WritableRoot,
		Tmpfs:          s.Tmpfs,
		CapDrop:        []string{"ALL"},
		CapAdd:         s.Capabilities,
		SecurityOpt:    []string{"no-new-privileges"},
		IpcMode:        "private",
		CgroupnsMode:   "private",
		ShmSize:        scratchBytes,
		OomScoreAdj:    outOfMemoryScore,
		Runtime:        s.Runtime,
		AutoRemove:     s.AutoRemove,
		RestartPolicy:  container.RestartPolicy{Name: "no"},
		// The runner passes on what a program prints. A log would fill the daemon's disk.
		LogConfig: container.LogConfig{Type: "none"},
		// The runner is PID 1, whatever the daemon's default is.
		Init: &no,
		Resources: container.Resources{
			Memory: s.Capacity.MemoryBytes, MemorySwap: s.Capacity.MemoryBytes, CPUShares: s.Capacity.CPUShares, NanoCPUs: s.NanoCPUs,
			Ulimits: []*units.Ulimit{{Name: "core"}, {Name: "nofile", Soft: filesSoft, Hard: filesHard}},
		},
	}
	if pids > 0 {
		host.PidsLimit = &pids
	}
	if s.Network == defaultNetworkNone && s.Hosts != "" {
		config.NetworkDisabled = true
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: s.Hosts, Target: "/etc/hosts", ReadOnly: true})
	}
	switch {
	case s.Volume != "":
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Source: s.Volume, Target: runnerFolder, ReadOnly: true, VolumeOptions: s.volumeOptions()})
	case s.FillVolume != "":
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Source: s.FillVolume, Target: runnerFolder, VolumeOptions: s.volumeOptions()})
	}
	return config, host
}

// volumeOptions returns the labels of a volume that the daemon creates because it is missing.
func (s containerSpec) volumeOptions() *mount.VolumeOptions {
	return &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelInstance: s.Labels[labelInstance], labelBoot: s.Labels[labelBoot]}}
}

// create makes a container and returns its id. The end of ctx does not end the request: the daemon would finish it, and the
// container's id would be lost. Codes: not_found (the image), conflict (the name), invalid, unavailable.
func (d *daemon) create(ctx context.Context, s containerSpec) (string, error) {
	ctx, cancel := cleanUp(ctx)
	defer cancel()
	config, host := s.request()
	r, err := d.api.ContainerCreate(ctx, config, host, nil, nil, s.Name)
	return r.ID, failed("create container", err)
}

// start starts a container. Codes: not_found, invalid (its command or runtime cannot be executed), unavailable.
func (d *daemon) start(ctx context.Context, id string) error {
	return failed("start container", d.api.ContainerStart(ctx, id, container.StartOptions{}))
}

// remove kills a container if it runs, and removes it with its anonymous volumes. When remove returns without an error, the
// container is gone, even if the daemon was already removing it. It is idempotent.
func (d *daemon) remove(ctx context.Context, id string) error {
	err := failed("remove container", d.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	if executor.CodeOf(err) == executor.Conflict && gone(err) == nil {
		ended, errs := d.api.ContainerWait(ctx, id, container.WaitConditionRemoved)
		select {
		case <-ended:
			return nil
		case err = <-errs:
			err = failed("wait for a container's removal", err)
		}
	}
	return gone(err)
}

// update changes the limits of a running container.
func (d *daemon) update(ctx context.Context, id string, c capacity) error {
	_, err := d.api.ContainerUpdate(ctx, id, c.request())
	return failed("update container", err)
}

// request returns the daemon's request that changes a container's limits to c.
func (c capacity) request() container.UpdateConfig {
	return container.UpdateConfig{Resources: container.Resources{
		Memory: c.MemoryBytes, MemorySwap: c.MemoryBytes, CPUShares: c.CPUShares, PidsLimit: &c.PIDs,
	}}
}

// containerInfo describes a container of the daemon.
type containerInfo struct {
	ID, Image string
	Labels    map[string]string
	// State is created, running, paused, restarting, removing, exited or dead.
	State string
	// PID is the number of its first process on the daemon's machine. It is 0 if the container does not run, and in lists.
	PID int
	// ExitCode and OutOfMemory are set for a container that has ended.
	ExitCode    int
	OutOfMemory bool
	// Told reports whether the daemon was asked to send the container a signal. Only end sets it.
	Told bool
	// Error is the reason why the container did not start.
	Error string
}

// inspect finds a container by its id or name. Codes: not_found.
func (d *daemon) inspect(ctx context.Context, id string) (containerInfo, error) {
	c, err := d.api.ContainerInspect(ctx, id)
	if err != nil {
		return containerInfo{}, failed("inspect container", err)
	}
	info := containerInfo{ID: c.ID, Image: c.Image, Labels: c.Config.Labels}
	if c.State != nil {
		info.State, info.PID, info.ExitCode, info.OutOfMemory, info.Error = c.State.Status, c.State.Pid, c.State.ExitCode, c.State.OOMKilled, c.State.Error
	}
	return info, nil
}

// sameEnd is the longest time between an out-of-memory kill in a container and its end for the two to count as one event.
const sameEnd = 10 * time.Second

// lateTime bounds the wait for an out-of-memory event after the end of a container whose first process failed without being
// killed, for example because its child was. The daemon learns of the memory and of the end on different ways.
const lateTime = time.Second

// end waits until a container does not run, and returns how it ended. The daemon may have removed the container by then. So end
// reads the daemon's last few hundred events instead. Among them an out-of-memory kill comes before the end of the container,
// or soon after it. So end waits for the kill if the exit code is not 0: until the container's removal, at most for
// lateTime unless the exit code is killedCode. Codes: not_found (the daemon knows nothing of its end).
func (d *daemon) end(ctx context.Context, id string) (containerInfo, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := containerInfo{ID: id, State: "running"}
	var out, died time.Time
	var late <-chan time.Time
	messages, errs := d.api.Events(ctx, events.ListOptions{Since: "1", Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)), filters.Arg("container", id), filters.Arg("event", string(events.ActionOOM)),
		filters.Arg("event", string(events.ActionKill)), filters.Arg("event", string(events.ActionDie)), filters.Arg("event", string(events.ActionDestroy)),
	)})
	for {
		select {
		case m := <-messages:
			switch at := time.Unix(0, m.TimeNano); m.Action {
			case events.ActionOOM:
				out = at
			case events.ActionKill:
				c.Told = true
			case events.ActionDie:
				died, c.State = at, "exited"
				c.ExitCode, _ = strconv.Atoi(m.Actor.Attributes["exitCode"]) // the daemon sends a number
			case events.ActionDestroy:
				if died.IsZero() {
					return c, executor.Errorf(executor.NotFound, "container %s is gone, and the daemon has no event of its end", id)
				}
				return c, nil // the last event of a container
			default:
			}
			c.OutOfMemory = !out.IsZero() && !died.IsZero() && died.Sub(out) < sameEnd
			if !died.IsZero() && (c.OutOfMemory || c.Told || c.ExitCode == 0) {
				return c, nil
			}
			if !died.IsZero() && late == nil && c.ExitCode != killedCode {
				late = time.After(d.late)
			}
		case <-late:
			return c, nil
		case err := <-errs:
			if !died.IsZero() {
				return c, nil
			}
			return d.ending(ctx, id, failed("events", err))
		}
	}
}

// ending returns how a container ended of which the daemon has no events. If the container still runs, ending returns the error
// running.
func (d *daemon) ending(ctx context.Context, id string, running error) (containerInfo, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	c, err := d.inspect(ctx, id)
	if err == nil && c.State == "running" {
		err = running
	}
	return c, err
}

// containers lists the containers with all these labels, in any state.
func (d *daemon) containers(ctx context.Context, labels map[string]string) ([]containerInfo, error) {
	list, err := d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filter(labels)})
	if err != nil {
		return nil, failed("list containers", err)
	}
	infos := make([]containerInfo, 0, len(list))
	for _, c := range list {
		infos = append(infos, containerInfo{ID: c.ID, Image: c.ImageID, Labels: c.Labels, State: c.State})
	}
	return infos, nil
}

// volumeUsed reports whether a container uses the volume called name. Containers that have ended or are being removed do not
// count.
func (d *daemon) volumeUsed(ctx context.Context, name string) (bool, error) {
	// The daemon treats the name as a pattern, which may match other volumes.
	list, err := d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("volume", name))})
	if err != nil {
		return false, failed("list containers", err)
	}
	return slices.ContainsFunc(list, func(c container.Summary) bool {
		uses := slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool { return m.Name == name })
		return uses && c.State != "removing" && c.State != "exited" && c.State != "dead"
	}), nil
}

// attach connects to a container's standard streams. If it is called before the start, no output is missed.
func (d *daemon) attach(ctx context.Context, id string) (net.Conn, *bufio.Reader, error) {
	h, err := d.api.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, nil, failed("attach", err)
	}
	return h.Conn, h.Reader, nil
}

// copyTo unpacks a tar into a folder of a container, running or not. Codes: not_found.
func (d *daemon) copyTo(ctx context.Context, id, folder string, tar io.Reader) error {
	return failed("copy into container", d.api.CopyToContainer(ctx, id, folder, tar, container.CopyToContainerOptions{}))
}

// size returns the size of a file in a container, running or not. Codes: not_found.
func (d *daemon) size(ctx context.Context, id, path string) (int64, error) {
	st, err := d.api.ContainerStatPath(ctx, id, path)
	if err != nil && strings.Contains(err.Error(), "no such file") {
		return 0, executor.Errorf(executor.NotFound, "docker: %w", err)
	}
	if err != nil {
		return 0, failed(fmt.Sprintf("stat %s", path), err)
	}
	return st.Size, nil
}
