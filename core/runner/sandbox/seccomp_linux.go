package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// installSeccomp keeps what this thread forks from the kernel's keyrings, and from its sockets about other things than the network. A user's keyring outlives its programs, and a
// session's holds what the server's user left there. sameUser says that programs have the runner's uid. Then they may also not
// set the runner's resource limits and scheduling: those calls only check the uid, and a runner without memory, descriptors or
// time could neither end the program nor report its end. Reading them stays allowed. The filter needs no_new_privs. Without
// such a filter in the kernel a program has no more rights than before.
func installSeccomp(sameUser bool) {
	first := uint32(os.Getpid())                                                                //nolint:gosec // a process number is positive
	_ = installFilter(seccompFilter(runtime.GOARCH, first, lastThread(first), sameUser, false)) // see above
}

// installBoxSeccomp is installSeccomp for a thread in a box, where init takes the place of the runner: its threads have the
// numbers from 1 to last. It also refuses programs what they never need and what kernels were broken by.
func installBoxSeccomp(sameUser bool, last uint32) error {
	if err := installFilter(seccompFilter(runtime.GOARCH, 1, last, sameUser, true)); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("seccomp: %w", err) // EINVAL: the kernel has no filters, which Layers tells
	}
	return nil
}

// seccompMissing returns why no filter can be installed, or nil.
func seccompMissing() error {
	if refusedCallsOf(runtime.GOARCH) == nil {
		return errors.New("the calls of this machine are not known")
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))) //nolint:gosec // the call takes it so
	if errno != 0 {
		return fmt.Errorf("the kernel has no filters of calls: %w", errno)
	}
	return nil
}

