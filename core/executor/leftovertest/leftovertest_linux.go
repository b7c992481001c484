package leftovertest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the file of a folder that the folder's process keeps locked.
const lockFile = "lock"

// youth is how long a folder without a lock may be one that is just being made.
const youth = time.Minute

// endTime bounds the wait of End after each signal.
const endTime = 20 * time.Second

// Lock locks a new folder against Sweep until the file is closed.
func Lock(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// Sweep calls remove for the folders of processes that were killed: those whose names begin with prefix and whose lock is free, and
// those that were removed in part.
func Sweep(prefix string, remove func(dir string) error) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // only a malformed pattern fails
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
		if err != nil {
			if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < youth {
				continue // the folder was just created or removed
			}
		} else if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			lock.Close()
			continue
		}
		if err := remove(dir); err != nil {
			fmt.Fprintln(os.Stderr, "sweep", dir+":", err)
		}
		lock.Close() // nil has no effect
	}
}

// Processes returns the processes, except this one, whose file in /proc ("cmdline", "environ") has a content that matches. A zombie
// has none.
func Processes(file string, matches func(content string) bool) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/" + file) // only a malformed pattern fails
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil || !matches(string(raw)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// End sends the signals one after the other, each for some time, until find finds no process more.
func End(find func() []int, signals ...unix.Signal) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for _, s := range signals {
		late := time.After(endTime)
		for waiting := true; waiting; {
			left := find()
			if len(left) == 0 {
				return nil
			}
			for _, pid := range left {
				_ = unix.Kill(pid, s)
			}
			select {
			case <-late:
				waiting = false
			case <-again.C:
			}
		}
	}
	return fmt.Errorf("processes do not end: %v", find())
}

// Unmount unmounts all mounts below dir, innermost first.
func Unmount(dir string) {
	raw, _ := os.ReadFile("/proc/self/mounts")
	var below []string
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			below = append(below, fields[1])
		}
	}
	slices.Sort(below)
	for _, path := range slices.Backward(below) {
		_ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}

// Heed calls clean with a signal that would end this process. ignore ends that. It is idempotent.
func Heed(clean func(unix.Signal)) (ignore func()) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		if s, ok := (<-told).(unix.Signal); ok { // else ignore closed the channel
			clean(s)
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(told)
		close(told)
	})
}

// EndBy ends this process by a signal that Heed has caught.
func EndBy(s unix.Signal) {
	signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	_ = unix.Kill(os.Getpid(), s)
}
