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

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// mechanisms are the means that isolate programs on this machine.
type mechanisms struct {
	// Setuid reports whether the programs of each slot run under a uid of uids.
	Setuid bool `json:"setuid"`
	// User reports whether an unprivileged runner starts in user and mount namespaces. Without a box, and unless its programs may
	// use the network, the runner is also in an empty network namespace.
	User bool `json:"user"`
	// Network reports whether a runner that is root starts programs in an empty network namespace.
	Network bool `json:"network"`
	// WayOut reports whether a runner can give programs a network namespace of their own from which they reach the outside.
	WayOut bool `json:"way_out"`
	// Tmpfs reports whether a work folder is a tmpfs with the size of the disk limit.
	Tmpfs bool `json:"tmpfs"`
	// Box reports whether programs run in a box: namespaces with a root folder of their own. A box needs Tmpfs, and User or both
	// Setuid and Network.
	Box bool `json:"box"`
	// Layers lists the optional parts of a box.
	Layers []sandbox.Layer `json:"layers"`
	// Why has the reason for each field that is false, by its JSON name.
	Why map[string]string `json:"why"`

	uids uids
}

// seenUID returns the uid that programs in a user namespace see as theirs.
func (m mechanisms) seenUID() int {
	if m.Box {
		return sandbox.BoxUser
	}
	return 0
}

// offByDefault reports whether programs can be kept from the network.
func (m mechanisms) offByDefault() bool { return m.Network || m.User }

