package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockVersion returns the version of the kernel's Landlock interface, or why there is none.
func landlockVersion() (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno == unix.ENOSYS:
		return 0, errors.New("the kernel has no Landlock")
	case errno == unix.EOPNOTSUPP:
		return 0, errors.New("Landlock is not enabled in the kernel (lsm=)") //nolint:staticcheck // a name
	case errno != 0:
		return 0, errno
	}
	return int(n), nil //nolint:gosec // a small number
}

// landlockLeast is the first version that lets programs rename files between folders.
const landlockLeast = 2

// restrictByLandlock takes from this thread, and from what it forks, what programs of a box never need: device files, all calls
// that change mounts, and abstract sockets of other programs of the machine. A thread has one set of rules for its life, so they
// cannot name the folders of an Execution: mounts keep programs from writing elsewhere.
func restrictByLandlock() error {
	version, err := landlockVersion()
	if err != nil || version < landlockLeast {
		return nil // Layers tells
	}
	const rename = unix.LANDLOCK_ACCESS_FS_REFER // refused to everybody unless a rule allows it
	rules := unix.LandlockRulesetAttr{Handled_access_fs: rename | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK}
	size := unsafe.Offsetof(rules.Handled_access_net)
	if version >= 6 {
		rules.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Offsetof(rules.Quiet_access_fs)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0) //nolint:gosec // the call takes it so
	runtime.KeepAlive(&rules)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	defer unix.Close(int(fd)) //nolint:errcheck,gosec // a descriptor
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	defer unix.Close(root)                                                               //nolint:errcheck // nothing was written
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rename, Parent_fd: int32(root)} //nolint:gosec // a descriptor
	//nolint:gosec // the call takes it so
	_, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	runtime.KeepAlive(&rule)
	if errno == 0 {
		_, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	}
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}
