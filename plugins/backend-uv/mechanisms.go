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

	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// mechanisms are the means that isolate programs on this machine.
type mechanisms struct {
	// Setuid reports whether the programs of each slot run under a uid of uids.
	Setuid bool `json:"setuid"`
	// User reports whether an unprivileged runner starts in user and mount namespaces. Unless its programs may use the network,
	// the runner is also in an empty network namespace.
	User bool `json:"user"`
	// Network reports whether a runner that is root starts programs in an empty network namespace.
	Network bool `json:"network"`
	// Tmpfs reports whether a work folder is a tmpfs with the size of the disk limit.
	Tmpfs bool `json:"tmpfs"`
	// Why has the reason for each field that is false, by its JSON name.
	Why map[string]string `json:"why"`

	uids uids
}

// offByDefault reports whether programs can be kept from the network.
func (m mechanisms) offByDefault() bool { return m.Network || m.User }

// attributes returns the attributes with which a runner process is started.
func (m mechanisms) attributes(network bool) *syscall.SysProcAttr {
	attr := childAttr(0)
	// On SIGTERM, unlike SIGKILL, a runner first ends its program and all descendants of the program.
	attr.Pdeathsig = syscall.SIGTERM
	switch {
	case m.User:
		// In its namespace the runner is uid 0, which may mount and configure the loopback. Outside it has the plugin's uid.
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		if !network {
			attr.Cloneflags |= syscall.CLONE_NEWNET
		}
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	case m.Tmpfs:
		attr.Unshareflags = syscall.CLONE_NEWNS // package syscall makes the mounts private, so that they do not reach the host
	}
	return attr
}

// findMechanisms finds the mechanisms that work. The probes start processes, so the result is cached for this boot, user and set
// of namespaces.
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
	// Best effort: without the file the next start probes again.
	_ = writeJSON(cacheFile, map[string]mechanisms{stamp: m})
	return m
}

// probeMechanisms tries each mechanism. It claims the uid that it tries, so that hostUsers.stranger does not report the probe's
// process.
func probeMechanisms(ids uids, locks string) mechanisms {
	m := mechanisms{Why: map[string]string{}, uids: ids}
	works := func(name string, err error) bool {
		if err != nil {
			m.Why[name] = err.Error()
		}
		return err == nil
	}
	if os.Geteuid() == 0 {
		m.Why["user"] = "not needed: this process is root"
		uid := ids.first
		if c, err := claimUID(locks, ids); err == nil {
			uid = c.uid
			defer c.undo()
		}
		m.Setuid = works("setuid", sandbox.ProbeSetuid(uid, uid))
		m.Network = works("network", sandbox.ProbeNetworkNamespace())
		m.Tmpfs = works("tmpfs", sandbox.ProbeTmpfs())
		return m
	}
	m.Why["setuid"] = "this process is not root"
	if m.User = works("user", sandbox.ProbeUserNamespace()); m.User {
		m.Tmpfs = true // a user namespace may always mount a tmpfs
		m.Why["network"] = "not needed: the runner is inside a network namespace"
		return m
	}
	m.Why["network"], m.Why["tmpfs"] = "this process is not root, and user namespaces do not work", "this process is not root, and user namespaces do not work"
	return m
}

// machineStamp returns a hash that changes when the result of probeMechanisms may change.
func machineStamp(ids uids) string {
	parts := []string{fmt.Sprint(os.Geteuid(), os.Getegid()), ids.String(), boot()}
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
