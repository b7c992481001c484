package uvbackend

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// rediscoverPause is the least time between two searches for a missing interpreter.
const rediscoverPause = 10 * time.Second

// Backend runs Python on this machine. It implements executor.Backend and io.Closer.
type Backend struct {
	backend.Calls

	name     string
	config   Config
	embedded bool
	personal bool
	ran      atomic.Bool // an Execution has been planned
	how      mechanisms
	groups   sandbox.Cgroups
	groupErr error
	can      executor.Capabilities // without PythonVersions, which may change
	// boundsForks reports whether control groups bound and count the processes of a fork server.
	boundsForks bool
	prober      prober
	cache       *cache
	tool        *uvTool
	builder     *builder
	slots       *slots
	log         *slog.Logger

	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	inventory atomic.Pointer[inventory]
	// languages has the interpreters of sessions in other languages than Python.
	languages knownLanguages
	sessions  backend.Sessions[*session]
	warm      warmSessions
	life      context.Context // cancelled by Close

	searching sync.Mutex
	searched  time.Time // guarded by searching

	jobs  backend.Jobs
	trees trees
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
	b := &Backend{name: c.Name, config: config, embedded: c.Embedded, personal: c.Personal, log: log}
	b.Use = b.useConn
	if err := makeFolders(c.Name, config); err != nil {
		return nil, err
	}
	var (
		checks sync.WaitGroup
		users  error
		found  sandbox.Cgroups
	)
	checks.Go(func() { users = config.checkUsers(ctx, c.Name, thisHost()) }) // NSS may be slow
	checks.Go(func() { found, b.groupErr = findGroups(ctx) })
	b.how = findMechanisms(config, filepath.Join(config.CacheDir, "mechanisms.json"))
	checks.Wait()
	if err := errors.Join(config.checkIsolation(c.Name, b.how), checkFolders(c.Name, config, b.how)); err != nil {
		return nil, err
	}
	if users != nil { // until here no program has run, and no uid has been claimed for one
		return nil, users
	}
	ids, err := b.uidPool()
	if err != nil {
		return nil, executor.Errorf(executor.Internal, "uid locks: %w", err)
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
	// All programs together weigh as much as one ordinary process per core.
	if err := weigh(b.groups, 1024*int64(runtime.NumCPU()), 100*int64(runtime.NumCPU())); err != nil {
		log.Warn("CPU weight not set", "error", err)
	}
	if b.slots, err = newSlots(claim, b.how, b.groups, ids, keep, b.reach(), filepath.Join(config.CacheDir, "tools"), log); err != nil {
		claim.release()
		return nil, executor.Errorf(executor.Internal, "%w", err)
	}
	b.slots.private, b.slots.open = b.privateNetwork(), config.NetworkOpen
	b.slots.notes = slog.LevelDebug
	if len(config.Preimport) > 0 { // a module that keeps programs from being forks makes them slower than without the setting
		b.slots.notes = slog.LevelWarn
	}
	if err := b.begin(ctx, keep, found); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// begin starts the background work, ends leftovers and searches for interpreters. Runners start meanwhile, because they need neither the
// clean-up nor an interpreter. A single call (Embedded) gets one runner in advance. found has the parent groups of this machine.
func (b *Backend) begin(ctx context.Context, keep int, found sandbox.Cgroups) error {
	base, stop := context.WithCancelCause(context.Background())
	b.stop, b.life = stop, base
	if b.warm.keep = b.config.WarmSessions; b.embedded {
		b.warm.keep = 0
	}
	if b.embedded {
		b.slots.warmFirst(base)
	} else {
		b.slots.warm(base, keep-1)
	}
	if err := b.closeEnvironments(); err != nil {
		return executor.FieldErrorf(executor.Invalid, "backends."+b.name+".cache_dir", "%v", err)
	}
	b.equip(b.slots.ids)
	b.builder = newBuilder(base, b)
	b.languages = findLanguages(hostPlaces(), b.how)
	b.boundsForks = boundsForks(b.groups)
	b.can = promises(b.how, b.groups, b.config)
	b.can.Languages = b.languages.list()
	if err := b.sweep(ctx, found, b.slots.ids); err != nil {
		return executor.Errorf(executor.Internal, "clean up: %w", err)
	}
	b.search(ctx)
	b.wg.Go(func() {
		b.cache.clean()
		if !b.embedded { // a single call evicts only after a build
			b.cache.evict(base, "")
		}
	})
	return nil
}

// equip makes the prober, the cache and the uv tool.
func (b *Backend) equip(ids *uidPool) {
	where := hostPlaces()
	where.own = pythonsDir(b.config)
	b.prober = prober{places: where, cache: filepath.Join(b.config.CacheDir, "interpreters.json"), owner: "self", log: b.log}
	if ids != nil {
		b.prober.owner = b.how.uids.String()
		b.prober.claim = func() (*uidClaim, error) { return ids.take(b.how.uids) }
	}
	if b.how.Box {
		b.prober.owner += " in a box"
		b.prober.inside = b.askInside
	}
	b.cache = newCache(b.config.CacheDir, b.config.CacheBytes, b.log)
	b.tool = newUVTool(filepath.Join(b.config.CacheDir, "tools"), where, hostIndex(b.config.IndexURL, where.home, os.Getenv), b.ownPythons, b.log)
}

// reach returns what programs use of the backend's folders, wherever a private folder hides it. In a box a program sees the
// environments of its own requirements only: each Start names them.
func (b *Backend) reach() []string {
	if b.how.Box {
		return nil
	}
	return []string{filepath.Join(b.config.CacheDir, "environments"), b.aliasDir()}
}

// environmentsDir holds packages of callers, which may be private.
func environmentsDir(c Config) string { return filepath.Join(c.CacheDir, "environments") }

// closeEnvironments takes the environments away from the host's other users. In a box each Start binds its own environment, and programs of
// an ordinary user's server have that user. Only programs of other users without a box must pass through the folder.
func (b *Backend) closeEnvironments() error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 && !b.how.Box {
		mode = 0o711
	}
	return os.Chmod(environmentsDir(b.config), mode)
}

func (b *Backend) aliasDir() string { return filepath.Join(b.config.CacheDir, "bin") }

// groupPrefix begins the names of this backend's control groups. The name of a claim follows.
const groupPrefix = "python-executor-"

func groupName(claim string) string { return groupPrefix + claim }

// isGroupName reports whether groupName can return name.
func isGroupName(name string) bool {
	claim, ok := strings.CutPrefix(name, groupPrefix)
	instance, number, cut := strings.Cut(claim, "-")
	_, err := strconv.ParseUint(instance, 16, 32)
	_, errNumber := strconv.ParseUint(number, 10, 64)
	return ok && cut && len(instance) == 8 && err == nil && errNumber == nil
}

// makeFolders creates the missing folders of a configuration. Programs must never enter the package cache: its files hold addresses
// with credentials, and a process that holds uv's lock in it stalls every build.
func makeFolders(name string, c Config) error {
	for _, f := range []struct {
		key, path string
		mode      os.FileMode
	}{
		{"cache_dir", c.CacheDir, 0o755}, {"cache_dir", environmentsDir(c), 0o700},
		{"cache_dir", filepath.Join(c.CacheDir, "bin"), 0o755}, {"cache_dir", filepath.Join(c.CacheDir, "tools"), 0o711}, {"cache_dir", pythonsDir(c), 0o755},
		{"work_dir", c.WorkDir, 0o711},
	} {
		if err := ensureDir(f.path, f.mode); err != nil {
			return executor.FieldErrorf(executor.Invalid, "backends."+name+"."+f.key, "%v", err)
		}
	}
	packages := filepath.Join(c.CacheDir, packagesName) // the folder belongs to the uid that fills it
	if err := os.Mkdir(packages, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return executor.FieldErrorf(executor.Invalid, "backends."+name+".cache_dir", "%v", err)
	}
	// Earlier versions created both folders with other modes.
	if err := errors.Join(os.Chmod(packages, 0o700), os.Chmod(filepath.Join(c.CacheDir, "tools"), 0o711)); err != nil { //nolint:gosec // folders
		return executor.FieldErrorf(executor.Invalid, "backends."+name+".cache_dir", "%v", err)
	}
	if err := checkWorkDir(c.WorkDir); err != nil {
		return executor.FieldErrorf(executor.Invalid, "backends."+name+".work_dir", "%v", err)
	}
	return nil
}

// checkFolders refuses a cache or work folder that the uids of programs may not enter. In a box they need not.
func checkFolders(name string, c Config, m mechanisms) error {
	if !m.Setuid || m.Box {
		return nil
	}
	p := backend.Section(name)
	for key, path := range map[string]string{"cache_dir": c.CacheDir, "work_dir": c.WorkDir} {
		if dir := closedFolder(path, m.uids.first); dir != "" {
			p.Add(key, "must be open to the uids that run programs (%s), which may not enter %s: choose another folder, or chmod o+x %s", m.uids, dir, dir)
		}
	}
	return p.Err()
}

// uidPool returns the pool of the uids that run programs, or nil if programs run as the plugin's user.
func (b *Backend) uidPool() (*uidPool, error) {
	if !b.how.Setuid {
		return nil, nil
	}
	dir, err := uidFolder(b.config)
	marks := sandbox.Marks{Folders: []string{b.config.WorkDir, b.config.CacheDir}, Group: isGroupName}
	return newUIDPool(dir, b.how.uids, marks, b.log), err
}

// uidFolder creates and returns the folder of uid locks: the machine's own, or else the folder in CacheDir.
func uidFolder(c Config) (string, error) {
	if err := errors.Join(ensureDir(filepath.Dir(uidLocks), 0o755), ensureDir(uidLocks, 0o700)); err == nil {
		return uidLocks, nil
	}
	dir := c.ownUIDLocks()
	return dir, ensureDir(dir, 0o700)
}

// ownUIDLocks returns the folder of uid locks if /run cannot be written. Only installations with the same CacheDir see its locks.
func (c Config) ownUIDLocks() string { return filepath.Join(c.CacheDir, "uids") }

// uidFolderPath returns the folder that uidFolder returns. It creates nothing.
func (c Config) uidFolderPath() string {
	if info, err := os.Stat(uidLocks); err == nil && info.IsDir() {
		return uidLocks
	}
	return c.ownUIDLocks()
}

// sweep ends and removes the leftovers of backend processes that have ended. It finds them by control group, folder and uid.
func (b *Backend) sweep(ctx context.Context, found sandbox.Cgroups, ids *uidPool) error {
	end := func(name, dir string) {
		_, err := sandbox.KillLeftovers(sandbox.Marks{Folders: []string{dir}}, 0)
		for _, place := range placesOf(found) {
			err = errors.Join(err, place.Child(groupName(name)).Remove())
		}
		if err != nil {
			b.log.Warn("leftover processes not ended", "folder", dir, "error", err)
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

// search looks for interpreters and stores the inventory.
func (b *Backend) search(ctx context.Context) {
	b.searching.Lock()
	defer b.searching.Unlock()
	inv := b.prober.discover(ctx)
	b.inventory.Store(&inv)
	b.searched = time.Now()
}

// researched searches again for interpreters, at most once in rediscoverPause, and reports whether it did.
func (b *Backend) researched(ctx context.Context) bool {
	b.searching.Lock()
	recent := time.Since(b.searched) < rediscoverPause
	b.searching.Unlock()
	if !recent {
		b.search(ctx)
	}
	return !recent
}

// ownPythons lists the interpreters for the plugin's own tools. They include those that programs cannot reach.
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
	return executor.Result{}, executor.Errorf(executor.Unimplemented, "programs of the uv backend end with its plugin")
}

// Remove implements executor.Backend. A slot clears up after each job, so only a running job has anything to remove.
func (b *Backend) Remove(ctx context.Context, id string) error { return b.jobs.Remove(ctx, id) }

// Close ends every program and runner, and removes all that the backend holds except for the caches. After it Run returns
// unavailable. Close is idempotent.
func (b *Backend) Close() error {
	b.stop(backend.ErrClosed)
	b.warm.close()
	b.sessions.Close(func(s *session, _ error) { b.endSession(s) })
	b.slots.close()
	b.builder.Wait()
	b.wg.Wait()
	return nil
}

// programPath returns the PATH of a program: the folders first, which have its interpreter, and defaultPath.
func programPath(first ...string) string {
	return strings.Join(unique(append(first, filepath.SplitList(defaultPath)...)), ":")
}
