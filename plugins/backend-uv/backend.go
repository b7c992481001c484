package uvbackend

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner"
)

// rediscoverPause is the least time between two searches for an interpreter that is not there.
const rediscoverPause = 10 * time.Second

// Backend runs Python on this machine. It implements executor.Backend and io.Closer.
type Backend struct {
	name     string
	config   Config
	embedded bool
	how      mechanisms
	groups   runner.Cgroups
	groupErr error
	can      executor.Capabilities // but PythonVersions, which may change
	prober   prober
	cache    *cache
	tool     *uvTool
	flights  *flights
	slots    *slots
	log      *slog.Logger

	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	inventory atomic.Pointer[inventory]
	// languages are the interpreters of sessions that are not in Python.
	languages knownLanguages
	sessions  sessions
	warm      warmSessions
	life      context.Context // ends with Close

	searching sync.Mutex
	searched  time.Time // guarded by searching

	mu      sync.Mutex
	running map[string]*running
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
	b, err := newBackend(ctx, c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func newBackend(ctx context.Context, c plugin.Configure) (*Backend, error) {
	config, err := parseConfig(c.Name, c.Options)
	if err != nil {
		return nil, err
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{name: c.Name, config: config, embedded: c.Embedded, log: log, running: map[string]*running{}}
	if err := makeFolders(c.Name, config); err != nil {
		return nil, err
	}
	users := make(chan error, 1)
	go func() { users <- config.checkUsers(ctx, c.Name, thisHost()) }() // beside what else asks the machine
	b.how = findMechanisms(config, filepath.Join(config.CacheDir, "mechanisms.json"))
	if err := cmp.Or(<-users, checkFolders(c.Name, config, b.how)); err != nil {
		return nil, err
	}
	found, err := runner.FindCgroups()
	b.groupErr = err
	ids, err := b.uidPool()
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "uid locks: %w", err)
	}
	if err := b.sweep(ctx, found, ids); err != nil {
		return nil, executor.Errorf(executor.Internal, "clean up: %w", err)
	}
	claim, err := claimWork(ctx, config.WorkDir, c.Instance)
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "claim a work folder: %w", err)
	}
	if b.groups, err = found.Make(groupName(claim.name)); err != nil {
		b.groupErr, b.groups = errors.Join(b.groupErr, err), nil
	}
	keep := keptSlots
	if c.Embedded {
		keep = 1
	}
	// All programs together weigh as much as one ordinary process per core, not as one.
	if err := weigh(b.groups, 1024*int64(runtime.NumCPU()), 100*int64(runtime.NumCPU())); err != nil {
		log.Warn("CPU weight not set", "error", err)
	}
	if b.slots, err = newSlots(claim, b.how, b.groups, ids, keep, []string{filepath.Join(config.CacheDir, "environments"), b.aliasDir()}, log); err != nil {
		claim.release()
		return nil, executor.Errorf(executor.Internal, "%w", err)
	}
	b.languages = findLanguages(places{path: cmp.Or(os.Getenv("PATH"), defaultPath), home: homeDir(), env: os.Getenv}, b.how)
	b.can = promises(b.how, b.groups, config)
	b.can.Languages = b.languages.list()
	b.begin(ctx, keep)
	return b, nil
}

// begin starts what runs beside the jobs. Runners start while interpreters are looked for; one is started ahead even for
// a single call, because it comes up while the call is still on its way here.
func (b *Backend) begin(ctx context.Context, keep int) {
	base, stop := context.WithCancelCause(context.Background())
	b.stop, b.life = stop, base
	if b.warm.keep = b.config.WarmSessions; b.embedded {
		b.warm.keep = 0
	}
	b.slots.warm(base, max(1, keep-1))
	b.equip(b.slots.ids)
	b.flights = newFlights(base, newBuilder(b))
	b.search(ctx)
	b.wg.Go(func() {
		b.cache.clean()
		if !b.embedded { // a single call only evicts after it has built
			b.cache.evict(base, "")
		}
	})
}

// equip makes what finds interpreters, uv and environments.
func (b *Backend) equip(ids *uidPool) {
	where := places{path: os.Getenv("PATH"), home: homeDir(), env: os.Getenv}
	if where.path == "" {
		where.path = defaultPath
	}
	b.prober = prober{places: where, cache: filepath.Join(b.config.CacheDir, "interpreters.json"), owner: "self", log: b.log}
	if ids != nil {
		b.prober.owner = b.how.uids.String()
		b.prober.claim = func() (*uidClaim, error) { return ids.take(b.how.uids) }
	}
	b.cache = newCache(b.config.CacheDir, b.config.CacheBytes, b.log)
	b.tool = newUVTool(filepath.Join(b.config.CacheDir, "tools"), where, hostIndex(b.config.IndexURL, where.home, os.Getenv), b.ownPythons, b.log)
}

func (b *Backend) aliasDir() string { return filepath.Join(b.config.CacheDir, "bin") }

func groupName(claim string) string { return "python-executor-" + claim }