// attributes returns the attributes with which a runner process is started.
func (m mechanisms) attributes(network bool) *syscall.SysProcAttr {
	attr := childAttr(0)
	// On SIGTERM, unlike SIGKILL, a runner first ends its program and all descendants of the program.
	attr.Pdeathsig = syscall.SIGTERM
	switch {
	case m.Box:
		attr = sandbox.BoxAttributes()
		attr.Pdeathsig = syscall.SIGTERM
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

// missing returns what the sandbox lacks on this machine and why, or "" if all of it works. Landlock does not count, because a box
// alone has nearly all of its rules.
func (m mechanisms) missing() string {
	if !m.Box {
		return m.Why["box"]
	}
	for _, l := range m.Layers {
		if l.Name == "seccomp" && l.Missing != "" {
			return l.Name + ": " + l.Missing
		}
	}
	return ""
}

// checkIsolation refuses the isolation namespaces on a machine where the sandbox does not work. Codes: invalid.
func (c Config) checkIsolation(name string, m mechanisms) error {
	if missing := m.missing(); c.Isolation == IsolationNamespaces && missing != "" {
		p := backend.Section(name)
		p.Add("isolation", "must be auto or none on this machine, where the sandbox does not work: %s; %s", missing, m.remedy())
		return p.Err()
	}
	return nil
}

// remedy returns what makes the sandbox work on this machine.
func (m mechanisms) remedy() string {
	self, err := os.Executable()
	if err != nil {
		self = "/usr/local/bin/python-executor"
	}
	return sandboxRemedy(os.Geteuid() == 0, self, func(knob string) string {
		raw, _ := os.ReadFile(knob) // a missing file is a setting of another kernel
		return strings.TrimSpace(string(raw))
	})
}

// sandboxRemedy returns what makes the sandbox work for the program self, where knob returns a setting of the kernel.
func sandboxRemedy(root bool, self string, knob func(string) string) string {
	const more = " (docs/sandbox.md)"
	switch {
	case root:
		return "give this process CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID, which its container or service has removed" + more
	case knob(usernsClone) == "0":
		return "run as root, or sysctl -w kernel.unprivileged_userns_clone=1" + more
	case knob(maxUserns) == "0":
		return "run as root, or sysctl -w user.max_user_namespaces=15000" + more
	case knob(apparmorUserns) == "1":
		return "run as root, or let AppArmor permit user namespaces to " + self + ", as root: " + installProfile(self) + more
	}
	return "run as root, or enable unprivileged user namespaces" + more
}

// appArmorProfile is the file of the profile of installProfile.
const appArmorProfile = "/etc/apparmor.d/python-executor"

// installProfile returns the shell command that installs a profile of AppArmor by which the program self may make user namespaces.
func installProfile(self string) string {
	pattern := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`, `^`, `\^`, `@`, `\@`).Replace(self)
	lines := []string{"abi <abi/4.0>,", "include <tunables/global>", `profile python-executor "` + pattern + `" flags=(unconfined) {`, "  userns,", "}"}
	quoted := make([]string, len(lines))
	for i, line := range lines {
		quoted[i] = "'" + strings.ReplaceAll(line, "'", `'\''`) + "'"
	}
	return "printf '%s\\n' " + strings.Join(quoted, " ") + " > " + appArmorProfile + " && apparmor_parser -r " + appArmorProfile
}

// The kernel's settings for user namespaces of ordinary users.
const (
	usernsClone    = "/proc/sys/kernel/unprivileged_userns_clone"
	maxUserns      = "/proc/sys/user/max_user_namespaces"
	apparmorUserns = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
)

// findMechanisms finds the mechanisms that work. The probes start processes, so the result is cached for this boot, user, program
// and set of namespaces if a box works.
func findMechanisms(c Config, cacheFile string) mechanisms {
	ids, _ := parseUIDs(c.RunAs) // validated before
	if c.Isolation == IsolationNone {
		why := "backends.uv.isolation is none"
		return mechanisms{Why: map[string]string{"setuid": why, "user": why, "network": why, "tmpfs": why, "box": why, "way_out": why}, uids: ids}
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
	if m.Box { // else the next start probes again: the reason may be gone
		_ = writeJSON(cacheFile, map[string]mechanisms{stamp: m}) // best effort
	}
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
		m.WayOut = works("way_out", withRunner(sandbox.ProbeNetwork))
		for _, needed := range []string{"setuid", "network", "tmpfs"} {
			if why := m.Why[needed]; why != "" && m.Why["box"] == "" {
				m.Why["box"] = why
			}
		}
		if m.Why["box"] == "" {
			m.Box = works("box", probeBox(uid))
		}
	} else {
		m.Why["setuid"] = "this process is not root"
		if m.User = works("user", sandbox.ProbeUserNamespace()); m.User {
			m.Tmpfs = true // a user namespace may always mount a tmpfs
			m.WayOut = works("way_out", withRunner(sandbox.ProbeNetwork))
			m.Why["network"] = "not needed: the runner is inside a network namespace"
			m.Box = works("box", probeBox(0))
		} else {
			why := "this process is not root, and user namespaces do not work: " + m.Why["user"]
			m.Why["network"], m.Why["tmpfs"], m.Why["box"], m.Why["way_out"] = why, why, why, why
		}
	}
	if m.Box {
		m.Layers = sandbox.Layers()
	}
	return m
}

// probeBox returns why programs cannot run in a box as uid, or nil. 0 stands for the plugin's own user.
func probeBox(uid int) error {
	return withRunner(func(program string, args []string) error { return sandbox.ProbeBox(program, args, uid, uid) })
}

// withRunner calls a probe with the program of runners.
func withRunner(probe func(program string, args []string) error) error {
	p, err := runnerProgram("")
	if err != nil {
		return err
	}
	if p.file != nil {
		defer p.file.Close()
	}
	return probe(p.path, p.args)
}

// machineStamp returns a hash that changes when the result of probeMechanisms may change.
func machineStamp(ids uids) string {
	parts := []string{fmt.Sprint(os.Geteuid(), os.Getegid()), ids.String(), boot()}
	// AppArmor may restrict a program by its path, and another version of this program may probe otherwise.
	if self, err := os.Executable(); err == nil {
		parts = append(parts, self)
		if info, err := os.Stat(self); err == nil {
			parts = append(parts, fmt.Sprint(info.Size(), info.ModTime().UnixNano()))
		}
	}
	for _, ns := range []string{"mnt", "user", "net", "pid", "ipc", "uts"} {
		name, _ := os.Readlink("/proc/self/ns/" + ns)
		parts = append(parts, name)
	}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		lines := strings.Split(string(status), "\n")
		parts = append(parts, slices.DeleteFunc(lines, func(l string) bool {
			return !strings.HasPrefix(l, "Cap") && !strings.HasPrefix(l, "Seccomp:") && !strings.HasPrefix(l, "NoNewPrivs:")
		})...)
	}
	for _, knob := range []string{
		usernsClone, maxUserns, apparmorUserns, "/proc/self/attr/current", "/sys/kernel/security/lsm", "/proc/sys/user/max_mnt_namespaces",
		"/proc/sys/user/max_pid_namespaces", "/proc/sys/user/max_net_namespaces", "/proc/sys/user/max_ipc_namespaces", "/proc/sys/user/max_uts_namespaces",
	} {
		value, _ := os.ReadFile(knob) // missing files are settings of other kernels
		parts = append(parts, string(value))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
