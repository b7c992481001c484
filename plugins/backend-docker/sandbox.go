package dockerbackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

var errSilent = errors.New("the runner does not answer")

// sandbox is a running container of this backend, with the connection to its runner.
type sandbox struct {
	id    string
	class class
	has   capacity
	conn  *runner.Conn
	gone  <-chan struct{} // closed when the connection to the runner has ended
	since time.Time       // when it joined the pool
}

// ended reports whether the connection to the runner has ended.
func (s *sandbox) ended() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// factory makes and removes sandboxes.
type factory struct {
	daemon  *daemon
	place   place
	volume  *runnerVolume
	silence time.Duration
	network func(context.Context) (string, error)
	// full reports whether a container ran out of memory. It waits a while for the container's end.
	full func(ctx context.Context, container string) bool
	// image returns what is known of an image, and interpreter its Python.
	image       func(id string) imageInfo
	interpreter func(imageInfo) (runner.Interpreter, bool)
	cleaner     *cleaner
	log         *slog.Logger

	// works reports whether a sandbox has ever been made.
	works atomic.Bool
}

var _ maker = (*factory)(nil)

// unstartable is the error of a container that cannot be started or used although the daemon answers. It may be temporary,
// unless no container has ever worked.
type unstartable struct{ error }

func (u unstartable) Unwrap() error { return u.error }

// make implements maker. If it fails, it removes what it has created. If this process dies meanwhile, the reaper finds the
// container by its labels. Codes: not_found (the image is gone), invalid, unimplemented (no sandbox has ever started here, with
// the reason), unavailable.
func (f *factory) make(ctx context.Context, c class, limits capacity) (*sandbox, error) {
	s, err := f.try(ctx, c, limits)
	if err != nil && ctx.Err() == nil && executor.CodeOf(err) != executor.NotFound {
		// The runner's volume or the network may have been removed.
		f.volume.doubt()
		s, err = f.try(ctx, c, limits)
	}
	if err == nil {
		f.works.Store(true)
	} else if _, ok := errors.AsType[unstartable](err); ok && !f.works.Load() {
		err = executor.Errorf(executor.Unimplemented, "no container can run programs on this daemon: %w", err)
	}
	return s, err
}

func (f *factory) try(ctx context.Context, c class, limits capacity) (_ *sandbox, err error) {
	p := f.place
	if p.Hosts, err = f.volume.ensure(ctx, c.Image); err != nil {
		return nil, err
	}
	if c.Network {
		if p.Network, err = f.network(ctx); err != nil {
			return nil, err
		}
	}
	id, err := f.daemon.create(ctx, sandboxSpec(p, c, limits, f.image(c.Image).Volumes, newName(kindSandbox), time.Now()))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.cleaner.remove(id)
		}
	}()
	// Attaching before the start makes sure that no output of the runner is lost.
	conn, in, err := f.daemon.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := f.daemon.start(ctx, id); err != nil {
		if ctx.Err() == nil && answered(err) {
			err = unstartable{err}
		}
		return nil, errors.Join(err, conn.Close())
	}
	rc, err := f.greet(ctx, id, conn, in, f.ahead(c))
	if err != nil {
		return nil, err
	}
	return &sandbox{id: id, class: c, has: limits, conn: rc, gone: rc.Done(), since: time.Now()}, nil
}

// ahead returns the interpreter that starts in a container of class c while the container waits, or nil.
func (f *factory) ahead(c class) *runner.Ahead {
	image := f.image(c.Image)
	if !image.Ahead {
		return nil
	}
	i, known := f.interpreter(image)
	if !known || i.Path == "" {
		return nil
	}
	return &runner.Ahead{Interpreter: i.Path, Path: image.Path, Session: c.Session}
}

// greet sets up the connection to the runner at the other end of conn.
func (f *factory) greet(ctx context.Context, id string, conn net.Conn, in *bufio.Reader, ahead *runner.Ahead) (*runner.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	streams := newStdio(conn, in, f.inside(ctx, id), f.log.With("container", short(id)))
	config := runner.Config{WorkRoot: workFolder, UseWorkRoot: true, Temp: tempFolder, Disks: []string{packagesFolder}, Silence: f.silence, Ahead: ahead}
	if f.place.Under.rootRunner() {
		config.UID, config.GID, config.OwnUID = programID, programID, true
	}
	rc, err := runner.NewConn(streams, config)
	if err != nil {
		return nil, f.explain(ctx, id, err, streams.said)
	}
	if (rc.Kernel() == protocol.KernelGVisor) != f.place.Under.gvisor {
		_ = rc.Close() // the runner cannot be used
		return nil, unstartable{executor.Errorf(executor.Unavailable, "the runtime's name does not match its kernel: the name must contain runsc or gvisor if, and only if, the runtime is gVisor")}
	}
	return rc, nil
}

