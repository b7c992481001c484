package runner

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shield keeps what this thread forks from setting the runner's resource limits. A program that is the same user as its
// runner may do that (prlimit asks for the user only, however little of the runner is to be seen otherwise), and a runner
// with no memory or no descriptors to spare could not tell how the program ended. Reading them stays allowed. It needs
// no_new_privs. Where the kernel has no such filter the program is left no more than it had.
func shield() {
	filter := shieldFilter(runtime.GOARCH, uint32(os.Getpid())) //nolint:gosec // a process number is positive
	if filter == nil {
		return
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // sixteen
	// Not by prctl: before Linux 5.16 that slows the program down by a mitigation that it has no use for.
	_, _, _ = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		uintptr(unsafe.Pointer(&program))) //nolint:gosec // the call takes the filter so
	runtime.KeepAlive(filter)
}

// shieldFilter refuses prlimit64 with a new limit for the process pid, whichever of the machine's ways it is called by; nil
// for a machine whose numbers it does not know.
func shieldFilter(arch string, pid uint32) []unix.SockFilter {
	var native, number, other, otherNumber uint32
	switch arch {
	case "amd64":
		native, number, other, otherNumber = unix.AUDIT_ARCH_X86_64, 302, unix.AUDIT_ARCH_I386, 340
	case "arm64":
		native, number, other, otherNumber = unix.AUDIT_ARCH_AARCH64, 261, unix.AUDIT_ARCH_ARM, 369
	default:
		return nil
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		and    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		finish = unix.BPF_RET | unix.BPF_K
		// What a filter sees: number, arch, instruction pointer (8 bytes), arguments (8 bytes each, the low half first).
		callNumber, callArch, argPID, argLimitLow, argLimitHigh = 0, 4, 16, 32, 36
		// The same calls of x32 have this bit.
		x32 = 0x40000000
	)
	return []unix.SockFilter{
		0:  {Code: load, K: callArch},
		1:  {Code: equal, K: native, Jt: 0, Jf: 3},
		2:  {Code: load, K: callNumber},
		3:  {Code: and, K: ^uint32(x32)},
		4:  {Code: equal, K: number, Jt: 3, Jf: 10},
		5:  {Code: equal, K: other, Jt: 0, Jf: 9},
		6:  {Code: load, K: callNumber},
		7:  {Code: equal, K: otherNumber, Jt: 0, Jf: 7},
		8:  {Code: load, K: argPID},
		9:  {Code: equal, K: pid, Jt: 0, Jf: 5},
		10: {Code: load, K: argLimitLow},
		11: {Code: equal, K: 0, Jt: 0, Jf: 2},
		12: {Code: load, K: argLimitHigh},
		13: {Code: equal, K: 0, Jt: 1, Jf: 0},
		14: {Code: finish, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		15: {Code: finish, K: unix.SECCOMP_RET_ALLOW},
	}
}
