package runner

import (
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shield keeps what this thread forks from the kernel's keyrings: those of a user outlive its programs, and a session's
// holds what the user of the server left there. sameUser: programs run as the user of the runner. It then also keeps them
// from setting the runner's resource limits and its scheduling: those calls ask for the user only, and a runner with no
// memory, no descriptors or no time to spare could neither end the program nor tell how it ended. Reading them stays
// allowed. It needs no_new_privs. Where the kernel has no such filter the program is left no more than it had.
func shield(sameUser bool) {
	first := uint32(os.Getpid()) //nolint:gosec // a process number is positive
	filter := shieldFilter(runtime.GOARCH, first, lastThread(first), sameUser)
	if filter == nil {
		return
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // about sixty
	// Not by prctl: before Linux 5.16 that slows the program down by a mitigation that it has no use for.
	_, _, _ = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		uintptr(unsafe.Pointer(&program))) //nolint:gosec // the call takes the filter so
	runtime.KeepAlive(filter)
}

// lastThread is the highest number of our threads, which those calls take as well as the process's. As PID 1 of a container
// they are the first numbers of all, made before any program. Elsewhere other processes lie between: only the process's own.
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

// The calls that the shield looks at, by the numbers that a machine has for them.
type shieldCalls struct {
	arch uint32
	// ofPID take a process as their first argument; ofWhich say by the first what the second is.
	prlimit  uint32
	ofPID    []uint32  // sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr
	ofWhich  [2]uint32 // setpriority, ioprio_set
	ignoring uint32    // bits of a number that do not matter
	keys     [3]uint32 // add_key, request_key, keyctl
}

// shieldArchs are each machine's ways to call: its own and that of 32 bits.
func shieldArchs(arch string) []shieldCalls {
	const x32 = 0x40000000 // the same calls of x32 have this bit
	switch arch {
	case "amd64":
		return []shieldCalls{
			{unix.AUDIT_ARCH_X86_64, 302, []uint32{203, 144, 142, 314}, [2]uint32{141, 251}, x32, [3]uint32{248, 249, 250}},
			{unix.AUDIT_ARCH_I386, 340, []uint32{241, 156, 154, 351}, [2]uint32{97, 289}, 0, [3]uint32{286, 287, 288}},
		}
	case "arm64":
		return []shieldCalls{
			{unix.AUDIT_ARCH_AARCH64, 261, []uint32{122, 119, 118, 274}, [2]uint32{140, 30}, 0, [3]uint32{217, 218, 219}},
			{unix.AUDIT_ARCH_ARM, 369, []uint32{241, 156, 154, 380}, [2]uint32{97, 314}, 0, [3]uint32{309, 310, 311}},
		}
	default:
		return nil // nobody's numbers are guessed
	}
}

// shieldFilter refuses the calls about keys, and with sameUser those others for the processes and threads from first to
// last, whichever of the machine's ways they are called by; nil for a machine whose numbers it does not know.
func shieldFilter(arch string, first, last uint32, sameUser bool) []unix.SockFilter {
	ways := shieldArchs(arch)
	if ways == nil {
		return nil
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		above  = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		and    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		finish = unix.BPF_RET | unix.BPF_K
		// What a filter sees: number, arch, instruction pointer (8 bytes), arguments (8 bytes each, the low half first).
		callNumber, callArch, argument = 0, 4, 16
		// setpriority and ioprio_set count differently what their second argument is: process, group, user.
		firstOfUser = 2
	)
	refuse := unix.SockFilter{Code: finish, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	allow := unix.SockFilter{Code: finish, K: unix.SECCOMP_RET_ALLOW}
	// ours ends: it refuses what is about a process of ours.
	ours := func(arg uint32) []unix.SockFilter {
		return []unix.SockFilter{
			{Code: load, K: argument + 8*arg},
			{Code: least, K: first, Jt: 0, Jf: 2},
			{Code: above, K: last, Jt: 1, Jf: 0},
			refuse,
			allow,
		}
	}
	// when prefixes then by a look at the call's number.
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
				{Code: equal, K: user, Jt: 0, Jf: 1}, // all of a user's, and so ours
				refuse,
			}, ours(1)...))...)
		}
		body = append(body, allow)
		filter = append(filter, unix.SockFilter{Code: load, K: callArch})
		filter = append(filter, when(way.arch, body)...)
	}
	return append(filter, allow)
}
