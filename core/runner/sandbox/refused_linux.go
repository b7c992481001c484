package sandbox

import "golang.org/x/sys/unix"

// The calls that the filter looks at, by their numbers on a machine.
type refusedCalls struct {
	arch uint32
	// ofPID have a process as their first argument. Of ofWhich the first argument tells what the second is.
	prlimit  uint32
	ofPID    []uint32  // sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr
	ofWhich  [2]uint32 // setpriority, ioprio_set
	ignoring uint32    // bits of a number that do not matter
	keys     [3]uint32 // add_key, request_key, keyctl
	// unshare and clone are refused in a box if they make namespaces. personality is refused unless it asks, or chooses that of
	// Linux or of a machine of 32 bits.
	unshare, clone, personality uint32
	// sockets are socket and socketpair. In a box they make sockets of some families only.
	sockets [2]uint32
	// box are refused in a box, with those that have the same number on each machine: mount, umount, umount2, pivot_root, setns,
	// bpf, perf_event_open, userfaultfd, kexec_load, kexec_file_load, init_module, finit_module, delete_module, swapon, swapoff,
	// reboot, open_by_handle_at, acct, quotactl, syslog, lookup_dcookie, move_pages, migrate_pages, fanotify_init, iopl, ioperm,
	// vm86, vm86old and socketcall, as far as the machine has them. socketcall passes its family in memory, which a filter cannot read.
	box []uint32
}

// newCalls have the same number on each machine.
func newCalls() []uint32 {
	return []uint32{
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_QUOTACTL_FD,
		unix.SYS_OPEN_TREE_ATTR,
	}
}

// namespaceFlags are the flags of namespaces that both unshare and clone take.
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// socketFamilies are those that a network namespace keeps apart, besides netlink, of which programs have one protocol. Of the others, vsock reaches the machine below, and others were often
// ways to break a kernel.
func socketFamilies() []uint32 {
	return []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}
}

// refusedCallsOf returns a machine's calls: its own, and those of 32 bits.
func refusedCallsOf(arch string) []refusedCalls {
	const x32 = 0x40000000 // the same calls of x32 have this bit
	switch arch {
	case "amd64":
		return []refusedCalls{
			{unix.AUDIT_ARCH_X86_64, 302, []uint32{203, 144, 142, 314}, [2]uint32{141, 251}, x32, [3]uint32{248, 249, 250}, 272, 56, 135, [2]uint32{41, 53}, []uint32{
				165, 166, 155, 308, 321, 298, 323, 246, 320, 175, 313, 176, 167, 168, 169, 304, 163, 179, 103, 212, 279, 256, 300, 172, 173,
			}},
			{unix.AUDIT_ARCH_I386, 340, []uint32{241, 156, 154, 351}, [2]uint32{97, 289}, 0, [3]uint32{286, 287, 288}, 310, 120, 136, [2]uint32{359, 360}, []uint32{
				21, 22, 52, 217, 346, 357, 336, 374, 283, 128, 350, 129, 87, 115, 88, 342, 51, 131, 103, 253, 317, 294, 338, 110, 101, 166, 113, 102,
			}},
		}
	case "arm64":
		return []refusedCalls{
			{unix.AUDIT_ARCH_AARCH64, 261, []uint32{122, 119, 118, 274}, [2]uint32{140, 30}, 0, [3]uint32{217, 218, 219}, 97, 220, 92, [2]uint32{198, 199}, []uint32{
				40, 39, 41, 268, 280, 241, 282, 104, 294, 105, 273, 106, 224, 225, 142, 265, 89, 60, 116, 18, 239, 238, 262,
			}},
			{unix.AUDIT_ARCH_ARM, 369, []uint32{241, 156, 154, 380}, [2]uint32{97, 314}, 0, [3]uint32{309, 310, 311}, 337, 120, 136, [2]uint32{281, 288}, []uint32{
				21, 52, 218, 375, 386, 364, 388, 347, 401, 128, 379, 129, 87, 115, 88, 371, 51, 131, 103, 249, 344, 400, 367,
			}},
		}
	default:
		return nil // the numbers of this machine are not known
	}
}
