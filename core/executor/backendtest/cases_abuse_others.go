package backendtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

func abuseOtherRules() []rule {
	return []rule{
		{"BE-212", "abuse: neither of two concurrent Executions reaches the other: files, environment, memory, processes, sockets", abuseOthers},
		{"BE-213", "abuse: raw and packet sockets are refused", abuseRaw},
		{"BE-214", "abuse: with the network off nothing is reached: the host, its other addresses, IPv6, names, the metadata address", abuseNetwork},
		{"BE-225", "abuse: with a network the host's loopback is out of reach, or Info warns that it is not", abuseLoopback},
	}
}

// victimPython is a neighbour with a resource of every kind that programs could share. It prints how to find them.
const victimPython = `
import ctypes, os, socket, sys
open("secret", "w").write("not-for-you")
os.chmod("secret", 0o600)
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(0x7079, 4096, 0o1600)
address = libc.shmat(segment, None, 0) if segment != -1 else None
if address not in (None, ctypes.c_void_p(-1).value):
    ctypes.memmove(address, b"not-for-you", 12)
shared = "/dev/shm/pyexec-law-%d" % os.getpid()
try:
    os.write(os.open(shared, os.O_CREAT | os.O_RDWR, 0o600), b"not-for-you")
except OSError:
    pass
tcp = socket.create_server(("127.0.0.1", 0))
unix = socket.socket(socket.AF_UNIX)
unix.bind("\0pyexec-law-%s" % os.environ["PYEXEC_LAW_NUMBER"])
unix.listen()
print("at", os.getpid(), tcp.getsockname()[1], shared, os.getcwd(), flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
os.unlink(shared) if os.path.exists(shared) else None
libc.shmctl(segment, 0, None)
print(open("secret").read(), os.environ["PYEXEC_LAW_OWN"], flush=True)
`

func abuseOthers(c *Case) {
	number := strings.TrimPrefix(c.bare().ID, "exe_")
	read, write := io.Pipe()
	c.Cleanup(func() { _ = write.Close() }) // a pipe's Close returns no error
	victim := c.job(Program{
		Python: victimPython,
		Fake:   "write-file secret not-for-you\nprint at 1 1 /dev/shm/x /work\nread-stdin\nprint not-for-you not-for-you",
	})
	victim.Spec.Env = map[string]string{"PYEXEC_LAW_OWN": "not-for-you", "PYEXEC_LAW_NUMBER": number}
	victim.Stdin = c.source("stdin", nil, func() io.ReadCloser { return read })
	v := c.start(victim)
	v.until("the victim is up", func(j *journal) bool {
		return strings.HasSuffix(j.kept[executor.Stdout].String(), "\n")
	})
	var pid, port int
	var shared, folder string
	if _, err := fmt.Fscan(bufio.NewReader(strings.NewReader(strings.TrimPrefix(v.stdout(), "at "))), &pid, &port, &shared, &folder); err != nil {
		c.Fatalf("the victim said %q: %v", v.stdout(), err)
	}
	// All programs of a machine can reach its sockets, unless each Execution has a network of its own.
	network := contained
	if c.caps().NetworkOff {
		network = always
	}
	c.try([]attempt{
		{"a file", separated, fmt.Sprintf("return open(%q).read()", folder+"/secret")},
		{"a folder", separated, fmt.Sprintf(`
if os.path.realpath(os.getcwd()) == %q:
    raise Refused("it is the name of its own")
return os.listdir(%q)`, folder, folder)},
		{"a folder beside its own", separated, `
here = os.path.realpath(os.getcwd())
def look(path):
    if os.path.realpath(path) == here or not os.path.isdir(path):
        raise Refused("its own")
    open(path + "/secret").read()
around = os.path.dirname(here)
return first([around + "/" + n for n in os.listdir(around)], look)`},
		{"an environment", separated, `
def look(pid):
    environ = open("/proc/%d/environ" % pid).read()
    if "PYEXEC_LAW_" + "OWN" not in environ:
        raise Refused("another one")
    return environ
return first(pids(), look)`},
		{"a process", separated, fmt.Sprintf(`
def look(pid):
    if "PYEXEC_LAW" + "_NUMBER" in open("/proc/%%d/cmdline" %% pid).read() or pid == %d and pid not in ancestors():
        os.kill(pid, signal.SIGKILL)
        return pid
    raise Refused("another one")
return first([p for p in pids() if p not in ancestors()], look)`, pid)},
		{"its memory", separated, fmt.Sprintf(`
if %d in ancestors() + [MAIN, os.getpid()]:
    raise Refused("it is the number of its own")
return call("ptrace", 0x4206, %d, 0, 0)`, pid, pid)},
		{"shared memory", separated, `
segment = libc.shmget(0x7079, 4096, 0)
if segment == -1:
    raise OSError(ctypes.get_errno(), "there is none")
libc.shmat.restype = ctypes.c_void_p
address = libc.shmat(segment, None, 0)
if address == ctypes.c_void_p(-1).value:
    raise OSError(ctypes.get_errno(), "refused")
return ctypes.string_at(address, 12)`},
		{"a file in shared memory", separated, fmt.Sprintf(`
return first([%q] + ["/dev/shm/" + n for n in os.listdir("/dev/shm") if n.startswith("pyexec-law-")], lambda f: open(f).read())`, shared)},
		{"a port", network, fmt.Sprintf(`return socket.create_connection(("127.0.0.1", %d), timeout=3)`, port)},
		{"a socket without a file", network, fmt.Sprintf(`
s = socket.socket(socket.AF_UNIX)
s.connect("\0pyexec-law-%s")
return "connected"`, number)},
	})
	const question = "are you there\n"
	if _, err := io.WriteString(write, question); err != nil {
		c.Fatalf("the victim does not read: %v", err)
	}
	v.says(question)
	_ = write.Close() // a pipe's Close returns no error
	v.wait().succeeded()
	if want := question + "not-for-you not-for-you\n"; !strings.HasSuffix(v.stdout(), want) {
		c.Errorf("the victim said %q, want %q at its end", v.stdout(), want)
	}
}

