package backendtest

func abusePrivilegeRules() []rule {
	return []rule{
		{"BE-208", "abuse: the program has no privilege and gets none: user, groups, capabilities, no_new_privs, seccomp, setuid programs", abusePrivilege},
		{"BE-209", "abuse: system calls that affect the machine are refused", abuseCalls},
		{"BE-210", "abuse: no namespace can be made or entered", abuseNamespaces},
		{"BE-211", "abuse: the kernel's keyrings are out of reach", abuseKeyring},
	}
}

func abusePrivilege(c *Case) {
	const status = `
def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return line.split(":", 1)[1].split()
    return []
`
	c.try([]attempt{
		{"to be root", separated, `
if 0 in os.getresuid() + os.getresgid():
    return os.getresuid(), os.getresgid()
raise Refused("it is not")`},
		{"a group of root's", separated, `
if set(os.getgroups()) - {os.getgid()}:
    return os.getgroups()
raise Refused("it has none")`},
		{"a capability", separated, status + `
held = {k: status(k) for k in ("CapInh", "CapPrm", "CapEff", "CapAmb") if int((status(k) or ["0"])[0], 16)}
if held:
    return held
raise Refused("it has none")`},
		{"a capability that it could get", contained, status + `
if int((status("CapBnd") or ["0"])[0], 16):
    return status("CapBnd")
raise Refused("there is none")`},
		{"new privileges", always, status + `
if status("NoNewPrivs") == ["0"]:
    return "no_new_privs is off"
raise Refused("no_new_privs is on")`},
		{"a kernel without a filter", contained, status + `
if status("Seccomp") in (["0"], ["1"]):
    return status("Seccomp")
raise Refused("seccomp is on, or the kernel is not the host's")`},
		{"root by a call", separated, `return call("setuid", 0)`},
		{"root's group by a call", separated, `return call("setgid", 0)`},
		{"more groups by a call", separated, `return call("setgroups", 1, struct.pack("I", 0))`},
		{"root by a setuid program", separated, `
import subprocess
found = []
for folder in ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/lib", "/usr/local/bin"):
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.stat(path).st_mode & 0o6000:
            found.append(path)
def effective(path):
    child = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        uids = [l.split()[2] for l in open("/proc/%d/status" % child.pid) if l.startswith("Uid:")]
    finally:
        child.kill()
        child.wait()
    if uids != ["0"]:
        raise Refused("it is " + repr(uids))
    return uids
return first(found[:12], effective)`},
		{"a setuid program of its own", separated, `
import shutil
shutil.copy(os.path.realpath(sys.executable), "own")
os.chown("own", 0, 0)
os.chmod("own", 0o6755)
return os.stat("own")`},
		{"a capability on a file", separated, `
open("capable", "w").close()
value = struct.pack("IIIII", 0x02000001, 0xffffffff, 0, 0xffffffff, 0)
return call("setxattr", b"capable", b"security.capability", value, 20, 0)`},
		{"somebody else's file", separated, `
open("given", "w").close()
os.chown("given", 0, 0)
return "given away"`},
	})
}

func abuseCalls(c *Case) {
	c.try([]attempt{
		{"load a module", separated, `return call("init_module", b"", 0, b"")`},
		{"load a module from a file", separated, `return call("finit_module", 0, b"", 0)`},
		{"unload a module", separated, `return call("delete_module", b"pyexec_law", 2048)`},
		{"load another kernel", separated, `return call("kexec_load", 0, 0, None, 0)`},
		{"a program in the kernel", contained, `
attributes = struct.pack("IIII", 2, 4, 4, 1) + bytes(104)
return call("bpf", 0, attributes, 120)`},
		{"watch the kernel", contained, `
attributes = struct.pack("IIQ", 1, 112, 0) + bytes(96)
return call("perf_event_open", attributes, -1, 0, -1, 0)`},
		{"watch all files", separated, `return call("fanotify_init", 0, 0)`},
		{"handle the kernel's page faults", contained, `return call("userfaultfd", 0)`},
		{"swap", separated, `return call("swapon", b"/dev/null", 0)`},
		{"account for all", separated, `return call("acct", None)`},
		{"the machine's name", separated, `return call("sethostname", b"pyexec-law", 10)`},
		{"the machine's domain", separated, `return call("setdomainname", b"pyexec-law", 10)`},
		{"the machine's time", separated, `return call("settimeofday", struct.pack("qq", int(time.time()), 0), None)`},
		{"the machine's clock", separated, `return call("clock_settime", 0, struct.pack("qq", int(time.time()), 0))`},
		{"the machine's ports", separated, `return call("iopl", 3)`},
		{"another kernel's manners", contained, `return call("personality", 0x0040000)`},
	})
}

func abuseNamespaces(c *Case) {
	attempts := []attempt{
		{"enter another's", separated, `
names = ["/proc/%d/ns/%s" % (p, n) for p in ancestors() + [1] for n in ("mnt", "net", "pid", "ipc", "uts", "user", "cgroup")]
return first(names, lambda f: call("setns", os.open(f, os.O_RDONLY), 0))`},
	}
	for name, flags := range map[string]string{
		"mounts": "0x00020000", "network": "0x40000000", "processes": "0x20000000", "names": "0x04000000", "control groups": "0x02000000",
	} {
		attempts = append(attempts, attempt{"make one of " + name, separated, `return call("unshare", ` + flags + `)`})
	}
	attempts = append(attempts, attempt{"make one of users", contained, `return call("unshare", 0x10000000)`},
		attempt{"make one of users and all others", contained, `return call("unshare", 0x7e020000)`})
	c.try(attempts)
}
