package app

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// prefix begins the name of every temporary folder of this package.
const prefix = "pyexec-"

// maxRunDir keeps socket names below it within the 108 bytes that the kernel allows: package host needs 63 of them, our own folder
// 18.
const maxRunDir = 108 - 63 - 18

// temporary is a folder with a lock that marks it as in use. A later process removes folders that a killed process left.
type temporary struct {
	path string
	lock *os.File
}

// newTemporary makes a folder of mode 0700 in parent, and removes the folders that dead processes of this user left there.
func newTemporary(parent string) (*temporary, error) {
	sweep(parent)
	return makeTemporary(parent)
}

// makeTemporary is newTemporary that removes nothing.
func makeTemporary(parent string) (*temporary, error) {
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	// The lock gets its name when it is held: a folder is complete or, for sweep, has no lock.
	unnamed, named := filepath.Join(path, "lock.new"), filepath.Join(path, "lock")
	lock, err := lockFile(unnamed)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	if err := os.Rename(unnamed, named); err != nil {
		lock.Close()
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &temporary{path, lock}, nil
}

// Close removes the folder. Idempotent.
func (t *temporary) Close() error {
	if t == nil {
		return nil
	}
	err := os.RemoveAll(t.path)
	t.lock.Close()
	return err
}

// sweep removes folders with prefix whose lock no process holds.
func sweep(parent string) {
	dir, err := os.Open(parent)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1) // in no order: the folder may have thousands of others' files
	dir.Close()
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		path := filepath.Join(parent, name)
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || !isOurs(info) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(path)
		}
		f.Close()
	}
}

func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// lockFile takes an exclusive lock until the file is closed. If another process has the lock, the error says so.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use by another process", filepath.Dir(path))
		}
		return nil, err
	}
	return f, nil
}

// newRunDir makes the folder for sockets. Its path is short, and it is in memory or on a local disk.
func newRunDir() (*temporary, error) {
	var failed []error
	for _, parent := range []string{runtimeDir(), "/run", "/tmp", os.TempDir()} {
		if parent == "" || len(parent) > maxRunDir || parent == "/run" && os.Geteuid() != 0 {
			continue
		}
		t, err := newTemporary(parent)
		if err == nil {
			return t, nil
		}
		failed = append(failed, err)
	}
	return nil, fmt.Errorf("no folder for sockets: %w", errors.Join(failed...))
}

// runtimeDir returns the user's runtime folder, if there is one that is safe to use.
func runtimeDir() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	info, err := os.Stat(dir) //nolint:gosec // the user names their own folder; it must be theirs
	if !filepath.IsAbs(dir) || err != nil || !isOurs(info) {
		return ""
	}
	return dir
}

// dataDir is a server's data folder.
type dataDir struct {
	path     string
	instance string
	lock     *os.File
}

// openDataDir makes (0700), locks and identifies the folder. It closes a folder of ours that is open to other users, and refuses one that holds
// other things as well.
func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	// In a shared folder such as /tmp, another user may have made it.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !isOurs(info) && os.Geteuid() != 0 {
		return nil, fmt.Errorf("%s belongs to another user", path)
	} else if info.Mode().Perm()&0o077 != 0 {
		// Other users could read executions there.
		if err := DataDirShared(path, info.Mode().Perm()); err != nil {
			return nil, err
		}
		if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a folder
			return nil, err
		}
	}
	lock, err := lockFile(filepath.Join(path, "lock"))
	if err != nil {
		return nil, err
	}
	instance, err := identify(filepath.Join(path, instanceName))
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &dataDir{path, instance, lock}, nil
}

// Close ends the lock. Closing the file alone would not end it at once: a process that is being started holds the same open file
// until its exec.
func (d *dataDir) Close() error {
	return errors.Join(unix.Flock(int(d.lock.Fd()), unix.LOCK_UN), d.lock.Close())
}

// identify reads the installation's id, or makes one.
func identify(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err == nil {
		if name := strings.TrimSpace(string(raw)); len(name) == 32 && strings.Trim(name, "0123456789abcdef") == "" {
			return name, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	name := newInstance()
	temporary := file + ".new"
	if err := os.WriteFile(temporary, []byte(name+"\n"), 0o600); err != nil {
		return "", err
	}
	return name, os.Rename(temporary, file)
}

func newInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
