package uvbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// packagesName is the folder of uv's first package cache in cache_dir. The names of further ones end in a number.
const packagesName = "uv-cache"

// markerName is the file that makes a folder an environment. It is written after all other files.
const markerName = ".python-executor.json"

// marker is the content of an environment's marker file.
type marker struct {
	Key          string   `json:"key"`
	Python       string   `json:"python"`
	Requirements []string `json:"requirements"`
	Files        int64    `json:"files"`
	Bytes        int64    `json:"bytes"`
	// StartupCode is a file of a package that runs code when an interpreter starts, or "".
	StartupCode string `json:"startup_code,omitempty"`
	// Fonts is matplotlib's list of fonts, relative to the environment, or "".
	Fonts string    `json:"fonts,omitempty"`
	Built time.Time `json:"built"`
	// Boot is the boot of the machine in which the content was last found complete. A power cut may leave empty files.
	Boot string `json:"boot"`
}

// cache holds environments by key. All processes of this user share the folder. A process holds <key>.lock shared while it uses
// an environment, and exclusively while it builds or removes an environment.
type cache struct {
	dir   string // cache_dir/environments
	wheel string // cache_dir/uv-cache
	bytes int64  // Config.CacheBytes
	boot  string
	log   *slog.Logger

	hits, misses, evicted, rebuilt atomic.Int64

	mu     sync.Mutex
	known  map[string]knownMarker
	evicts sync.Mutex
}

// knownMarker is a marker that was read before. The marker file is unchanged while it has the same stamp and inode.
type knownMarker struct {
	stamp time.Time
	inode uint64
	marker
}

// environment is a complete environment. It is in use, so it is not removed, until release.
type environment struct {
	dir string
	marker
	lock *lockFile
}

func (e *environment) bin() string    { return filepath.Join(e.dir, "bin") }
func (e *environment) python() string { return filepath.Join(e.bin(), "python") }
func (e *environment) release()       { e.lock.Close() }

func newCache(dir string, bytes int64, log *slog.Logger) *cache {
	return &cache{
		dir: filepath.Join(dir, "environments"), wheel: filepath.Join(dir, packagesName), bytes: bytes,
		boot: boot(), log: log, known: map[string]knownMarker{},
	}
}

func (c *cache) path(key string) string     { return filepath.Join(c.dir, key) }
func (c *cache) lockPath(key string) string { return filepath.Join(c.dir, key+".lock") }

// open returns the environment of key, in use until it is released. It returns false if the environment is missing, incomplete,
// or locked by a build or a removal. It starts no process.
func (c *cache) open(key string) (*environment, bool) {
	if _, err := os.Lstat(c.path(key)); err != nil {
		return nil, false
	}
	held, err := tryLock(c.lockPath(key), unix.LOCK_SH)
	if err != nil {
		return nil, false // a build or a removal has the lock
	}
	m, err := c.check(key)
	if err != nil {
		held.Close()
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("environment is damaged and will be built again", "key", key, "error", err)
		}
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(held.Name(), now, now) // last use, for eviction
	return &environment{dir: c.path(key), marker: m, lock: held}, true
}

// check reads the marker and looks for the files that are most likely to be missing. The first check after a reboot measures the
// whole environment.
func (c *cache) check(key string) (marker, error) {
	dir := c.path(key)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, markerName), &st); err != nil {
		return marker{}, err
	}
	stamp := time.Unix(st.Mtim.Unix()) // with its nanoseconds
	c.mu.Lock()
	k, ok := c.known[key]
	c.mu.Unlock()
	if !ok || !k.stamp.Equal(stamp) || k.inode != st.Ino {
		raw, err := os.ReadFile(filepath.Join(dir, markerName))
		if err != nil {
			return marker{}, err
		}
		k = knownMarker{stamp: stamp, inode: st.Ino}
		if err := json.Unmarshal(raw, &k.marker); err != nil || k.Key != key {
			return marker{}, fmt.Errorf("%s: must have the key of its folder", markerName)
		}
		if k.Boot != c.boot {
			files, bytes, err := measure(dir)
			if err != nil || files != k.Files || bytes != k.Bytes {
				return marker{}, errors.Join(fmt.Errorf("must have %d files with %d bytes (got %d with %d)", k.Files, k.Bytes, files, bytes), err)
			}
			k.Boot = c.boot
			unseal(dir)
			_ = writeJSON(filepath.Join(dir, markerName), k.marker) // best effort: without it the next process measures again
			sealTop(dir)
		}
		c.mu.Lock()
		c.known[key] = k
		c.mu.Unlock()
	}
	info, err := os.Stat(filepath.Join(dir, "bin", "python"))
	if err != nil || !info.Mode().IsRegular() {
		return marker{}, fmt.Errorf("bin/python is missing")
	}
	if _, err := sitePackages(dir); err != nil {
		return marker{}, err
	}
	return k.marker, nil
}

// sitePackages returns the folder of an environment's packages.
func sitePackages(dir string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "lib"))
	if err != nil {
		return "", fmt.Errorf("lib is missing")
	}
	for _, e := range entries {
		packages := filepath.Join(dir, "lib", e.Name(), "site-packages")
		if info, err := os.Stat(packages); err == nil && info.IsDir() && strings.HasPrefix(e.Name(), "python3.") {
			return packages, nil
		}
	}
	return "", fmt.Errorf("lib/python3.*/site-packages is missing")
}

