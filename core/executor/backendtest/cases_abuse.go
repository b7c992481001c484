package backendtest

import (
	"fmt"
	"net"
	"slices"

	"github.com/python-executor/python-executor/core/executor"
)

// The abuse suite checks that abusive operations of a program are refused and do not affect another Execution. Without
// isolation a program may use the host. If it then runs as another user than the suite, the suite checks what that alone
// forbids.
func abuseRules() []rule {
	return slices.Concat([]rule{
		{"BE-200", "abuse: files, processes and secrets of the host cannot be reached", abuseHost},
		{"BE-201", "abuse: only the work folder and the temporary folder can be written, in particular not the interpreter", abuseWrite},
		{"BE-202", "abuse: nothing can be mounted or unmounted, and the root folder cannot be changed", abuseMount},
		{"BE-203", "abuse: the kernel's settings and the program's own limits cannot be changed", abuseSettings},
		{"BE-204", "abuse: no device that leads to the machine can be made or opened", abuseDevices},
	}, abuseRunnerRules(), abusePrivilegeRules(), abuseOtherRules(), abuseBombRules(), abuseFileRules(), abuseTemporaryRules(), abuseSharedRules(), abuseDirectoryRules())
}

func abuseHost(c *Case) {
	const secret = "not-for-you"
	public := c.hostFile("public", secret, 0o644)
	private := c.hostFile("private", secret, 0o600)
	mark := "pyexec-host-" + c.mark()
	c.hostProcess(mark, secret)
	c.try([]attempt{
		{"a file of the host", contained, fmt.Sprintf("return open(%q).read()", public)},
		{"a file of the host, up from here", contained, fmt.Sprintf("return open('../' * 60 + %q).read()", public)},
		{"a file of the host, by the root of another process", contained, fmt.Sprintf(`
return first(pids() + [1, "self", "thread-self"], lambda p: open("/proc/%%s/root%%s" %% (p, %q)).read())`, public)},
		{"a file of the host, by the folder of another process", contained, fmt.Sprintf(`
return first(pids() + [1], lambda p: open("/proc/%%s/cwd/%%s%%s" %% (p, "../" * 60, %q)).read())`, public)},
		{"a file of the host, by the namespaces of another process", contained, fmt.Sprintf(`
def enter(pid):
    call("setns", os.open("/proc/%%d/ns/mnt" %% pid, os.O_RDONLY), 0)
    return open(%q).read()
return first(pids() + [1], enter)`, public)},
		{"a private file of the host", separated, fmt.Sprintf("return open(%q).read()", private)},
		{"the host's passwords", separated, "return open('/etc/shadow').read()"},
		{"a file by its inode", separated, `
handle = ctypes.create_string_buffer(struct.pack("Ii8s", 8, 1, struct.pack("Q", 2)))
return call("open_by_handle_at", os.open("/etc", os.O_RDONLY), handle, os.O_RDONLY)`},
		{"a container daemon", contained, `
def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
return first(["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
              "/run/crio/crio.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"], connect)`},
		{"a process of the host", contained, fmt.Sprintf(`
def look(pid):
    line = open("/proc/%%d/cmdline" %% pid).read()
    if "pyexec-" + "host-" not in line:
        raise Refused("another one")
    return line
return first(pids(), look)`)},
		{"a secret in the host's environment", separated, fmt.Sprintf(`
def look(pid):
    environ = open("/proc/%%d/environ" %% pid).read()
    if "PYEXEC_LAW_" + "SECRET" not in environ:
        raise Refused("another one")
    return environ
return first(pids(), look)`)},
	})
}

func abuseWrite(c *Case) {
	c.try([]attempt{
		{"a system folder", separated, `
return first(["/", "/bin", "/boot", "/dev", "/etc", "/etc/cron.d", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/root", "/sbin",
              "/srv", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/share", "/var",
              "/var/cache", "/var/lib", "/var/log", "/var/spool"], make)`},
		{"a system file", separated, `
return first(["/etc/passwd", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/ld.so.cache", "/etc/ld.so.preload", "/bin/sh"],
             lambda f: os.open(f, os.O_WRONLY | os.O_APPEND))`},
		{"the interpreter", separated, `
return first([sys.executable, os.path.realpath(sys.executable), "/proc/self/exe"], lambda f: os.utime(f))`},
		{"the interpreter's folder", separated, `
return first([os.path.dirname(sys.executable), os.path.dirname(os.path.realpath(sys.executable))], make)`},
		{"the standard library", separated, `
return first([os.__file__, socket.__file__, ctypes.__file__], lambda f: os.open(f, os.O_WRONLY | os.O_APPEND))`},
		{"the installed packages", separated, `
here = os.path.realpath(os.getcwd())
folders = [p for p in sys.path if os.path.isdir(p) and not os.path.realpath(p).startswith(here)]
return first(folders, make)`},
		{"the folder around the work folder", separated, `return make("..")`},
		{"the runner", separated, `
return first(ancestors() + [1], lambda p: os.open("/proc/%d/exe" % p, os.O_WRONLY))`},
	})
}

