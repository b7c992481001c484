package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Queues are the POSIX message queues of an IPC namespace. They outlive their makers.
type Queues struct{ dir *os.File }

// QueuesOf returns the queues of a process. It returns nil where the kernel has none.
func QueuesOf(pid int) (*Queues, error) {
	namespace, err := os.Open(procfs(pid) + "/ns/ipc")
	if err != nil {
		return nil, fmt.Errorf("message queues: %w", err)
	}
	defer namespace.Close() //nolint:errcheck // read only
	q := &Queues{}
	err = onThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWIPC); err != nil {
			return err
		}
		fs, err := unix.Fsopen("mqueue", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(fs) //nolint:errcheck // nothing was written
		if err := unix.FsconfigCreate(fs); err != nil {
			return err
		}
		mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(mount) //nolint:errcheck // nothing was written
		dir, err := unix.Openat(mount, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		q.dir = os.NewFile(uintptr(dir), "message queues") //nolint:gosec // a descriptor
		return nil
	})
	if errors.Is(err, unix.ENODEV) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, fmt.Errorf("message queues: %w", err)
	}
	return q, nil
}

// Remove removes all queues. q may be nil.
func (q *Queues) Remove() error {
	if q == nil {
		return nil
	}
	if _, err := q.dir.Seek(0, 0); err != nil {
		return fmt.Errorf("message queues: %w", err)
	}
	names, err := q.dir.Readdirnames(-1)
	for _, name := range names {
		err = errors.Join(err, unix.Unlinkat(int(q.dir.Fd()), name, 0))
	}
	if err != nil {
		return fmt.Errorf("message queues: %w", err)
	}
	return nil
}

// Close leaves the queues. q may be nil.
func (q *Queues) Close() error {
	if q == nil {
		return nil
	}
	return q.dir.Close()
}