// measure returns the number of an environment's files and the sum of their sizes. It leaves the marker out.
func measure(dir string) (files, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == markerName {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return files, bytes, err
}

// commit makes the folder temp the environment of key. The caller holds the key's lock exclusively.
func (c *cache) commit(key, temp string, m marker) error {
	m.Key, m.Boot, m.Built = key, c.boot, time.Now().UTC()
	var err error
	if m.Files, m.Bytes, err = measure(temp); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(temp, markerName), m); err != nil {
		return err
	}
	if err := seal(temp); err != nil {
		return err
	}
	if _, err := os.Lstat(c.path(key)); err == nil {
		c.rebuilt.Add(1)
	}
	if err := errors.Join(removeAll(c.path(key)), os.Rename(temp, c.path(key))); err != nil {
		return err
	}
	sealTop(c.path(key))
	return nil
}

// sealTop makes an environment's own folder read-only if programs may run as the plugin's user. unseal makes the folder writable
// again. A folder must be writable to be renamed, and to have its marker replaced.
func sealTop(dir string) {
	if os.Geteuid() != 0 {
		_ = os.Chmod(dir, 0o555) //nolint:gosec // programs read it
	}
}

func unseal(dir string) {
	if os.Geteuid() != 0 {
		_ = os.Chmod(dir, 0o755) //nolint:gosec // programs read it
	}
}

// seal makes everything below dir readable by all users, and writable by none that runs programs. As root it leaves the owner's
// right to write, because programs run under other uids. Otherwise programs may run as the owner: they can undo the mode, but do
// not write by accident.
func seal(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		mode := fs.FileMode(0o444)
		if e.IsDir() || info.Mode()&0o100 != 0 {
			mode = 0o555
		}
		if path == dir || os.Geteuid() == 0 {
			mode |= 0o200 // commit renames dir
		}
		return os.Chmod(path, mode) //nolint:gosec // no link, and below a folder that only this user can write to
	})
}

// entry is an environment as eviction sees it.
type entry struct {
	key   string
	used  time.Time
	bytes int64
}

// entries lists the environments, least recently used first, and returns the sum of their sizes in bytes.
func (c *cache) entries() (list []entry, total int64) {
	dirs, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, 0
	}
	for _, d := range dirs {
		if !d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			continue
		}
		e := entry{key: d.Name()}
		if raw, err := os.ReadFile(filepath.Join(c.dir, e.key, markerName)); err == nil {
			var m marker
			if json.Unmarshal(raw, &m) == nil {
				e.bytes = m.Bytes
			}
		}
		if info, err := os.Stat(c.lockPath(e.key)); err == nil {
			e.used = info.ModTime()
		}
		list = append(list, e)
		total += e.bytes
	}
	slices.SortFunc(list, func(a, b entry) int { return a.used.Compare(b.used) })
	return list, total
}

// evict removes what exceeds Config.CacheBytes. uv's package caches go first, because they only save downloads. The least
// recently used environments follow. Environments that are in use stay, and so does the environment of the key keep.
func (c *cache) evict(ctx context.Context, keep string) {
	c.evicts.Lock()
	defer c.evicts.Unlock()
	list, total := c.entries()
	wheels := c.evictPackages(total)
	for _, e := range list {
		if total+wheels <= c.bytes || ctx.Err() != nil {
			return
		}
		if e.key != keep && c.remove(e.key) {
			total -= e.bytes
			c.evicted.Add(1)
			c.log.Info("environment evicted", "key", e.key, "bytes", e.bytes)
		}
	}
}

// evictPackages empties uv's package caches until they fit beside total bytes. A cache that a build uses stays. left is the number
// of bytes that the caches have then.
func (c *cache) evictPackages(total int64) (left int64) {
	sizes := make([]int64, parallelBuilds)
	for n := range sizes {
		_, sizes[n], _ = measure(c.packages(n)) // a missing cache has no bytes
		left += sizes[n]
	}
	for n, size := range sizes {
		if total+left <= c.bytes || size == 0 {
			continue
		}
		held, err := tryLock(c.packages(n)+".lock", unix.LOCK_EX)
		if err != nil {
			continue
		}
		if err := emptyFolder(c.packages(n)); err == nil {
			left -= size
		}
		held.Close()
	}
	return left
}

// emptyFolder removes the content of dir. The folder itself stays as it is.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, removeAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// remove removes an environment and reports whether it succeeded. An environment that is in use stays.
func (c *cache) remove(key string) bool {
	held, err := tryLock(c.lockPath(key), unix.LOCK_EX)
	if err != nil {
		return false
	}
	defer held.Close()
	trash, err := os.MkdirTemp(c.dir, ".tmp-"+key+"-")
	if err != nil {
		return false
	}
	unseal(c.path(key))
	if err := os.Rename(c.path(key), filepath.Join(trash, "env")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	os.Remove(held.Name())
	return removeAll(trash) == nil
}

// clean removes the leftovers of killed builds and removals: temporary folders whose key no process has locked.
func (c *cache) clean() {
	for _, dir := range temporary(c.dir) {
		key, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), ".tmp-"), "-")
		held, err := tryLock(c.lockPath(key), unix.LOCK_EX)
		if err != nil {
			continue
		}
		_ = removeAll(dir)
		if _, err := os.Lstat(c.path(key)); err != nil {
			os.Remove(held.Name())
		}
		held.Close()
	}
}

// cleanKey removes the leftovers of killed builds of key. The caller holds the key's lock exclusively.
func (c *cache) cleanKey(key string) {
	for _, dir := range temporary(c.dir) {
		if strings.HasPrefix(filepath.Base(dir), ".tmp-"+key+"-") {
			_ = removeAll(dir)
		}
	}
}

// temporary lists the temporary folders in dir. A temporary folder gets its final name when it is complete.
func temporary(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".tmp-") {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list
}