func installFilter(filter []unix.SockFilter) error {
	if filter == nil {
		return nil
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // a few hundred
	// Before Linux 5.16 prctl would enable a mitigation that slows the program down.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		uintptr(unsafe.Pointer(&program))) //nolint:gosec // the call takes the filter so
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}

// lastThread returns the highest number of the runner's threads, which those calls take as well. As PID 1 of a container these
// are the lowest numbers, made before any program. Elsewhere other processes lie between, so it is the process's own.
func lastThread(pid uint32) uint32 {
	last := pid
	if pid != 1 {
		return last
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return last
	}
	for _, task := range tasks {
		if n, err := strconv.ParseUint(task.Name(), 10, 31); err == nil {
			last = max(last, uint32(n))
		}
	}
	return last
}

// seccompFilter refuses the calls about keys. With sameUser it also refuses the others for the processes and threads from first
// to last, in each of the machine's ways to call. With box it also refuses those of a box. It is nil for a machine whose numbers
// are not known.
func seccompFilter(arch string, first, last uint32, sameUser, box bool) []unix.SockFilter {
	ways := refusedCallsOf(arch)
	if ways == nil {
		return nil
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		anyOf   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		above   = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		finish  = unix.BPF_RET | unix.BPF_K
		// A filter sees number, arch, instruction pointer (8 bytes), and arguments (8 bytes each, the low half first).
		callNumber, callArch, argument = 0, 4, 16
		// setpriority and ioprio_set number differently what their second argument is: process, group, user.
		firstOfUser = 2
	)
	refuse := unix.SockFilter{Code: finish, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	unknownFamily := unix.SockFilter{Code: finish, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)}
	unknownProtocol := unix.SockFilter{Code: finish, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)}
	allow := unix.SockFilter{Code: finish, K: unix.SECCOMP_RET_ALLOW}
	// ours refuses calls about a process of the runner, and allows others. It ends a check.
	ours := func(arg uint32) []unix.SockFilter {
		return []unix.SockFilter{
			{Code: load, K: argument + 8*arg},
			{Code: atLeast, K: first, Jt: 0, Jf: 2},
			{Code: above, K: last, Jt: 1, Jf: 0},
			refuse,
			allow,
		}
	}
	// without refuses calls whose first argument has one of flags, and allows others. The kernel takes the low half only.
	without := func(flags uint32) []unix.SockFilter {
		return []unix.SockFilter{{Code: load, K: argument}, {Code: anyOf, K: flags, Jt: 0, Jf: 1}, refuse, allow}
	}
	// when makes then depend on the number of the call.
	when := func(number uint32, then []unix.SockFilter) []unix.SockFilter {
		return append([]unix.SockFilter{{Code: equal, K: number, Jt: 0, Jf: uint8(len(then))}}, then...) //nolint:gosec // a few
	}
	var filter []unix.SockFilter
	for _, way := range ways {
		var body []unix.SockFilter
		body = append(body, unix.SockFilter{Code: load, K: callNumber}, unix.SockFilter{Code: and, K: ^way.ignoring})
		for _, number := range way.keys {
			body = append(body, when(number, []unix.SockFilter{refuse})...)
		}
		if box {
			for _, number := range slices.Concat(way.box, newCalls()) {
				body = append(body, when(number, []unix.SockFilter{refuse})...)
			}
			// A thread that starts programs gives each an ipc and a cgroup namespace by unshare. A program lacks the capability for it.
			body = append(body, when(way.unshare, without(namespaceFlags&^unix.CLONE_NEWCGROUP|unix.CLONE_NEWTIME))...)
			body = append(body, when(way.clone, without(namespaceFlags|unix.CLONE_NEWIPC))...)
			body = append(body, when(way.personality, []unix.SockFilter{
				{Code: load, K: argument},
				{Code: equal, K: 0xffffffff, Jt: 2, Jf: 0}, // asks
				{Code: and, K: ^uint32(0x20008)},           // UNAME26 and PER_LINUX32 give a program no rights
				{Code: equal, K: 0, Jt: 0, Jf: 1},
				allow,
				refuse,
			})...)
		}
		// Of the kernel's own sockets only those about the network namespace are open. Others tell of the machine: its devices, its audit.
		sockets := append([]unix.SockFilter{{Code: load, K: argument}}, when(unix.AF_NETLINK, []unix.SockFilter{
			{Code: load, K: argument + 8*2},
			{Code: equal, K: unix.NETLINK_ROUTE, Jt: 1, Jf: 0},
			unknownProtocol,
			allow,
		})...)
		if box {
			for _, family := range socketFamilies() {
				sockets = append(sockets, when(family, []unix.SockFilter{allow})...)
			}
			sockets = append(sockets, unknownFamily)
		} else {
			sockets = append(sockets, allow)
		}
		for _, number := range way.sockets {
			body = append(body, when(number, sockets)...)
		}
		if !sameUser {
			filter = append(filter, unix.SockFilter{Code: load, K: callArch})
			filter = append(filter, when(way.arch, append(body, allow))...)
			continue
		}
		body = append(body, when(way.prlimit, append([]unix.SockFilter{
			{Code: load, K: argument + 8*2}, // the new limit; none: it only reads
			{Code: equal, K: 0, Jt: 0, Jf: 3},
			{Code: load, K: argument + 8*2 + 4},
			{Code: equal, K: 0, Jt: 0, Jf: 1},
			allow,
		}, ours(0)...))...)
		for _, number := range way.ofPID {
			body = append(body, when(number, ours(0))...)
		}
		for i, number := range way.ofWhich {
			user := firstOfUser + uint32(i) //nolint:gosec // 0 or 1
			body = append(body, when(number, append([]unix.SockFilter{
				{Code: load, K: argument},
				{Code: equal, K: user, Jt: 0, Jf: 1}, // all processes of a user, the runner's among them
				refuse,
			}, ours(1)...))...)
		}
		body = append(body, allow)
		filter = append(filter, unix.SockFilter{Code: load, K: callArch})
		filter = append(filter, when(way.arch, body)...)
	}
	return append(filter, allow)
}
