package sandbox

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// kernelCall is a system call as a seccomp filter sees it.
type kernelCall struct {
	arch, number uint32
	args         [3]uint64
}

// judgeCall runs a filter as the kernel does.
func judgeCall(t *testing.T, filter []unix.SockFilter, c kernelCall) uint32 {
	t.Helper()
	data := map[uint32]uint32{0: c.number, 4: c.arch}
	for i, arg := range c.args {
		at := 16 + 8*uint32(i)                              //nolint:gosec // three
		data[at], data[at+4] = uint32(arg), uint32(arg>>32) //nolint:gosec // halves
	}
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
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			if a&in.K != 0 {
				at += int(in.Jt)
			} else {
				at += int(in.Jf)
			}
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			if a > in.K || a == in.K && in.Code&unix.BPF_JGE == unix.BPF_JGE {
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

func TestSeccompRefusesWhatChangesTheRunnerOnly(t *testing.T) {
	t.Parallel()
	const refuse, allow = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ALLOW
	// The runner has the processes and threads 17 to 20.
	for arch, ways := range map[string]map[string]refusedCalls{
		"amd64": {"native": refusedCallsOf("amd64")[0], "x32": x32(refusedCallsOf("amd64")[0]), "32 bits": refusedCallsOf("amd64")[1]},
		"arm64": {"native": refusedCallsOf("arm64")[0], "32 bits": refusedCallsOf("arm64")[1]},
	} {
		filter := seccompFilter(arch, 17, 20, true, false)
		for way, c := range ways {
			tests := map[string]struct {
				kernelCall
				want uint32
			}{
				"a limit for the runner":               {kernelCall{c.arch, c.prlimit, [3]uint64{17, 7, 0x1000}}, refuse},
				"a limit for the runner, far above":    {kernelCall{c.arch, c.prlimit, [3]uint64{17, 7, 1 << 40}}, refuse},
				"a limit for its last thread":          {kernelCall{c.arch, c.prlimit, [3]uint64{20, 7, 0x1000}}, refuse},
				"the limits of the runner":             {kernelCall{c.arch, c.prlimit, [3]uint64{17, 7, 0}}, allow},
				"a limit for itself":                   {kernelCall{c.arch, c.prlimit, [3]uint64{0, 7, 0x1000}}, allow},
				"a limit for another before":           {kernelCall{c.arch, c.prlimit, [3]uint64{16, 7, 0x1000}}, allow},
				"a limit for another behind":           {kernelCall{c.arch, c.prlimit, [3]uint64{21, 7, 0x1000}}, allow},
				"another call":                         {kernelCall{c.arch, c.prlimit + 1, [3]uint64{17, 17, 17}}, allow},
				"a call of a machine nobody has met":   {kernelCall{1, c.prlimit, [3]uint64{17, 7, 0x1000}}, allow},
				"the priority of a process":            {kernelCall{c.arch, c.ofWhich[0], [3]uint64{unix.PRIO_PROCESS, 18, 19}}, refuse},
				"the priority of a group":              {kernelCall{c.arch, c.ofWhich[0], [3]uint64{unix.PRIO_PGRP, 17, 19}}, refuse},
				"the priority of all of a user":        {kernelCall{c.arch, c.ofWhich[0], [3]uint64{unix.PRIO_USER, 0, 19}}, refuse},
				"its own priority":                     {kernelCall{c.arch, c.ofWhich[0], [3]uint64{unix.PRIO_PROCESS, 0, 19}}, allow},
				"another's priority":                   {kernelCall{c.arch, c.ofWhich[0], [3]uint64{unix.PRIO_PROCESS, 21, 19}}, allow},
				"the disk priority of all of a user":   {kernelCall{c.arch, c.ofWhich[1], [3]uint64{3, 0, 0}}, refuse},
				"the disk priority of the runner":      {kernelCall{c.arch, c.ofWhich[1], [3]uint64{1, 17, 0}}, refuse},
				"the disk priority of a group of ours": {kernelCall{c.arch, c.ofWhich[1], [3]uint64{2, 17, 0}}, refuse},
				"its own disk priority":                {kernelCall{c.arch, c.ofWhich[1], [3]uint64{1, 0, 0}}, allow},
			}
			for i, number := range c.ofPID {
				tests[fmt.Sprint("scheduling ", i, " of the runner")] = struct {
					kernelCall
					want uint32
				}{kernelCall{c.arch, number, [3]uint64{19}}, refuse}
				tests[fmt.Sprint("scheduling ", i, " of itself")] = struct {
					kernelCall
					want uint32
				}{kernelCall{c.arch, number, [3]uint64{0}}, allow}
			}
			for name, test := range tests {
				if got := judgeCall(t, filter, test.kernelCall); got != test.want {
					t.Errorf("%s, %s, %s: %#x, want %#x", arch, way, name, got, test.want)
				}
			}
		}
	}
	if seccompFilter("riscv64", 17, 17, true, false) != nil {
		t.Error("it guesses the numbers of a machine that it does not know")
	}
}

// x32 calls the same with the bit that x32 has.
func x32(c refusedCalls) refusedCalls {
	const bit = 0x40000000
	c.prlimit |= bit
	c.ofPID = slices.Clone(c.ofPID)
	for i := range c.ofPID {
		c.ofPID[i] |= bit
	}
	c.ofWhich[0] |= bit
	c.ofWhich[1] |= bit
	return c
}

func TestSeccompRefusesKeysToEverybody(t *testing.T) {
	t.Parallel()
	const refuse, allow = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ALLOW
	for _, sameUser := range []bool{true, false} {
		for _, c := range []struct {
			arch  string
			way   uint32
			calls []uint32
			write uint32
		}{
			{"amd64", unix.AUDIT_ARCH_X86_64, []uint32{248, 249, 250, 248 | 0x40000000, 249 | 0x40000000, 250 | 0x40000000}, 1},
			{"amd64", unix.AUDIT_ARCH_I386, []uint32{286, 287, 288}, 4},
			{"arm64", unix.AUDIT_ARCH_AARCH64, []uint32{217, 218, 219}, 64},
			{"arm64", unix.AUDIT_ARCH_ARM, []uint32{309, 310, 311}, 4},
		} {
			filter := seccompFilter(c.arch, 17, 20, sameUser, false)
			for _, number := range c.calls {
				if got := judgeCall(t, filter, kernelCall{arch: c.way, number: number}); got != refuse {
					t.Errorf("%s %#x: call %#x gets %#x", c.arch, c.way, number, got)
				}
			}
			if got := judgeCall(t, filter, kernelCall{arch: c.way, number: c.write}); got != allow {
				t.Errorf("%s %#x: write gets %#x", c.arch, c.way, got)
			}
		}
		prlimit := kernelCall{arch: unix.AUDIT_ARCH_X86_64, number: 302, args: [3]uint64{17, 7, 1}}
		if got := judgeCall(t, seccompFilter("amd64", 17, 20, sameUser, false), prlimit); (got == refuse) != sameUser {
			t.Errorf("same user %t: a new limit of the runner gets %#x", sameUser, got)
		}
	}
}

func TestSeccompRefusesInABoxWhatProgramsNeverNeed(t *testing.T) {
	t.Parallel()
	const refuse, allow = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ALLOW
	for arch, machine := range map[string][]struct {
		way                           uint32
		refused                       []uint32
		unshare, clone, fork3, ptrace uint32
	}{
		"amd64": {
			{unix.AUDIT_ARCH_X86_64, []uint32{165, 166, 155, 308, 321, 175, 428, 429, 442, 425, 165 | 0x40000000}, 272, 56, 435, 101},
			{unix.AUDIT_ARCH_I386, []uint32{21, 22, 52, 217, 346, 357, 428, 429, 442, 425}, 310, 120, 435, 26},
		},
		"arm64": {
			{unix.AUDIT_ARCH_AARCH64, []uint32{40, 39, 41, 268, 280, 428, 429, 442, 425}, 97, 220, 435, 117},
			{unix.AUDIT_ARCH_ARM, []uint32{21, 52, 218, 375, 386, 428, 429, 442, 425}, 337, 120, 435, 26},
		},
	} {
		for _, sameUser := range []bool{true, false} {
			inBox, outside := seccompFilter(arch, 1, 9, sameUser, true), seccompFilter(arch, 1, 9, sameUser, false)
			for _, m := range machine {
				tests := map[kernelCall]uint32{
					{arch: m.way, number: m.unshare, args: [3]uint64{unix.CLONE_NEWUSER}}:                   refuse,
					{arch: m.way, number: m.unshare, args: [3]uint64{unix.CLONE_NEWIPC | unix.CLONE_FS}}:    allow, // for the thread that starts programs
					{arch: m.way, number: m.unshare, args: [3]uint64{unix.CLONE_NEWIPC | unix.CLONE_NEWNS}}: refuse,
					{arch: m.way, number: m.clone, args: [3]uint64{unix.CLONE_NEWNET | 17}}:                 refuse,
					{arch: m.way, number: m.clone, args: [3]uint64{unix.CLONE_NEWIPC | 17}}:                 refuse,
					{arch: m.way, number: m.clone, args: [3]uint64{unix.CLONE_VM | unix.CLONE_VFORK | 17}}:  allow,
					{arch: m.way, number: m.fork3}:  allow, // see chrootBox
					{arch: m.way, number: m.ptrace}: allow,
				}
				for _, number := range m.refused {
					tests[kernelCall{arch: m.way, number: number}] = refuse
				}
				for call, want := range tests {
					if got := judgeCall(t, inBox, call); got != want {
						t.Errorf("%s %#x, same user %t: %+v gets %#x, want %#x", arch, m.way, sameUser, call, got, want)
					}
					if got := judgeCall(t, outside, call); got != allow {
						t.Errorf("%s %#x, outside of a box: %+v gets %#x", arch, m.way, call, got)
					}
				}
			}
		}
	}
}