// inside returns direct access to a container's pipes, without the daemon; nil if it is not possible.
func (f *factory) inside(ctx context.Context, id string) inside {
	if !f.daemon.local() || os.Geteuid() != 0 || f.place.Under.vm {
		return nil
	}
	c, err := f.daemon.inspect(ctx, id)
	if err != nil {
		return nil
	}
	return func(fd int) (*os.File, error) { return openDirect(c.PID, id, fd) }
}

// explain adds to err what is known of a container whose runner does not answer. said is the end of the runner's standard
// error.
func (f *factory) explain(ctx context.Context, id string, err error, said string) error {
	within, cancel := context.WithTimeoutCause(ctx, diedTime, errSilent)
	defer cancel()
	c, endErr := f.daemon.end(within, id)
	said = strings.TrimSpace(said)
	switch {
	case endErr != nil && executor.CodeOf(endErr) != executor.NotFound: // it still runs
		return err
	case endErr == nil && (c.OutOfMemory || c.ExitCode == killedCode):
		return fmt.Errorf("%w; the container was killed", err)
	case endErr == nil:
		err = fmt.Errorf("%w; its container has ended with exit code %d %s", err, c.ExitCode, c.Error)
	}
	if said == "" && endErr != nil {
		return err // the reason is unknown
	}
	if said != "" {
		err = fmt.Errorf("%w: the runner wrote %q", err, said)
	}
	return unstartable{err}
}

// killedCode is the exit code of a container that was killed.
const killedCode = 128 + 9

// diedTime bounds the query how a container ended whose connection is gone.
const diedTime = 5 * time.Second // the daemon learns of the end some 50 ms later than this process, or more on a busy machine

// wasOutOfMemory reports whether a container ran out of memory. The files in its folders count as memory too, and killing a
// process does not free them. So the kernel may kill the runner, which then cannot report the cause.
func (f *factory) wasOutOfMemory(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*diedTime, errSilent) // a long bound, because a wrong answer would be final
	defer cancel()
	c, err := f.daemon.end(ctx, id)
	if err != nil {
		return false
	}
	// Under gVisor the kernel kills gVisor's own process, which ends the control group. On a busy machine the daemon may not
	// have read the group's events by then. No other party kills that process, unless the daemon was asked to.
	return c.OutOfMemory || f.place.Under.gvisor && c.ExitCode == killedCode && !c.Told
}

// died reports whether a container has ended, or ends within diedTime.
func (f *factory) died(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, diedTime, errSilent)
	defer cancel()
	_, err := f.daemon.end(ctx, id)
	return err == nil || executor.CodeOf(err) == executor.NotFound
}

// update implements maker.
func (f *factory) update(ctx context.Context, s *sandbox, limits capacity) error {
	return f.daemon.update(ctx, s.id, limits)
}

// check implements maker.
func (f *factory) check(ctx context.Context, s *sandbox) error {
	if s.ended() {
		return errSilent
	}
	return s.conn.Check(ctx)
}

// discard implements maker.
func (f *factory) discard(s *sandbox) {
	f.cleaner.do(func(ctx context.Context) error {
		// Removing the container kills the runner.
		_ = s.conn.Detach() // the connection has no further use
		return f.daemon.remove(ctx, s.id)
	})
}

func short(id string) string { return id[:min(len(id), 12)] }

// cleaner removes containers in the background, at most cleanAtOnce at a time. When cleanBacklog are waiting, callers block.
type cleaner struct {
	daemon *daemon
	log    *slog.Logger
	turns  chan struct{}
	queue  chan struct{}
	wg     sync.WaitGroup
}

const (
	// cleanAtOnce is how many containers are removed at the same time.
	cleanAtOnce = 2
	// cleanBacklog is how many removals may be running or waiting.
	cleanBacklog = 64
)

func newCleaner(d *daemon, log *slog.Logger) *cleaner {
	return &cleaner{daemon: d, log: log, turns: make(chan struct{}, cleanAtOnce), queue: make(chan struct{}, cleanBacklog)}
}

// do runs work in the background, at its turn.
func (c *cleaner) do(work func(context.Context) error) {
	c.queue <- struct{}{}
	c.wg.Go(func() {
		c.turns <- struct{}{}
		defer func() { <-c.turns; <-c.queue }()
		ctx, cancel := cleanUp(context.Background())
		defer cancel()
		if err := work(ctx); err != nil {
			c.log.Warn("remove a container; the reaper tries again", "error", err)
		}
	})
}

// now runs work at its turn and returns its error. The end of ctx ends only the wait. Codes: unavailable (the work goes on),
// those of work.
func (c *cleaner) now(ctx context.Context, work func(context.Context) error) error {
	done := make(chan error, 1)
	c.wg.Go(func() {
		c.turns <- struct{}{}
		defer func() { <-c.turns }()
		ctx, cancel := cleanUp(ctx)
		defer cancel()
		done <- work(ctx)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "a container is not removed yet: %w", context.Cause(ctx))
	}
}

func (c *cleaner) remove(id string) {
	c.do(func(ctx context.Context) error { return c.daemon.remove(ctx, id) })
}

// wait returns when all work is done.
func (c *cleaner) wait() { c.wg.Wait() }
