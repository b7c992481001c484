package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
)

const (
	hostDirPrefix = "h"
	lockName      = "lock"
	// maxRunDir is the length of the longest path of a run folder. The path of a socket has 108 bytes. It needs room for our
	// folder ("/h" and a number), the folder of a process ("/p" and a number) and the longest name of a socket.
	maxRunDir = 108 - 1 - len("/h4294967295/p4294967295") - plugin.SocketNameLength
)

// runDir is this host's own folder for sockets. The host holds the folder's lock as long as it lives, so that other hosts
// can tell which folders are stale.
type runDir struct {
	path string
	lock *os.File
}

// openRunDir makes a folder in parent and removes the folders of hosts that are gone.
func openRunDir(parent string, log *slog.Logger) (*runDir, error) {
	if parent == "" || len(parent) > maxRunDir {
		parent = filepath.Join(os.TempDir(), fmt.Sprintf("pyexec-%d", os.Getuid()))
	}
	if len(parent) > maxRunDir {
		return nil, executor.Errorf(executor.Invalid, "the run folder %s is too long a path: at most %d bytes", parent, maxRunDir)
	}
	if err := makePrivate(parent); err != nil {
		return nil, executor.Errorf(executor.Unavailable, "run folder: %w", err)
	}
	removeStale(parent, log)
	path, err := os.MkdirTemp(parent, hostDirPrefix) // 0700
	if err != nil {
		return nil, executor.Errorf(executor.Unavailable, "run folder: %w", err)
	}
	lock, err := makeLock(path)
	if err != nil {
		return nil, errors.Join(executor.Errorf(executor.Unavailable, "run folder: %w", err), os.RemoveAll(path))
	}
	return &runDir{path: path, lock: lock}, nil
}

// makeLock makes the lock in dir. The lock gets its name when it is held: until then another host would take the folder for
// stale.
func makeLock(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName+".new"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) //nolint:gosec // in our own folder
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(lock.Name(), filepath.Join(dir, lockName))
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// makePrivate makes dir. It checks that dir belongs to this user and that no other user can enter it: a user who can reach a socket
// in it can run programs.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of ours", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(dir, 0o700) //nolint:gosec // a folder needs x
	}
	return nil
}

// removeStale removes the folders in parent whose lock no host holds. A folder that cannot be removed is left.
func removeStale(parent string, log *slog.Logger) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		log.Warn("read the run folder", "error", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), hostDirPrefix) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		if err := removeIfStale(path); err != nil {
			log.Warn("remove a stale run folder", "path", path, "error", err)
		}
	}
}

func removeIfStale(path string) error {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its host is making it, or died while it did
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil //nolint:nilerr // its host is alive
	}
	return os.RemoveAll(path)
}

// close removes the folder and releases the lock.
func (d *runDir) close() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}