func abuseMount(c *Case) {
	c.try([]attempt{
		{"mount a file system", separated, `return call("mount", b"none", b"/tmp", b"tmpfs", 0, None)`},
		{"mount the processes again", separated, `return call("mount", b"proc", b"/proc", b"proc", 0, None)`},
		{"bind a folder", separated, `return call("mount", b"/etc", b".", None, 4096, None)`},
		{"make the root writable", separated, `return call("mount", None, b"/", None, 32, None)`},
		{"make the work folder lawless", contained, `return call("mount", None, b".", None, 32, None)`},
		{"unmount the processes", separated, `return call("umount2", b"/proc", 2)`},
		{"change the root", separated, `return call("chroot", b".")`},
		{"turn the root around", separated, `return call("pivot_root", b".", b".")`},
		{"open a file system", separated, `return call("fsopen", b"tmpfs", 0)`},
		{"clone a tree of mounts", separated, `return call("open_tree", -100, b"/", 1)`},
		{"mount in a namespace of its own", contained, `
call("unshare", 0x10000000 | 0x00020000)
return call("mount", b"none", b"/tmp", b"tmpfs", 0, None)`},
	})
}

func abuseSettings(c *Case) {
	c.try([]attempt{
		{"a setting of the kernel", separated, `
return first(["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/randomize_va_space",
              "/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/fs/file-max",
              "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/lo/forwarding", "/proc/sys/fs/binfmt_misc/register"],
             lambda f: os.open(f, os.O_WRONLY))`},
		{"the kernel's emergency key", separated, `return os.open("/proc/sysrq-trigger", os.O_WRONLY)`},
		{"an interrupt", separated, `return os.open("/proc/irq/default_smp_affinity", os.O_WRONLY)`},
		{"a setting under /sys", separated, `
return first(["/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/kernel/profiling",
              "/sys/module/kernel/parameters/panic", "/sys/devices/system/cpu/cpu1/online"], lambda f: os.open(f, os.O_WRONLY))`},
		{"the names of the host's control groups", contained, `
names = [line.rstrip().split(":", 2)[2] for line in open("/proc/self/cgroup")]
names = [n for n in names if "python-executor" in n or ".slice" in n or ".scope" in n or "system" in n]
if not names:
    raise Refused("nothing is to be seen")
return names`},
		{"its own control group", separated, `
files = ("memory.max", "memory.high", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.shares", "cpu.cfs_quota_us", "cgroup.procs",
         "tasks", "release_agent", "notify_on_release", "cgroup.subtree_control", "devices.allow")
found = []
for folder, folders, names in os.walk("/sys/fs/cgroup"):
    found += [os.path.join(folder, n) for n in names if n in files]
    if len(found) > 2000 or folder.count("/") > 7:
        folders[:] = []
return first(found, lambda f: os.open(f, os.O_WRONLY))`},
		{"a control group below its own", separated, `
for line in open("/proc/self/cgroup"):
    own = line.rstrip().split(":", 2)
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/" + own[1]):
        for at in (own[2], ""):
            try:
                os.mkdir(root + at + "/pyexec-law")
                os.rmdir(root + at + "/pyexec-law")
                return root + at
            except OSError:
                pass
raise Refused("nowhere")`},
		{"the order in which it dies", separated, `return os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000")`},
		{"its hard limits", separated, `
def raise_hard(which):
    soft, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY:
        raise Refused("is unlimited already")
    try:
        resource.setrlimit(which, (soft, hard + 1))
    except ValueError as e:
        raise Refused(e)
return first([resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK], raise_hard)`},
		{"a better place in the queue for the CPU", separated, "return os.nice(-5)"},
		{"a place before all others", separated, "return os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"},
	})
}

func abuseDevices(c *Case) {
	c.try([]attempt{
		{"the machine's memory", separated, `
return first(["/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/proc/kmem", "/dev/kmsg"], lambda f: os.open(f, os.O_RDONLY))`},
		{"a disk", separated, `
disks = ["/dev/" + n for n in os.listdir("/dev") if n[:2] in ("sd", "vd", "xv", "nv", "dm", "md", "lo")]
return first(disks, lambda f: os.open(f, os.O_RDONLY))`},
		{"a disk of its own making", separated, "return os.mknod('disk', 0o60666, os.makedev(8, 0))"},
		{"a device of its own making", separated, "return os.mknod('mem', 0o20666, os.makedev(1, 1))"},
		{"a way into the kernel", contained, `
return first(["/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/uinput", "/dev/snapshot", "/dev/mapper/control"],
             lambda f: os.open(f, os.O_RDWR))`},
	})
}

// hostAddresses are the addresses of the host, except the loopback.
func hostAddresses() []string {
	var found []string
	addresses, _ := net.InterfaceAddrs() // on an error there are no addresses to test
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			found = append(found, ip.IP.String())
		}
	}
	return found
}

func needNetworkOff(c *Case) func(*executor.Job) {
	c.need(c.caps().NetworkOff, "a network that is off")
	return func(j *executor.Job) { j.Spec.Network = executor.NetworkOff }
}