// makeFolders makes what is not there. The package cache is closed to programs from the beginning: its files hold addresses with
// credentials, and whoever holds uv's lock in it stalls every build. The rest programs may read.
func makeFolders(name string, c Config) error {
	for _, f := range []struct {
		key, path string
		mode      os.FileMode
	}{
		{"cache_dir", c.CacheDir, 0o755}, {"cache_dir", filepath.Join(c.CacheDir, "environments"), 0o755},
		{"cache_dir", filepath.Join(c.CacheDir, "bin"), 0o755}, {"cache_dir", filepath.Join(c.CacheDir, "tools"), 0o711},
		{"work_dir", c.WorkDir, 0o711},
	} {
		if err := ensureDir(f.path, f.mode); err != nil {
			return executor.FieldErrorf(executor.Invalid, "backends."+name+"."+f.key, "%v", err)
		}
	}
	packages := filepath.Join(c.CacheDir, packagesName) // it belongs to the uid that fills it
	if err := os.Mkdir(packages, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return executor.FieldErrorf(executor.Invalid, "backends."+name+".cache_dir", "%v", err)
	}
	// Earlier versions made both with other modes.
	if err := errors.Join(os.Chmod(packages, 0o700), os.Chmod(filepath.Join(c.CacheDir, "tools"), 0o711)); err != nil { //nolint:gosec // folders
		return executor.FieldErrorf(executor.Invalid, "backends."+name+".cache_dir", "%v", err)
	}
	if err := checkWorkDir(c.WorkDir); err != nil {
		return executor.FieldErrorf(executor.Invalid, "backends."+name+".work_dir", "%v", err)
	}
	return nil
}

// checkFolders refuses folders that the uids of programs cannot reach.
func checkFolders(name string, c Config, m mechanisms) error {
	if !m.Setuid {
		return nil
	}
	p := problems{prefix: "backends." + name + "."}
	for key, path := range map[string]string{"cache_dir": c.CacheDir, "work_dir": c.WorkDir} {
		if dir := passable(path, m.uids.first); dir != "" {
			p.add(key, "the uids that run programs (%s) may not enter %s: choose another place, or chmod o+x it", m.uids, dir)
		}
	}
	return p.err()
}

// uidPool is where the uids of programs come from; nil: programs run as we do.
func (b *Backend) uidPool() (*uidPool, error) {
	if !b.how.Setuid {
		return nil, nil
	}
	dir, err := uidFolder(b.config)
	return newUIDPool(dir, b.how.uids, b.log), err
}

// uidFolder makes the folder of this machine's uid locks.
func uidFolder(c Config) (string, error) {
	if err := errors.Join(ensureDir(filepath.Dir(uidLocks), 0o755), ensureDir(uidLocks, 0o700)); err == nil {
		return uidLocks, nil
	}
	dir := c.ownUIDLocks()
	return dir, ensureDir(dir, 0o700)
}

// ownUIDLocks is used where /run cannot be written: installations that share the cache then respect each other.
func (c Config) ownUIDLocks() string { return filepath.Join(c.CacheDir, "uids") }

// uidFolderPath is where uidFolder finds or made the locks. It makes nothing.
func (c Config) uidFolderPath() string {
	if info, err := os.Stat(uidLocks); err == nil && info.IsDir() {
		return uidLocks
	}
	return c.ownUIDLocks()
}

// sweep ends and removes what processes that are gone left behind: by control group, by folder, by uid.
func (b *Backend) sweep(ctx context.Context, found runner.Cgroups, ids *uidPool) error {
	end := func(name, dir string) {
		_, err := runner.KillLeftovers(dir, 0, 0)
		if err := errors.Join(err, found.Child(groupName(name)).Remove()); err != nil {
			b.log.Warn("left-over processes", "folder", dir, "error", err)
		}
	}
	if err := sweepWork(ctx, b.config.WorkDir, end, b.log); err != nil {
		return err
	}
	if ids != nil {
		ids.sweep()
	}
	return nil
}

// search looks for interpreters and remembers the answer.
func (b *Backend) search(ctx context.Context) {
	b.searching.Lock()
	defer b.searching.Unlock()
	inv := b.prober.discover(ctx)
	b.inventory.Store(&inv)
	b.searched = time.Now()
}

// researched searches again for what is missing, not too often.
func (b *Backend) researched(ctx context.Context) bool {
	b.searching.Lock()
	recent := time.Since(b.searched) < rediscoverPause
	b.searching.Unlock()
	if !recent {
		b.search(ctx)
	}
	return !recent
}

// ownPythons lists interpreters for our own tools, those included that programs cannot reach.
func (b *Backend) ownPythons(context.Context) []string {
	inv := b.inventory.Load()
	var list []string
	if inv.fallback.Path != "" {
		list = append(list, inv.fallback.Path)
	}
	for _, minor := range inv.minors() {
		list = append(list, inv.byMinor[minor].Path)
	}
	for _, u := range inv.unreachable {
		list = append(list, u.Path)
	}
	return unique(list)
}

func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		had := seen[s]
		seen[s] = true
		return had
	})
}

// Attach implements executor.Backend: programs do not outlive the plugin.
func (b *Backend) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.Unimplemented, "the uv backend's programs end with its plugin")
}

// Remove implements executor.Backend. A slot clears up behind each job, so what runs is all there can be.
func (b *Backend) Remove(ctx context.Context, id string) error {
	b.mu.Lock()
	r := b.running[id]
	b.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel(executor.Errorf(executor.Unavailable, "removed"))
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return executor.Errorf(executor.Unavailable, "remove %s: %w", id, context.Cause(ctx))
	}
}

// Close ends every program and runner and gives everything but the caches back. Idempotent; Run answers unavailable then.
func (b *Backend) Close() error {
	b.stop(errClosed)
	b.warm.close()
	b.closeSessions()
	b.slots.close()
	b.flights.wg.Wait()
	b.wg.Wait()
	return nil
}

// enter registers a job. Its ctx also ends with Remove.
func (b *Backend) enter(ctx context.Context, id string) (context.Context, *running, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
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

// programPath is the PATH of a program: its interpreter's folder, under whichever names, and the machine's.
func programPath(first ...string) string {
	return strings.Join(unique(append(first, filepath.SplitList(defaultPath)...)), ":")
}
