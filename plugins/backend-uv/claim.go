package uvbackend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// uidLocks holds one lock file per uid in use on this machine, whichever installation uses it.
const uidLocks = "/run/python-executor/uids"

// errHeld: another process holds the lock.
var errHeld = errors.New("held by another process")

// tryLock opens path, makes it if need be, and takes a lock on it (unix.LOCK_EX or LOCK_SH) without waiting. The lock
// ends with the returned file. The file may be removed by whoever holds LOCK_EX; tryLock then starts over, so that two
// holders never hold two files of one name.
func tryLock(path string, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errHeld
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		var held, named unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &held); err != nil {
			f.Close()
			return nil, err
		}
		if err := unix.Stat(path, &named); err == nil && held.Ino == named.Ino && held.Dev == named.Dev {
			return f, nil
		}
		f.Close()
	}
}

// lock is tryLock that waits until ctx ends. flock cannot be interrupted, so it asks again with growing pauses; that is
// only ever between processes, ours wait for each other without it.
func lock(ctx context.Context, path string, how int) (*os.File, error) {
	pause := time.Millisecond
	for {
		f, err := tryLock(path, how)
		if !errors.Is(err, errHeld) {
			return f, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// workClaim is this process's own folder below work_dir.
type workClaim struct {
	// name is also the name of our parent cgroup.
	name string
	dir  string
	lock *os.File
}

// lostAndFound is in the root of some file systems.
const lostAndFound = "lost+found"

// checkWorkDir refuses a work folder that somebody else uses: what lies in it and nobody claims is removed. Ours has the lock
// file that claimWork makes.
func checkWorkDir(workDir string) error {
	if _, err := os.Lstat(filepath.Join(workDir, ".lock")); err == nil {
		return nil
	}
	entries, err := os.ReadDir(workDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// Another process may be claiming its own place at this moment, and makes the lock file first.
		if n := e.Name(); n != lostAndFound && n != ".lock" {
			return fmt.Errorf("%s is in use by something else: it has %s in it; name a folder that is empty or does not exist", workDir, n)
		}
	}
	return nil
}

// claimWork makes a folder that is ours as long as we live. instance makes it readable for people whose it is.
func claimWork(ctx context.Context, workDir, instance string) (*workClaim, error) {
	guard, err := lock(ctx, filepath.Join(workDir, ".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	sum := sha256.Sum256([]byte(instance))
	dir, err := os.MkdirTemp(workDir, hex.EncodeToString(sum[:4])+"-")
	if err != nil {
		return nil, err
	}
	c := &workClaim{name: filepath.Base(dir), dir: dir}
	if c.lock, err = tryLock(dir+".lock", unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	// Slot uids pass through, and see nothing.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the uids of the slots must pass
		c.release()
		return nil, err
	}
	return c, nil
}

// release gives the folder and what is in it back.
func (c *workClaim) release() {
	_ = removeAll(c.dir)
	os.Remove(c.lock.Name())
	c.lock.Close()
}

// sweepWork removes what processes that are gone left below workDir: for each, end is called with the claim's name and
// folder first, and must end every process of it. A claim that is held is somebody's and is left alone.
func sweepWork(ctx context.Context, workDir string, end func(name, dir string), log *slog.Logger) error {
	dead, err := deadClaims(ctx, workDir)
	if err != nil {
		return err
	}
	for _, c := range dead {
		end(c.name, c.dir)
		log.Info("left-over work folder removed", "folder", c.dir)
		c.release()
	}
	return nil
}

// deadClaims takes over the claims that nobody holds.
func deadClaims(ctx context.Context, workDir string) ([]*workClaim, error) {
	guard, err := lock(ctx, filepath.Join(workDir, ".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	entries, err := os.ReadDir(workDir)
	if err != nil {
		return nil, err
	}
	var dead []*workClaim
	for _, e := range entries {
		name, ofFile := strings.CutSuffix(e.Name(), ".lock")
		if name == "" || name == lostAndFound || ofFile == e.IsDir() {
			continue
		}
		if _, err := os.Lstat(filepath.Join(workDir, name)); ofFile && err == nil {
			continue // its folder stands in the list too
		}
		f, err := tryLock(filepath.Join(workDir, name+".lock"), unix.LOCK_EX)
		if err != nil {
			continue
		}
		dead = append(dead, &workClaim{name: name, dir: filepath.Join(workDir, name), lock: f})
	}
	return dead, nil
}

// uidClaim is one uid of the range that is ours as long as we live.
type uidClaim struct {
	uid  int
	lock *os.File
}

// claimUID takes the first uid of r that nobody on this machine uses. dirty: its last user died with it in hand, so
// processes of it may be left.
func claimUID(dir string, r uids) (c *uidClaim, dirty bool, err error) {
	for uid := r.first; uid <= r.last; uid++ {
		f, err := tryLock(filepath.Join(dir, strconv.Itoa(uid)+".lock"), unix.LOCK_EX)
		if errors.Is(err, errHeld) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		dirty = marked(f)
		if err := errors.Join(f.Truncate(0), writeMark(f)); err != nil {
			f.Close()
			return nil, false, err
		}
		return &uidClaim{uid: uid, lock: f}, dirty, nil
	}
	return nil, false, executor.FieldErrorf(executor.Exhausted, "backends.uv.run_as", "all %d uids of %s are in use", r.count(), r)
}

// boot names this boot of the machine: processes do not outlive it, lock files in some folders do.
var boot = sync.OnceValue(func() string {
	raw, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw))
})

// writeMark notes in a uid's lock file that the uid is in our hands.
func writeMark(f *os.File) error {
	_, err := fmt.Fprintf(f, "%d %s\n", os.Getpid(), boot())
	return err
}

// marked reports whether a uid's lock file has a mark of this boot. Whoever gives a uid back removes the mark, so the last
// user of a marked uid that nobody holds died with it in hand, and processes of ours may be left.
func marked(f *os.File) bool {
	var raw [256]byte
	n, _ := f.ReadAt(raw[:], 0) // an empty file has no mark
	fields := strings.Fields(string(raw[:n]))
	return len(fields) == 2 && fields[1] == boot()
}

// release gives the uid back. No process of it may be left.
func (c *uidClaim) release() {
	_ = c.lock.Truncate(0)
	c.lock.Close()
}

// sweepUIDs ends what runs under uids whose last user died with them in hand. A uid for which end fails stays marked.
func sweepUIDs(dir string, r uids, end func(uid int) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".lock")
		uid, err := strconv.Atoi(name)
		if !ok || err != nil || !r.has(uid) {
			continue
		}
		f, err := tryLock(filepath.Join(dir, e.Name()), unix.LOCK_EX)
		if err != nil {
			continue // in use
		}
		if marked(f) {
			err = end(uid)
		}
		if err == nil {
			err = f.Truncate(0)
		}
		f.Close()
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// ensureDir makes path and gives it mode if it was not there. A folder that others could have put there, or could
// change, is refused: what lies in it is executed.
func ensureDir(path string, mode os.FileMode) error {
	if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) {
		if err := ensureDir(filepath.Dir(path), 0o755); err != nil { // whatever the umask says: slot uids pass through
			return err
		}
	}
	err := os.Mkdir(path, mode)
	if err == nil {
		return os.Chmod(path, mode)
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a folder", path)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Errorf("%s belongs to uid %d, not to us", path, st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %04o)", path, st.Mode&0o7777)
	}
	return nil
}

// passable says why uid cannot reach path, or "": a folder on the way that it may not search. Groups play no part: a
// slot's uid is in none but its own.
func passable(path string, uid int) string {
	path = filepath.Clean(path)
	for dir := "/"; ; {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return "" // the one who opens it says so better
		}
		bit := uint32(0o001)
		if int(st.Uid) == uid {
			bit = 0o100
		}
		if st.Mode&bit == 0 {
			return dir
		}
		if dir == path {
			return ""
		}
		rest := strings.TrimPrefix(path[len(dir):], "/")
		first, _, _ := strings.Cut(rest, "/")
		dir = filepath.Join(dir, first)
	}
}

// removeAll is os.RemoveAll that also removes folders which were made read-only.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err == nil || os.Geteuid() == 0 {
		return err
	}
	_ = filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(p, 0o700) //nolint:gosec // a folder
		}
		return nil
	})
	return os.RemoveAll(path)
}
