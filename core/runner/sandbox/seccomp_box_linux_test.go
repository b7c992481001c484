package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestSeccompLeavesABoxTheSocketsOfItsNetwork(t *testing.T) {
	t.Parallel()
	const allow, unknown = uint32(unix.SECCOMP_RET_ALLOW), unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	const closed = unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)
	for _, c := range []struct {
		arch    string
		way     uint32
		sockets []uint32
	}{
		{"amd64", unix.AUDIT_ARCH_X86_64, []uint32{41, 53, 41 | 0x40000000}},
		{"amd64", unix.AUDIT_ARCH_I386, []uint32{359, 360}},
		{"arm64", unix.AUDIT_ARCH_AARCH64, []uint32{198, 199}},
		{"arm64", unix.AUDIT_ARCH_ARM, []uint32{281, 288}},
	} {
		box, outside := seccompFilter(c.arch, 1, 9, false, true), seccompFilter(c.arch, 1, 9, false, false)
		for _, number := range c.sockets {
			for family := range uint64(64) {
				want := unknown
				switch family {
				case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
					want = allow
				}
				for protocol := range uint64(32) {
					call := kernelCall{arch: c.way, number: number, args: [3]uint64{family, 1, protocol}}
					want, wantOutside := want, allow
					if family == unix.AF_NETLINK && protocol != unix.NETLINK_ROUTE {
						want, wantOutside = closed, closed
					}
					if got := judgeCall(t, box, call); got != want {
						t.Errorf("%s %#x: call %d with family %d, protocol %d gets %#x, want %#x", c.arch, c.way, number, family, protocol, got, want)
					}
					if got := judgeCall(t, outside, call); got != wantOutside {
						t.Errorf("%s %#x: outside of a box, call %d with family %d, protocol %d gets %#x", c.arch, c.way, number, family, protocol, got)
					}
				}
			}
		}
	}
	if got := judgeCall(t, seccompFilter("amd64", 1, 9, false, true), kernelCall{arch: unix.AUDIT_ARCH_I386, number: 102}); got == allow {
		t.Error("socketcall hides the family")
	}
}
