package dockerbackend

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

// Backend runs programs in containers. It implements executor.Backend, executor.SessionBackend and io.Closer.
type Backend struct {
	name     string
	config   Config
	embedded bool
	log      *slog.Logger
	daemon   *daemon
	facts    daemonInfo
	can      executor.Capabilities
	place    place

	volume       *runnerVolume
	networks     *networks
	images       *images
	interpreters *interpreters
	factory      *factory
	pool         *pool
	cleaner      *cleaner
	claims       *claims
	sessions     sessions
	results      results

	reaped atomic.Int64

	base context.Context //nolint:containedctx // the backend's life
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running map[string]*running
	warmErr error // why the default image could not be used last
}

// running is one job at work.
type running struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

var (
	_ executor.Backend = (*Backend)(nil)
	_ plugin.Factory   = Factory
)

// Factory makes the backend from its section of the configuration. Codes: invalid, unavailable, internal.
func Factory(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
	p, err := runnerProgram()
	if err != nil {
		return nil, err
	}
	b, err := newBackend(ctx, c, p)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func newBackend(ctx context.Context, c plugin.Configure, p program) (*Backend, error) {
	config, err := parseConfig(c.Name, c.Options)
	if err != nil {
		return nil, err
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d, err := dial(ctx, config.Host)
	if err != nil {
		return nil, err
	}
	b := &Backend{name: c.Name, config: config, embedded: c.Embedded, log: log, daemon: d, running: map[string]*running{}}
	b.base, b.stop = context.WithCancelCause(context.Background())
	if b.facts, err = d.info(ctx); err == nil {
		err = checkDaemon(c.Name, config, b.facts)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	b.place = place{
		Under: b.facts.under(config.Runtime), Instance: c.Instance, Boot: newBoot(), Volume: p.volumeName(c.Instance), Program: p.argv(), NanoCPUs: int64(config.CPUs * 1e9),
	}
	if c.Embedded {
		// Each call is an installation of its own; one that is killed leaves a volume that the next removes.
		b.place.Volume = p.volumeName("embedded-" + strconv.Itoa(os.Getuid()))
	}
	b.can = promises(b.facts, config)
	if err := b.equip(c.DataDir, p); err != nil {
		return nil, errors.Join(err, d.close())
	}
	b.begin()
	return b, nil
}

// equip makes the parts.
func (b *Backend) equip(dataDir string, p program) error {
	b.cleaner = newCleaner(b.daemon, b.log)
	b.volume = &runnerVolume{daemon: b.daemon, program: p, place: func() place { return b.place }}
	b.networks = newNetworks(b.daemon, b.config.Network, b.place.Instance, b.log)
	b.networks.boot = b.place.Boot
	home, _ := os.UserHomeDir() // without one there is nothing to read in it
	var err error
	if b.images, err = newImages(b.name, b.config, imagesOptions{
		daemon: b.daemon, place: b.place, network: b.networks.ensure, under: b.facts.under,
		interpreter: func(ctx context.Context, image imageInfo) (interpreter, error) {
			return b.interpreters.find(ctx, image)
		},
		host: hostSettings{docker: credentialsFile(dockerFolder()), home: home, env: os.Getenv}, log: b.log,
	}); err != nil {
		return err
	}
	b.factory = &factory{
		daemon: b.daemon, place: b.place, volume: b.volume, silence: b.config.silence(), network: b.networks.ensure,
		covered: b.images.volumes, cleaner: b.cleaner, log: b.log,
	}
	b.factory.full = b.factory.wasOutOfMemory
	b.interpreters = newInterpreters(b.factory, b.config.Runtime)
	b.results.most = max(minResults, 4*b.facts.CPUs)
	b.claims = &claims{boot: b.place.Boot}
	if dataDir != "" && !b.embedded {
		b.claims.dir = filepath.Join(dataDir, "claims")
	}
	b.interpreters.keep(dataDir, b.embedded)
	o := poolOptions{
		min: b.config.Pool.MinIdle, minSessions: b.config.Pool.Sessions, max: b.config.Pool.Max, atOnce: max(2, 2*b.facts.CPUs), log: b.log,
	}
	if b.embedded {
		o.min, o.minSessions = 0, 0
	}
	b.pool = newPool(b.factory, o)
	return nil
}

// begin starts what runs beside the jobs.
func (b *Backend) begin() {
	b.wg.Go(func() { b.reap(b.base) })
	if !b.embedded {
		b.wg.Go(b.warm)
	}
}

// warm makes containers wait for what will probably be asked for: the default image with the default limits.
func (b *Backend) warm() {
	info, err := b.images.ensure(b.base, b.config.DefaultImage, func(executor.Progress) {})
	if err == nil {
		_, err = b.interpreters.find(b.base, info)
	}
	if err != nil {
		if b.base.Err() == nil {
			b.log.Warn("nothing waits for the default image", "image", b.config.DefaultImage, "error", err)
			b.warmed(err)
		}
		return
	}
	limits := executor.Limits{MemoryBytes: 1 << 30, DiskBytes: 2 << 30, CPUShares: 1024, PIDs: 256}
	for _, session := range []bool{false, true} {
		b.pool.warm(b.class(info.ID, executor.NetworkDefault, limits, session), capacityOf(limits))
	}
}

// warmed notes why the default image cannot be used, for Info; nil: it can.
func (b *Backend) warmed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.warmErr = err
}

// Remove implements executor.Backend: it ends what runs, here or left by an earlier life of this plugin, and gives up the
// Result of what has ended.
func (b *Backend) Remove(ctx context.Context, id string) error {
	b.mu.Lock()
	r := b.running[id]
	b.mu.Unlock()
	if r != nil {
		r.cancel(executor.Errorf(executor.Unavailable, "removed"))
		select {
		case <-r.done:
		case <-ctx.Done():
			return executor.Errorf(executor.Unavailable, "remove %s: %w", id, context.Cause(ctx))
		}
	}
	return b.removeClaimed(ctx, id)
}

// Close lets go of what runs, and of Results that were not removed: they are there without a backend for
// Config.SilenceSeconds, in which the next one may Attach; an embedded backend ends them. Everything that waits is removed.
// Idempotent; Run answers unavailable then.
func (b *Backend) Close() error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	var ends []chan struct{}
	for _, r := range b.running {
		if b.embedded {
			r.cancel(errClosed)
		} else {
			r.cancel(executor.ErrCallerGone)
		}
		ends = append(ends, r.done)
	}
	b.mu.Unlock()
	for _, end := range ends {
		<-end
	}
	if again {
		return nil
	}
	b.leaveSessions(!b.embedded)
	b.stop(errClosed)
	b.wg.Wait()
	b.images.close()
	b.interpreters.close()
	b.pool.close()
	b.cleaner.wait()
	ctx, cancel := cleanUp(context.Background())
	defer cancel()
	return errors.Join(b.volume.remove(ctx), b.networks.close(ctx), b.daemon.close())
}

// enter registers a job. Its ctx also ends with Remove and Close.
func (b *Backend) enter(ctx context.Context, id string) (context.Context, *running, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, errClosed
	}
	if b.running[id] != nil {
		return nil, nil, executor.Errorf(executor.Conflict, "execution %s runs already", id)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{cancel: cancel, done: make(chan struct{})}
	b.running[id] = r
	return ctx, r, nil
}

func (b *Backend) leave(id string, r *running) {
	b.mu.Lock()
	delete(b.running, id)
	b.mu.Unlock()
	r.cancel(nil)
	close(r.done)
}

// deadline is when nothing of a job may be left, whatever happens: long after its timeout, because what comes before the
// program has a clock of its own.
func deadline(l executor.Limits) time.Duration { return l.Timeout + l.KillGrace + time.Hour }
