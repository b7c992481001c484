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
)

var errSilent = errors.New("the runner is silent")

// sandbox is a container of ours that runs, and the connection to the runner in it.
type sandbox struct {
	id    string
	class class
	has   capacity
	conn  *runner.Conn
	gone  <-chan struct{} // closed when the connection has ended
	since time.Time       // when it began to wait
}

// ended reports whether the runner is gone.
func (s *sandbox) ended() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// factory makes sandboxes and clears them away.
type factory struct {
	daemon  *daemon
	place   place
	volume  *runnerVolume
	silence time.Duration
	network func(context.Context) (string, error)
	// full reports whether a container has ended, or does soon, for its memory.
	full func(ctx context.Context, container string) bool
	// covered are the volumes that an image declares.
	covered func(image string) []string
	cleaner *cleaner
	log     *slog.Logger

	// works: a sandbox has been made.
	works atomic.Bool
}

var _ maker = (*factory)(nil)

// unstartable is why a container does not become a sandbox although the daemon is there. It may pass, unless it was never
// otherwise.
type unstartable struct{ error }

func (u unstartable) Unwrap() error { return u.error }

// make implements maker. What it has created when it fails is removed again; if this process dies between, the reaper
// finds it by its labels. Codes: not_found (the image is gone), invalid, unimplemented (no container has ever become one here,
// and why), unavailable.
func (f *factory) make(ctx context.Context, c class, limits capacity) (*sandbox, error) {
	s, err := f.try(ctx, c, limits)
	if err != nil && ctx.Err() == nil && executor.CodeOf(err) != executor.NotFound {
		// Somebody may have removed the runner's volume, or the network.
		f.volume.doubt()
		s, err = f.try(ctx, c, limits)
	}
	if err == nil {
		f.works.Store(true)
	} else if _, ok := errors.AsType[unstartable](err); ok && !f.works.Load() {
		err = executor.Errorf(executor.Unimplemented, "no program can be started here: %w", err)
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
	// Not cut off by ctx: the daemon would create it all the same, and nobody would know its id.
	creating, cancel := cleanUp(ctx)
	id, err := f.daemon.create(creating, sandboxSpec(p, c, limits, f.covered(c.Image), newName(kindSandbox), time.Now()))
	cancel()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.cleaner.remove(id)
		}
	}()
	// Attached before it starts: nothing that the runner says is missed.
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
	rc, err := f.greet(ctx, id, conn, in)
	if err != nil {
		return nil, err
	}
	return &sandbox{id: id, class: c, has: limits, conn: rc, gone: rc.Done(), since: time.Now()}, nil
}

// greet makes the runner at the other end of conn ours.
func (f *factory) greet(ctx context.Context, id string, conn net.Conn, in *bufio.Reader) (*runner.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	streams := newStdio(conn, in, f.inside(ctx, id), f.log.With("container", short(id)))
	config := runner.Config{WorkRoot: workFolder, UseWorkRoot: true, Temp: tempFolder, Silence: f.silence}
	if f.place.Under.rootRunner() {
		config.UID, config.GID, config.OwnUID = programID, programID, true
	}
	rc, err := runner.NewConn(streams, config)
	if err != nil {
		return nil, f.explain(ctx, id, err, streams.said)
	}
	if (rc.Kernel() == runner.KernelGVisor) != f.place.Under.gvisor {
		_ = rc.Close() // it is of no use
		return nil, unstartable{executor.Errorf(executor.Unavailable, "the runtime's name says another kernel than there is: a runtime that is gVisor's has runsc in its name, and no other")}
	}
	return rc, nil
}

// inside is the short way into a container; nil: there is none.
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

// explain adds what is known of a container whose runner does not answer: said is the last that it wrote to its standard
// error.
func (f *factory) explain(ctx context.Context, id string, err error, said string) error {
	within, cancel := context.WithTimeoutCause(ctx, diedTime, errSilent)
	defer cancel()
	c, endErr := f.daemon.end(within, id)
	said = strings.TrimSpace(said)
	switch {
	case endErr != nil && executor.CodeOf(endErr) != executor.NotFound: // it runs on
		return err
	case endErr == nil && (c.OutOfMemory || c.ExitCode == killedCode):
		return fmt.Errorf("%w; the container was killed", err)
	case endErr == nil:
		err = fmt.Errorf("%w; its container has ended with exit code %d %s", err, c.ExitCode, c.Error)
	}
	if said == "" && endErr != nil {
		return err // nobody knows
	}
	if said != "" {
		err = fmt.Errorf("%w: it said %q", err, said)
	}
	return unstartable{err}
}

// killedCode is the exit code of a container that was killed.
const killedCode = 128 + 9

// diedTime bounds the question how a container ended whose connection has.
const diedTime = 5 * time.Second // the daemon knows some 50 ms after us, or later if its machine is busy

// wasOutOfMemory reports whether a container ended for its memory: what lies in its folders is memory, too, and nobody's to
// kill, so the kernel may end the runner as well, which can then not say so.
func (f *factory) wasOutOfMemory(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*diedTime, errSilent) // patient: the wrong answer would be final
	defer cancel()
	c, err := f.daemon.end(ctx, id)
	if err != nil {
		return false
	}
	// gVisor's own process is what the kernel ends, and takes the control group along: on a busy machine before the daemon has
	// looked into that. Nobody else kills it, but who told the daemon to.
	return c.OutOfMemory || f.place.Under.gvisor && c.ExitCode == killedCode && !c.Told
}

// died reports whether a container has ended, or does within diedTime.
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
		// It is killed by its container, whatever the runner does.
		_ = s.conn.Detach() // the connection is of no more use
		return f.daemon.remove(ctx, s.id)
	})
}

func short(id string) string { return id[:min(len(id), 12)] }

// cleaner clears containers away behind the answers, a few at a time. Its backlog is bounded: beyond it callers wait.
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
	// cleanBacklog is how many may wait for that.
	cleanBacklog = 64
)

func newCleaner(d *daemon, log *slog.Logger) *cleaner {
	return &cleaner{daemon: d, log: log, turns: make(chan struct{}, cleanAtOnce), queue: make(chan struct{}, cleanBacklog)}
}

// do runs work when it is its turn.
func (c *cleaner) do(work func(context.Context) error) {
	c.queue <- struct{}{}
	c.wg.Go(func() {
		c.turns <- struct{}{}
		defer func() { <-c.turns; <-c.queue }()
		ctx, cancel := cleanUp(context.Background())
		defer cancel()
		if err := work(ctx); err != nil {
			c.log.Warn("a container was not removed; it will be later", "error", err)
		}
	})
}

// now runs work when it is its turn, and returns what came of it. The end of ctx ends only the waiting for that. Codes:
// unavailable (it goes on), work's.
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

// wait returns when everything is done.
func (c *cleaner) wait() { c.wg.Wait() }
