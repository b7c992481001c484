package dockerbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner"
)

// Backend runs programs in containers. It implements executor.Backend, executor.SessionBackend and io.Closer.
type Backend struct {
	backend.Calls

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
	sessions     backend.Sessions[*session]
	full         fullSessions
	results      results

	reaped atomic.Int64

	base context.Context //nolint:containedctx // the backend's life
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	jobs backend.Jobs

	mu      sync.Mutex
	warmErr error // why the default image cannot be used; nil: it can
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
	if executor.CodeOf(err) == executor.Unavailable {
		return nil, fmt.Errorf("%w (%s)", err, noDaemon)
	}
	if err != nil {
		return nil, err
	}
	b := &Backend{name: c.Name, config: config, embedded: c.Embedded, log: log, daemon: d}
	b.Use = b.useConn
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
		// Each call is an installation of its own. The next call removes the volume of one that was killed.
		b.place.Volume = p.volumeName("embedded-" + strconv.Itoa(os.Getuid()))
	}
	b.can = promises(b.facts, config)
	if err := b.equip(c.DataDir, p); err != nil {
		return nil, errors.Join(err, d.close())
	}
	b.begin()
	return b, nil
}

// equip creates the backend's parts.
func (b *Backend) equip(dataDir string, p program) error {
	b.cleaner = newCleaner(b.daemon, b.log)
	b.volume = &runnerVolume{daemon: b.daemon, program: p, place: func() place { return b.place }}
	b.networks = newNetworks(b.daemon, b.config.Network, b.place.Instance, b.log)
	b.networks.boot = b.place.Boot
	home, _ := os.UserHomeDir() // without a home folder there are no files to read
	var err error
	if b.images, err = newImages(b.base, b.name, b.config, imagesOptions{
		daemon: b.daemon, place: b.place, network: b.networks.ensure, under: b.facts.under,
		interpreter: func(ctx context.Context, image imageInfo) (runner.Interpreter, error) {
			return b.interpreters.find(ctx, image)
		},
		host: hostSettings{docker: credentialsFile(dockerFolder()), home: home, env: os.Getenv}, log: b.log,
	}); err != nil {
		return err
	}
	b.factory = &factory{
		daemon: b.daemon, place: b.place, volume: b.volume, silence: b.config.silence(), network: b.networks.ensure,
		image: b.images.returned, cleaner: b.cleaner, log: b.log,
	}
	b.factory.full = b.factory.wasOutOfMemory
	b.interpreters = newInterpreters(b.base, b.factory, b.config.Runtime)
	b.factory.interpreter = b.interpreters.answered
	b.results.max = max(minResults, 4*b.facts.NCPU)
	b.claims = &claims{boot: b.place.Boot}
	if dataDir != "" && !b.embedded {
		b.claims.dir = filepath.Join(dataDir, "claims")
	}
	b.interpreters.keep(dataDir, b.embedded)
	o := poolOptions{
		min: b.config.Pool.MinIdle, minSessions: b.config.Pool.Sessions, max: b.config.Pool.Max, maxMaking: max(2, 2*b.facts.NCPU), log: b.log,
	}
	if b.embedded {
		o.min, o.minSessions = 0, 0
	}
	b.pool = newPool(b.factory, o)
	return nil
}

// begin starts the background work.
func (b *Backend) begin() {
	b.wg.Go(func() { b.reap(b.base) })
	if !b.embedded {
		b.wg.Go(b.warm)
	}
}

// warm fills the pool for the most likely jobs: those with the default image and the default limits.
func (b *Backend) warm() {
	info, err := b.images.ensure(b.base, b.config.DefaultImage, backend.NoProgress)
	if err == nil {
		_, err = b.interpreters.find(b.base, info)
	}
	if err != nil {
		if b.base.Err() == nil {
			b.log.Warn("start containers of the default image", "image", b.config.DefaultImage, "error", err)
			b.warmed(err)
		}
		return
	}
	limits := executor.Limits{MemoryBytes: 1 << 30, DiskBytes: 2 << 30, CPUShares: 1024, PIDs: 256}
	for _, session := range []bool{false, true} {
		b.pool.warm(b.class(info.ID, executor.NetworkDefault, limits, session), capacityOf(limits))
	}
}

// warmed records why the default image cannot be used, for Info; nil means that it can.
func (b *Backend) warmed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.warmErr = err
}

// Remove implements executor.Backend. It ends a running program, also of an earlier life of this plugin. It drops the Result of
// a program that has ended.
func (b *Backend) Remove(ctx context.Context, id string) error {
	if err := b.jobs.Remove(ctx, id); err != nil {
		return err
	}
	return b.removeClaimed(ctx, id)
}

// Close leaves running programs and kept Results to the next backend, which may Attach to them for Config.SilenceSeconds. An
// embedded backend ends them. Waiting containers are removed. Close is idempotent; afterwards Run returns unavailable.
func (b *Backend) Close() error {
	cause := executor.ErrCallerGone
	if b.embedded {
		cause = backend.ErrClosed
	}
	if !b.jobs.Close(cause) {
		return nil
	}
	b.leaveSessions(!b.embedded)
	b.stop(backend.ErrClosed)
	b.wg.Wait()
	b.images.pulls.Wait()
	b.images.prepares.Wait()
	b.interpreters.asking.Wait()
	b.pool.close()
	b.cleaner.wait()
	ctx, cancel := cleanUp(context.Background())
	defer cancel()
	return errors.Join(b.volume.remove(ctx), b.networks.close(ctx), b.daemon.close())
}

// deadline returns the longest life of a job's container. It is long after the timeout, because the preparation has its own
// timeout.
func deadline(l executor.Limits) time.Duration { return l.Timeout + l.KillGrace + time.Hour }
