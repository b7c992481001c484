package uvbackend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/python-executor/python-executor/core/runner"
)

// mechanisms are the means by which programs are kept apart here. What is false does not work, and Why says why.
type mechanisms struct {
	// Setuid: each slot's programs run under a uid of uids.
	Setuid bool `json:"setuid"`
	// User: an unprivileged runner starts in user and mount namespaces, and in an empty network namespace unless its
	// programs may use the network.
	User bool `json:"user"`
	// Network: the runner, as root, starts programs in an empty network namespace.
	Network bool `json:"network"`
	// Tmpfs: a work folder is a tmpfs of the size that the disk limit says.
	Tmpfs bool `json:"tmpfs"`
	// Why has a reason for each that is false, by its JSON name.
	Why map[string]string `json:"why"`

	uids uids
}

// offByDefault reports whether programs can be kept from the network.
func (m mechanisms) offByDefault() bool { return m.Network || m.User }

// attributes are how a runner process is started.
func (m mechanisms) attributes(network bool) *syscall.SysProcAttr {
	attr := childAttr(0)
	// Not SIGKILL: a runner that is told to end ends its program and all that descends from it first.
	attr.Pdeathsig = syscall.SIGTERM
	switch {
	case m.User:
		// Inside it is uid 0, which is what may mount and configure the loopback there. Outside it is what we are.
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		if !network {
			attr.Cloneflags |= syscall.CLONE_NEWNET
		}
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	case m.Tmpfs:
		attr.Unshareflags = syscall.CLONE_NEWNS // and private: our mounts do not reach the host
	}
	return attr
}

// findMechanisms tries what works. That costs processes, so the answers are kept for this boot, user and set of namespaces.
func findMechanisms(c Config, cacheFile string) mechanisms {
	ids, _ := parseUIDs(c.RunAs) // validated before
	if c.Isolation == IsolationNone {
		why := "backends.uv.isolation is none"
		return mechanisms{Why: map[string]string{"setuid": why, "user": why, "network": why, "tmpfs": why}, uids: ids}
	}
	stamp := machineStamp(ids)
	known := map[string]mechanisms{}
	if raw, err := os.ReadFile(cacheFile); err == nil && json.Unmarshal(raw, &known) == nil {
		if m, ok := known[stamp]; ok {
			m.uids = ids
			return m
		}
	}
	locks := ""
	if os.Geteuid() == 0 {
		locks, _ = uidFolder(c) // a folder that cannot be made is an error when uids are claimed for programs
	}
	m := probeMechanisms(ids, locks)
	// Best effort: without it the next start asks again.
	_ = writeJSON(cacheFile, map[string]mechanisms{stamp: m})
	return m
}

// probeMechanisms tries each one. The process that tries a uid has claimed it: nobody else takes it for a stranger's.
func probeMechanisms(ids uids, locks string) mechanisms {
	m := mechanisms{Why: map[string]string{}, uids: ids}
	works := func(name string, err error) bool {
		if err != nil {
			m.Why[name] = err.Error()
		}
		return err == nil
	}
	if os.Geteuid() == 0 {
		m.Why["user"] = "not needed: we are root"
		uid := ids.first
		if c, _, err := claimUID(locks, ids); err == nil {
			uid = c.uid
			defer c.release()
		}
		m.Setuid = works("setuid", runner.ProbeSetuid(uid, uid))
		m.Network = works("network", runner.ProbeNetworkNamespace())
		m.Tmpfs = works("tmpfs", runner.ProbeTmpfs())
		return m
	}
	m.Why["setuid"] = "we are not root"
	if m.User = works("user", runner.ProbeUserNamespace()); m.User {
		m.Tmpfs = true // a user namespace may always mount one
		m.Why["network"] = "not needed: the runner is inside a network namespace"
		return m
	}
	m.Why["network"], m.Why["tmpfs"] = "we are not root, and user namespaces do not work", "we are not root, and user namespaces do not work"
	return m
}

// machineStamp changes whenever the answers may.
func machineStamp(ids uids) string {
	parts := []string{fmt.Sprint(os.Geteuid(), os.Getegid()), ids.String()}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		parts = append(parts, string(boot))
	}
	for _, ns := range []string{"mnt", "user", "net"} {
		name, _ := os.Readlink("/proc/self/ns/" + ns)
		parts = append(parts, name)
	}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		lines := strings.Split(string(status), "\n")
		parts = append(parts, slices.DeleteFunc(lines, func(l string) bool {
			return !strings.HasPrefix(l, "Cap") && !strings.HasPrefix(l, "Seccomp:") && !strings.HasPrefix(l, "NoNewPrivs:")
		})...)
	}
	for _, knob := range []string{"/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"} {
		value, _ := os.ReadFile(knob)
		parts = append(parts, string(value))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