func abuseRaw(c *Case) {
	c.try([]attempt{
		{"raw IP", separated, "return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"},
		{"raw IPv6", separated, "return socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)"},
		{"raw IP with its own header", separated, "return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)"},
		{"packets", separated, "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))"},
		{"packets without their head", separated, "return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))"},
		{"the kernel's events about devices", contained, `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15)
s.bind((0, 1))
return "listens"`},
		{"the kernel's audit", contained, "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)"},
		{"the sockets of others", contained, "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)"},
		{"the way of packets", separated, `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
s.bind((0, 0))
# RTM_NEWLINK: the loopback shall be up, which it is. Who may say that may say the opposite.
s.send(struct.pack("IHHIIBxHiII", 32, 16, 5, 1, 0, 0, 0, 1, 1, 1))
code = struct.unpack_from("i", s.recv(4096), 16)[0]
if code < 0:
    raise OSError(-code, os.strerror(-code))
return "changed"`},
		{"another's address", separated, `
s = socket.socket()
s.setsockopt(socket.IPPROTO_IP, 19, 1)  # IP_TRANSPARENT
return "taken"`},
	})
}

func abuseNetwork(c *Case) {
	off := needNetworkOff(c)
	port := "1"
	if c.suite.options.Dialect != DialectFake { // it tries nothing, and a listener would hold the fake clock
		_, port, _ = net.SplitHostPort(c.listenAt(":0"))
	}
	connect := func(host, port string) string {
		return fmt.Sprintf("return socket.create_connection((%q, %s), timeout=5)", host, port)
	}
	attempts := []attempt{
		{"a port of the host", always, connect("127.0.0.1", port)},
		{"a port of the host by another loopback address", always, connect("127.7.7.7", port)},
		{"a port of the host by IPv6", always, connect("::1", port)},
		{"a port of the host by an address in an address", always, connect("::ffff:127.0.0.1", port)},
		{"the metadata address", always, connect("169.254.169.254", "80")},
		{"the metadata address by IPv6", always, connect("fd00:ec2::254", "80")},
		{"the gateway of a bridge", always, connect("172.17.0.1", "22")},
		{"a name", always, `return socket.getaddrinfo("example.com", 80)`},
		{"a name server", always, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1", ("8.8.8.8", 53))
return s.recv(512)`},
		{"a name server by IPv6", always, `
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(5)
s.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1", ("2001:4860:4860::8888", 53))
return s.recv(512)`},
		{"everybody around", always, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
return s.sendto(b"x", ("255.255.255.255", 9))`},
		{"a socket of the host without a file", always, fmt.Sprintf(`
s = socket.socket(socket.AF_UNIX)
s.connect("\0%s")
return "connected"`, c.abstractSocket())},
	}
	for _, address := range hostAddresses() {
		attempts = append(attempts, attempt{"a port of the host at " + address, always, connect(address, port)})
	}
	c.try(attempts, off)
}

func abuseLoopback(c *Case) {
	c.need(c.caps().NetworkOn, "a network")
	if slices.ContainsFunc(c.suite.info.Warnings, func(w string) bool { return strings.Contains(w, "loopback") }) {
		c.Logf("Info warns: %q", c.suite.info.Warnings)
		return
	}
	port := "1"
	if c.suite.options.Dialect != DialectFake { // it tries nothing, and a listener would hold the fake clock
		_, port, _ = net.SplitHostPort(c.listenAt("127.0.0.1:0"))
	}
	connect := func(host string) string {
		return fmt.Sprintf("return socket.create_connection((%q, %s), timeout=5)", host, port)
	}
	c.try([]attempt{
		{"a port of the host's loopback", always, connect("127.0.0.1")},
		{"a port of the host's loopback by an address in an address", always, connect("::ffff:127.0.0.1")},
		{"a socket of a host with a network without a file", always, fmt.Sprintf(`
s = socket.socket(socket.AF_UNIX)
s.connect("\0%s")
return "connected"`, c.abstractSocket())},
	}, func(j *executor.Job) { j.Spec.Network = executor.NetworkOn })
}

// abstractSocket listens on an abstract name in the host's network namespace, and returns the name.
func (c *Case) abstractSocket() string {
	name := c.mark()
	var lc net.ListenConfig
	l, err := lc.Listen(c.ctx, "unix", "@"+name)
	if err != nil {
		c.Fatalf("listen: %v", err)
	}
	c.Cleanup(func() { _ = l.Close() }) // best effort
	return name
}
