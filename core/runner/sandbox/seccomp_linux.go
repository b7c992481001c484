package sandbox

import (
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// installSeccomp keeps what this thread forks from the kernel's keyrings. A user's keyring outlives its programs, and a
// session's holds what the server's user left there. sameUser says that programs have the runner's uid. Then they may also not
// set the runner's resource limits and scheduling: those calls only check the uid, and a runner without memory, descriptors or
// time could neither end the program nor report its end. Reading them stays allowed. The filter needs no_new_privs. Without
// such a filter in the kernel a program has no more rights than before.
func installSeccomp(sameUser bool) {
	first := uint32(os.Getpid()) //nolint:gosec // a process number is positive
	filter := seccompFilter(runtime.GOARCH, first, lastThread(first), sameUser)
	if filter == nil {
		return
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // about sixty
	// Before Linux 5.16 prctl would enable a mitigation that slows the program down.
	_, _, _ = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		uintptr(unsafe.Pointer(&program))) //nolint:gosec // the call takes the filter so
	runtime.KeepAlive(filter)
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

// The calls that the filter looks at, by their numbers on a machine.
type refusedCalls struct {
	arch uint32
	// ofPID have a process as their first argument. Of ofWhich the first argument tells what the second is.
	prlimit  uint32
	ofPID    []uint32  // sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr
	ofWhich  [2]uint32 // setpriority, ioprio_set
	ignoring uint32    // bits of a number that do not matter
	keys     [3]uint32 // add_key, request_key, keyctl
}

// refusedCallsOf returns a machine's calls: its own, and those of 32 bits.
func refusedCallsOf(arch string) []refusedCalls {
	const x32 = 0x40000000 // the same calls of x32 have this bit
	switch arch {
	case "amd64":
		return []refusedCalls{
			{unix.AUDIT_ARCH_X86_64, 302, []uint32{203, 144, 142, 314}, [2]uint32{141, 251}, x32, [3]uint32{248, 249, 250}},
			{unix.AUDIT_ARCH_I386, 340, []uint32{241, 156, 154, 351}, [2]uint32{97, 289}, 0, [3]uint32{286, 287, 288}},
		}
	case "arm64":
		return []refusedCalls{
			{unix.AUDIT_ARCH_AARCH64, 261, []uint32{122, 119, 118, 274}, [2]uint32{140, 30}, 0, [3]uint32{217, 218, 219}},
			{unix.AUDIT_ARCH_ARM, 369, []uint32{241, 156, 154, 380}, [2]uint32{97, 314}, 0, [3]uint32{309, 310, 311}},
		}
	default:
		return nil // the numbers of this machine are not known
	}
}

// seccompFilter refuses the calls about keys. With sameUser it also refuses the others for the processes and threads from first
// to last, in each of the machine's ways to call. It is nil for a machine whose numbers are not known.
func seccompFilter(arch string, first, last uint32, sameUser bool) []unix.SockFilter {
	ways := refusedCallsOf(arch)
	if ways == nil {
		return nil
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		above   = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		finish  = unix.BPF_RET | unix.BPF_K
		// A filter sees number, arch, instruction pointer (8 bytes), and arguments (8 bytes each, the low half first).
		callNumber, callArch, argument = 0, 4, 16
		// setpriority and ioprio_set number differently what their second argument is: process, group, user.
		firstOfUser = 2
	)
	refuse := unix.SockFilter{Code: finish, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
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
