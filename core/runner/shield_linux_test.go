package runner

import (
	"testing"

	"golang.org/x/sys/unix"
)

// kernelCall is a system call as a seccomp filter sees it.
type kernelCall struct {
	arch, number, pid uint32
	limit             uint64
}

// judgeCall runs a filter as the kernel does.
func judgeCall(t *testing.T, filter []unix.SockFilter, c kernelCall) uint32 {
	t.Helper()
	data := map[uint32]uint32{0: c.number, 4: c.arch, 16: c.pid, 32: uint32(c.limit), 36: uint32(c.limit >> 32)} //nolint:gosec // halves
	a := uint32(0)
	for at := 0; at < len(filter); at++ {
		switch in := filter[at]; in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			word, known := data[in.K]
			if !known {
				t.Fatalf("it loads offset %d", in.K)
			}
			a = word
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if a == in.K {
				at += int(in.Jt)
			} else {
				at += int(in.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d has code %#x", at, in.Code)
		}
	}
	t.Fatal("it runs off its end")
	return 0
}

func TestTheShieldRefusesNewLimitsForTheRunnerOnly(t *testing.T) {
	t.Parallel()
	const runner, refuse = 17, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	for arch, ways := range map[string]map[string][2]uint32{
		"amd64": {"native": {unix.AUDIT_ARCH_X86_64, 302}, "x32": {unix.AUDIT_ARCH_X86_64, 302 | 0x40000000}, "32 bits": {unix.AUDIT_ARCH_I386, 340}},
		"arm64": {"native": {unix.AUDIT_ARCH_AARCH64, 261}, "32 bits": {unix.AUDIT_ARCH_ARM, 369}},
	} {
		filter := shieldFilter(arch, runner)
		for way, at := range ways {
			for name, test := range map[string]struct {
				kernelCall
				want uint32
			}{
				"a limit for the runner":             {kernelCall{at[0], at[1], runner, 0x1000}, refuse},
				"a limit for the runner, far above":  {kernelCall{at[0], at[1], runner, 1 << 40}, refuse},
				"the limits of the runner":           {kernelCall{at[0], at[1], runner, 0}, unix.SECCOMP_RET_ALLOW},
				"a limit for itself":                 {kernelCall{at[0], at[1], 0, 0x1000}, unix.SECCOMP_RET_ALLOW},
				"a limit for another":                {kernelCall{at[0], at[1], 18, 0x1000}, unix.SECCOMP_RET_ALLOW},
				"another call":                       {kernelCall{at[0], at[1] + 1, runner, 0x1000}, unix.SECCOMP_RET_ALLOW},
				"a call of a machine nobody has met": {kernelCall{1, at[1], runner, 0x1000}, unix.SECCOMP_RET_ALLOW},
			} {
				if got := judgeCall(t, filter, test.kernelCall); got != test.want {
					t.Errorf("%s, %s, %s: %#x, want %#x", arch, way, name, got, test.want)
				}
			}
		}
	}
	if shieldFilter("riscv64", runner) != nil {
		t.Error("it guesses the numbers of a machine that it does not know")
	}
}
