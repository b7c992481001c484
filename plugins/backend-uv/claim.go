package uvbackend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// uidLocks has one lock file per uid in use on this machine. All installations use it.
const uidLocks = "/run/python-executor/uids"

// errHeld means that another process holds the lock.
var errHeld = errors.New("held by another process")

// lockFile is an open file with a lock on it.
type lockFile struct{ *os.File }

// Close ends the lock and closes the file. Closing alone does not end the lock at once: a process that is being started holds the
// same open file from its fork to its exec.
func (f *lockFile) Close() {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing ends the lock, too
	_ = f.File.Close()
}

// tryLock opens or creates path and takes a lock on it (unix.LOCK_EX or LOCK_SH) without waiting. The lock ends when the returned
// file is closed. A process that holds LOCK_EX may remove the file. tryLock then starts over, so that two processes never hold
// locks on two files of one name.
func tryLock(path string, how int) (*lockFile, error) {
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
			return &lockFile{f}, nil
		}
		f.Close()
	}
}

// lock is tryLock that waits until ctx ends.
func lock(ctx context.Context, path string, how int) (*lockFile, error) {
	return waitLock(ctx, func() (*lockFile, error) { return tryLock(path, how) })
}

// waitLock calls try until it does not return errHeld, or until ctx ends. flock cannot be interrupted, so waitLock tries again with
// growing pauses. Only processes wait for each other this way. The goroutines of one process have other means.
func waitLock(ctx context.Context, try func() (*lockFile, error)) (*lockFile, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		f, err := try()
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
	}
}

// workClaim is this process's own folder below work_dir.
type workClaim struct {
	// name is the folder's name. groupName derives the name of the parent control group from it.
	name string
	dir  string
	lock *lockFile // held while the process lives
}

// lostAndFound is a folder in the root of some file systems.
const lostAndFound = "lost+found"

// checkWorkDir refuses a work folder that other programs use, because sweepWork removes all content that no process claims. A work
// folder of this backend has the lock file that claimWork creates.
func checkWorkDir(workDir string) error {
	if _, err := os.Lstat(filepath.Join(workDir, ".lock")); err == nil {
		return nil
	}
	entries, err := os.ReadDir(workDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// Another process may be claiming its own folder at this moment. It creates the lock file first.
		if n := e.Name(); n != lostAndFound && n != ".lock" {
			return fmt.Errorf("must be a folder that is empty or does not exist (got %s, which has %s in it)", workDir, n)
		}
	}
	return nil
}

// claimWork creates a folder that belongs to this process while the process lives. The folder's name begins with a hash of
// instance.
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
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the uids of the slots must pass
		c.release()
		return nil, err
	}
	return c, nil
}

// release removes the folder with its content and ends the claim.
func (c *workClaim) release() {
	_ = removeAll(c.dir)
	os.Remove(c.lock.Name())
	c.lock.Close()
}

// sweepWork removes the folders that ended processes have left below workDir. It first calls end with the name and the folder of
// each claim; end must end every process of the claim. A claim that a process holds is left alone.
func sweepWork(ctx context.Context, workDir string, end func(name, dir string), log *slog.Logger) error {
	dead, err := deadClaims(ctx, workDir)
	if err != nil {
		return err
	}
	for _, c := range dead {
		end(c.name, c.dir)
		log.Info("leftover work folder removed", "folder", c.dir)
		c.release()
	}
	return nil
}

// deadClaims takes over the claims that no process holds.
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
			continue // the list also has its folder
		}
		f, err := tryLock(filepath.Join(workDir, name+".lock"), unix.LOCK_EX)
		if err != nil {
			continue
		}
		dead = append(dead, &workClaim{name: name, dir: filepath.Join(workDir, name), lock: f})
	}
	return dead, nil
}

// uidClaim is a uid that belongs to this process until release, or until the process ends.
type uidClaim struct {
	uid  int
	lock *lockFile
	// dirty reports whether the last holder ended without release, so that its processes may be left.
	dirty bool
}

// claimUID takes the first uid of r that no installation on this machine holds. Processes may be left under the uid. Codes:
// exhausted.
func claimUID(dir string, r uids) (*uidClaim, error) {
	for uid := r.first; uid <= r.last; uid++ {
		f, err := tryLock(filepath.Join(dir, strconv.Itoa(uid)+".lock"), unix.LOCK_EX)
		if errors.Is(err, errHeld) {
			continue
		}
		if err != nil {
			return nil, err
		}
		dirty := marked(f)
		if err := errors.Join(f.Truncate(0), writeMark(f)); err != nil {
			f.Close()
			return nil, err
		}
		return &uidClaim{uid, f, dirty}, nil
	}
	return nil, executor.FieldErrorf(executor.Exhausted, "backends.uv.run_as", "must have a free uid: all %d uids of %s are in use", r.count(), r)
}

// boot returns the ID of this boot of the machine. Lock files in some folders outlive a boot, and processes do not.
var boot = sync.OnceValue(func() string {
	raw, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw))
})

// writeMark writes this process and this boot to a uid's lock file. The mark means that the uid is held.
func writeMark(f *lockFile) error {
	_, err := fmt.Fprintf(f, "%d %s\n", os.Getpid(), boot())
	return err
}

// marked reports whether a uid's lock file has a mark of this boot. release removes the mark. If a uid is marked and no process
// holds it, its last holder ended without release, and processes of the holder may be left.
func marked(f io.ReaderAt) bool {
	var raw [256]byte
	n, _ := f.ReadAt(raw[:], 0) // an empty file has no mark
	fields := strings.Fields(string(raw[:n]))
	return len(fields) == 2 && fields[1] == boot()
}

// release gives the uid back. The uid must have no process.
func (c *uidClaim) release() {
	_ = c.lock.Truncate(0)
	c.lock.Close()
}

// undo gives the uid back with the mark that it had before the claim. Only processes from before the claim may be left.
func (c *uidClaim) undo() {
	if c.dirty {
		c.lock.Close()
		return
	}
	c.release()
}

// sweepUIDs calls end for each uid of r that is marked and that no process holds. A uid for which end fails stays marked.
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
		if info, err := e.Info(); err != nil || info.Size() == 0 {
			continue // it has no mark
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

// ensureDir creates the folder path with mode if it does not exist. It refuses a folder that belongs to another user than this one
// or root, or that others can write to, because files in it are executed.
func ensureDir(path string, mode os.FileMode) error {
	if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) {
		if err := ensureDir(filepath.Dir(path), 0o755); err != nil { // not MkdirAll: slot uids must pass with any umask
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
		return fmt.Errorf("%s: must be a folder", path)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Errorf("%s: must belong to uid %d or to root (got uid %d)", path, os.Geteuid(), st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s: must not be writable by group or others (got mode %04o)", path, st.Mode&0o7777)
	}
	return nil
}

// closedFolder returns the first folder on the way to path, or path itself, that uid may not search. It returns "" if uid may
// search all of them. Groups do not count, because a slot's uid is only in its own group.
func closedFolder(path string, uid int) string {
	path = filepath.Clean(path)
	for dir := "/"; ; {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return "" // the caller gets a better error when it opens path
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

// removeAll is os.RemoveAll that also removes read-only folders.
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
