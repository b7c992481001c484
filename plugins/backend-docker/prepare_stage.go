package dockerbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// stage describes one container of a preparation.
type stage struct {
	command      []string
	user         string
	network      string // empty: none
	capabilities []string
}

const (
	// preparePIDs bounds the processes and threads of a preparation.
	preparePIDs = 1024
	// prepareShares is half of a program's CPU shares, so that programs come first.
	prepareShares = 512
	// diskPause is the time between two checks of a preparation's disk usage.
	diskPause = 3 * time.Second
)

// commandCapabilities are the capabilities that apt, dpkg, apk and dnf need: to set owners and modes of files, and to switch to
// the user that downloads. They have no effect outside the container.
var commandCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP", "SETGID", "SETUID"}

// preparationSpec returns the container of a stage on an image. It is a pure function.
func preparationSpec(p place, settings prepareSettings, on imageInfo, s stage, name string, now time.Time) containerSpec {
	c := containerSpec{
		Name: name, Image: on.ID, Command: s.command, User: s.user, Folder: "/", Network: cmp.Or(s.network, defaultNetworkNone),
		Runtime: p.Runtime, WritableRoot: true, Capabilities: s.capabilities, NanoCPUs: p.NanoCPUs,
		Capacity: capacity{MemoryBytes: settings.memory, CPUShares: prepareShares, PIDs: p.Under.pids(preparePIDs)},
		Labels:   p.labels(kindPrepare, now), Tmpfs: map[string]string{},
	}
	c.Labels[labelDeadline] = seconds(now.Add(settings.timeout + time.Minute))
	for _, path := range on.Volumes {
		// A volume would take disk space of the daemon without a limit, and commit does not keep its files.
		c.Tmpfs[path] = tmpfs(scratchBytes, "0755", false)
	}
	return c
}

// stageRun holds the input of a stage's container and the functions that handle its output and life.
type stageRun struct {
	stdin          []byte
	stdout, stderr func(line string)
	// before is called after the container is made and before it starts. after is called when it has ended with exit code 0
	// within its limits.
	before, after func(ctx context.Context, id string) error
}

// stageEnd describes how a stage ended.
type stageEnd struct {
	exit        int
	outOfMemory bool
	// full reports whether the stage exceeded its disk limit.
	full bool
}

// errDiskFull is the cause that ends a stage beyond its disk limit.
var errDiskFull = errors.New("the preparation exceeds its disk limit")

// runStage runs a container to its end and removes it. Codes: invalid (its command cannot be executed), not_found (the image is
// gone), unavailable. When ctx ends, runStage removes the container and returns the cause.
func (i *images) runStage(ctx context.Context, s containerSpec, run stageRun) (end stageEnd, err error) {
	id, err := i.daemon.create(ctx, s)
	if err != nil {
		return stageEnd{}, errors.Join(context.Cause(ctx), err)
	}
	defer func() {
		ctx, cancel := cleanUp(ctx)
		defer cancel()
		if failed := i.daemon.remove(ctx, id); failed != nil {
			i.log.Error("remove a preparation's container", "container", id, "error", failed)
		}
	}()
	if ctx.Err() != nil {
		return stageEnd{}, context.Cause(ctx)
	}
	if err := run.before(ctx, id); err != nil {
		return stageEnd{}, err
	}
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = i.converse(watched, id, run, &end)
	if err == nil {
		err = i.overfull(ctx, id)
	}
	if errors.Is(err, errDiskFull) {
		return stageEnd{full: true}, nil
	}
	if err != nil || end.exit != 0 {
		return end, err
	}
	return end, run.after(ctx, id)
}

// converse starts a container, writes its input, reads its output and waits for its end.
func (i *images) converse(ctx context.Context, id string, run stageRun, end *stageEnd) error {
	ctx, stop := context.WithCancelCause(ctx)
	conn, in, err := i.daemon.attach(ctx, id)
	if err != nil {
		stop(nil)
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	wait := i.daemon.ended(ctx, id)
	var tasks sync.WaitGroup
	defer func() {
		stop(nil)
		conn.Close()
		tasks.Wait()
	}()
	if err := i.daemon.start(ctx, id); err != nil {
		return err
	}
	if len(run.stdin) > 0 {
		tasks.Go(func() {
			_, _ = conn.Write(run.stdin) // a container that does not read its input fails, and its output says why
		})
	}
	tasks.Go(func() { i.watchDisk(ctx, id, stop) })
	stdout, stderr := &requirements.Lines{Tell: run.stdout}, &requirements.Lines{Tell: run.stderr}
	// It returns at the end of the container, or of ctx, which closes conn.
	if err := demultiplex(in, stdout, stderr); err != nil && ctx.Err() == nil {
		i.log.Debug("read a preparation's output", "container", id, "error", err)
	}
	stdout.Flush()
	stderr.Flush()
	if end.exit, err = wait(); err != nil {
		return err
	}
	c, err := i.howEnded(ctx, id)
	end.outOfMemory = c.OutOfMemory
	if end.exit == killedCode && (executor.CodeOf(err) == executor.NotFound || c.Told) {
		return executor.Errorf(executor.Unavailable, "the preparation's container was killed")
	}
	return err
}

// howEnded returns how a container ended. The daemon may learn after the end that memory was the reason, or that it was asked to
// kill the container. So the daemon's events about a container that has failed are read until one of both is known, for as long
// as daemon.end waits, and at most for diedTime. Codes: not_found.
func (i *images) howEnded(ctx context.Context, id string) (containerInfo, error) {
	c, err := i.daemon.inspect(ctx, id)
	if err != nil || c.OutOfMemory || c.ExitCode == 0 {
		return c, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, diedTime, errSilent)
	defer cancel()
	if later, err := i.daemon.end(ctx, id); err == nil {
		c.OutOfMemory, c.Told = later.OutOfMemory, later.Told
	}
	return c, nil
}

// watchDisk stops a stage that exceeds its disk limit. What the stage writes between two checks is bounded only by the speed of
// the disk.
func (i *images) watchDisk(ctx context.Context, id string, stop context.CancelCauseFunc) {
	again := time.NewTicker(diskPause)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if err := i.overfull(ctx, id); err != nil {
				stop(err)
			}
		}
	}
}

func (i *images) overfull(ctx context.Context, id string) error {
	written, err := i.daemon.written(ctx, id)
	if err == nil && written > i.settings.disk {
		err = errDiskFull
	}
	return err
}

// commit makes the image of key from a container that has ended.
func (i *images) commit(ctx context.Context, id, key string, labels map[string]string) (imageFacts, error) {
	written, err := i.daemon.written(ctx, id)
	if err != nil {
		return imageFacts{}, err
	}
	labels[labelBytes] = strconv.FormatInt(written, 10)
	for _, of := range []string{labelInstance, labelBoot, labelKind, labelCreated, labelDeadline} {
		labels[of] = "" // the labels of the container, which the image must not have
	}
	image, err := i.daemon.commit(ctx, id, preparedName(key), labels)
	if err != nil {
		return imageFacts{}, fmt.Errorf("commit the prepared image: %w", err)
	}
	return i.daemon.image(ctx, image)
}
