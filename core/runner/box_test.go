//go:build linux

package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// ordinaryUser is who tests of boxes run as once more, if they run as root.
const ordinaryUser = 65534

// TestBoxesOfAnOrdinaryUser runs the tests of boxes and of forks as an ordinary user. The gate leaves out what has nothing to do with
// the user: fidelity and the measurement of forks.
func TestBoxesOfAnOrdinaryUser(t *testing.T) {
	needtest.NeedRoot(t)
	which := "^TestBox$|^TestTheNextProgramsAreForked$|^TestNothingOfAForkIsLeft|^TestAProgramDoesNotDisturb|^TestAKilledRunnerLeavesNoFork$|^TestAForkHasTheNetwork"
	if needtest.IsLong() {
		which = "^TestBox$|Fork"
	}
	cmd := exec.Command("/proc/self/exe", "-test.run="+which, "-test.v=true", "-test.timeout=15m") //nolint:gosec // ourselves
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	cmd.Env, cmd.Dir = append(os.Environ(), "HOME=/nonexistent", "PYEXEC_TEST_REQUIRE="), workRoot(t)
	must(t, os.CopyFS(filepath.Join(cmd.Dir, "testdata"), os.DirFS("testdata")))
	if needtest.Required(needtest.Box) {
		cmd.Env = append(cmd.Env, "PYEXEC_TEST_REQUIRE="+needtest.Box)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// TestABoxHidesWhatNotEverybodyMayRead runs itself as a user with a group that may read a key below /etc.
func TestABoxHidesWhatNotEverybodyMayRead(t *testing.T) {
	if !isRoot() {
		if _, err := os.ReadFile("/etc/ssl/private/key"); err != nil {
			t.Skip("SKIPPED: root runs this test again, where there is a key")
		}
		boxed(t, nil).saysInBox(t, `
import os
for path in "/etc/ssl/private/key", "/etc/ssl/key", "/etc/ssl/open":
    try: print(repr(open(path).read()), end=" ")
    except OSError as e: print(e.strerror, end=" ")
print(os.listdir("/etc/ssl/private"))`, "No such file or directory '' 'open' []")
		return
	}
	needBox(t)
	cmd := exec.Command("unshare", "--mount", "sh", "-euc", `
		mount -t tmpfs -o mode=0755 tmpfs /etc/ssl
		mkdir -m 0710 /etc/ssl/private
		echo secret >/etc/ssl/private/key; echo secret >/etc/ssl/key; printf open >/etc/ssl/open
		chmod 0640 /etc/ssl/private/key /etc/ssl/key; chmod 0644 /etc/ssl/open; chgrp -R 4711 /etc/ssl/private /etc/ssl/key
		exec setpriv --reuid 65534 --regid 65534 --groups 4711 "$0" -test.run="^$1\$" -test.v`, os.Args[0], t.Name())
	cmd.Env, cmd.Dir = append(os.Environ(), "HOME=/nonexistent", "PYEXEC_TEST_REQUIRE="+needtest.Box), workRoot(t)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// boxed starts a runner with a box.
func boxed(t *testing.T, change func(*Config)) *testRunner {
	t.Helper()
	cfg := boxConfig(t)
	if change != nil {
		change(&cfg)
	}
	return startBoxed(t, cfg)
}

// boxConfig is testConfig with a box.
func boxConfig(t *testing.T) Config {
	t.Helper()
	needBox(t)
	cfg := testConfig(t)
	cfg.Box, cfg.Tmpfs = true, true
	return cfg
}

// startBoxed starts a runner that can make a box if cfg has one.
func startBoxed(t *testing.T, cfg Config) *testRunner {
	t.Helper()
	if isRoot() || !cfg.Box {
		return startRunner(t, cfg)
	}
	return startRunnerAs(t, cfg, sandbox.BoxAttributes())
}

func needBox(t *testing.T) {
	t.Helper()
	uid := 0
	if isRoot() {
		uid = testUID
	}
	err := sandbox.ProbeBox("/proc/self/exe", []string{os.Args[0], "runner"}, uid, uid)
	needtest.Need(t, err == nil, needtest.Box, fmt.Sprint(err))
}

// saysInBox runs a Python program in a box and compares its output.
func (r *testRunner) saysInBox(t *testing.T, code, want string) {
	t.Helper()
	r.prints(t, python(code), want)
}

func (r *testRunner) prints(t *testing.T, start Start, want string) {
	t.Helper()
	res, rec := r.run(t, start, RunInput{})
	if got := strings.TrimSpace(rec.stdout()); got != want || describe(res) != "succeeded exit 0" {
		t.Errorf("%s\n%s\n%s\nwant\n%s", describe(res), got, rec.stderr(), want)
	}
}

func TestBox(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a program sees only its own processes":                          boxProcesses,
		"a program sees nothing of the machine but its system folders":   boxFiles,
		"a program writes only where it may":                             boxWrites,
		"all mounts are without setuid and devices":                      boxMounts,
		"a program has no rights and cannot get any":                     boxRights,
		"its disk is private and of the size that was asked for":         boxDisk,
		"nothing of a program is left for the next one":                  boxNext,
		"an interpreter below a closed folder runs":                      boxClosedFolder,
		"host folders are bound read-only unless asked for":              boxFolders,
		"honest programs work":                                           boxHonest,
		"a killed runner leaves no process":                              boxKilledRunner,
		"a box whose first process dies ends the runner":                 boxKilledInit,
		"a box that dies before a program starts ends the runner":        boxKilledInitBeforeAProgram,
		"a program reads its limits where libraries look":                boxLimits,
		"a session is in a box and gets search paths while it runs":      boxSession,
		"a network is the machine's or none":                             boxNetwork,
		"files that are sent again are as they were sent":                boxTree,
		"links below the work folder do not lead the runner out of it":   boxLinks,
		"a folder of the disk is not unmounted by a name that has moved": boxMoved,
	} {
		t.Run(name, test)
	}
}

func boxProcesses(t *testing.T) {
	boxed(t, nil).saysInBox(t, `
import os
pids = [int(n) for n in os.listdir("/proc") if n.isdigit()]
print(1 in pids, os.getpid() in pids, len(pids), os.getppid())
for name in ("environ", "exe", "fd", "root", "maps", "mem"):
    try:
        os.listdir("/proc/1/fd") if name == "fd" and os.stat("/proc/1").st_uid != os.getuid() else open("/proc/1/" + name).read()
        print("can see", name)
    except (PermissionError, IsADirectoryError): pass
try: os.kill(1, 9); os.kill(1, 15); print("init lives")
except PermissionError: print("init lives")
`, "True True 2 0\ninit lives")
}

func boxFiles(t *testing.T) {
	for _, dir := range []string{"/srv", "/opt"} {
		if !isRoot() {
			break
		}
		canary := filepath.Join(dir, "pyexec-canary-"+strconv.Itoa(os.Getpid()))
		must(t, os.WriteFile(canary, []byte("x"), 0o644)) //nolint:gosec // all may read it
		t.Cleanup(func() { must(t, os.Remove(canary)) })
	}
	boxed(t, nil).saysInBox(t, `
import os
print(sorted(set(os.listdir("/")) - {"lib32", "libx32", "lib64", "lib", "bin", "sbin"}))
for path in ("/etc/shadow", "/root", "/home", "/srv", "/opt", "/var/lib/dpkg", "/sys/class", "/sys/kernel", "/run/docker.sock", "/boot",
             "/etc/environment", "/etc/profile.d", "/etc/ssh", "/etc/maven/settings.xml", "/etc/wgetrc"):
    if os.path.exists(path): print("there is", path)
print(os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"], os.uname().nodename)
print(os.listdir("/sys/devices"), os.listdir("/sys/devices/system"), os.listdir("/sys/fs"))
`, "['dev', 'etc', 'proc', 'run', 'sys', 'tmp', 'usr', 'var', 'work']\n/work /work /tmp sandbox\n['system'] ['cpu'] ['cgroup']")
}

func boxWrites(t *testing.T) {
	boxed(t, nil).saysInBox(t, `
import os, shutil
for path in ("/", "/usr", "/usr/bin", "/etc", "/etc/passwd", "/dev", "/proc/sys/kernel/hostname", "/var", "/run", "/proc/sysrq-trigger", "/etc/ssl"):
    if os.access(path, os.W_OK): print("may write to", path)
    try:
        open(path + "/x" if os.path.isdir(path) else path, "w"); print("wrote to", path)
    except OSError: pass
for path in ("/work", "/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/run/shm", "/var/lock"):
    open(path + "/x", "w").write("x")
    os.rename(path + "/x", path + "/y")
    os.makedirs(path + "/d/e"); os.rename(path + "/y", path + "/d/e/z"); os.link(path + "/d/e/z", path + "/l")
    shutil.rmtree(path + "/d"); os.remove(path + "/l")
for path in ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"): open(path, "rb").read(1)
print("done")
`, "done")
}

func boxMounts(t *testing.T) {
	below := t.TempDir()
	if isRoot() { // a mount below a folder that is bound
		must(t, os.Mkdir(filepath.Join(below, "inner"), 0o755)) //nolint:gosec // a test's folder
		must(t, syscall.Mount("tmpfs", filepath.Join(below, "inner"), "tmpfs", 0, "mode=0777"))
		t.Cleanup(func() { must(t, syscall.Unmount(filepath.Join(below, "inner"), syscall.MNT_DETACH)) })
	}
	must(t, os.Chmod(below, 0o755)) //nolint:gosec // all may read it
	start := python(`
import os, sys
devices = {"/dev/" + n for n in ("null", "zero", "full", "random", "urandom", "tty")}
for line in open("/proc/self/mountinfo"):
    f = line.split(); where, options = f[4], f[5].split(",")
    if "nosuid" not in options: print("setuid programs on", where)
    if "nodev" not in options and where not in devices and not where.startswith("/dev/pts") and "/proc/" not in where: print("devices on", where)
    own = ("/work", "/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/dev/pts", "/proc")
    if "ro" not in options and where not in own and where not in devices and not where.startswith("/proc/"): print("writable", where)
inner = sys.argv[1] + "/inner"
if os.path.exists(inner):
    try: open(inner + "/x", "w"); print("wrote into a mount below")
    except OSError as e: pass
print("done")
`)
	start.Reach, start.Args = []string{below}, []string{below}
	boxed(t, nil).prints(t, start, "done")
}

func boxRights(t *testing.T) {
	boxed(t, nil).saysInBox(t, `
import ctypes, os, errno
status = {l.partition(":")[0]: l.partition(":")[2].strip() for l in open("/proc/self/status")}
print(*(int(status[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), status["NoNewPrivs"], status["Seccomp"])
libc = ctypes.CDLL(None, use_errno=True)
def call(name, n, *args):
    ctypes.set_errno(0)
    got = libc.syscall(n, *args)
    if got >= 0 and name.startswith("clone") and got == 0: os._exit(0)
    why = ctypes.get_errno()
    if got >= 0 or why not in (errno.EPERM, errno.EACCES): print(name, got, errno.errorcode.get(why, why))
import platform
n = {"x86_64": dict(unshare=272, setns=308, mount=165, umount2=166, pivot_root=155, clone=56, bpf=321, mknod=133, chroot=161, sethostname=170, keyctl=250),
     "aarch64": dict(unshare=97, setns=268, mount=40, umount2=39, pivot_root=41, clone=220, bpf=280, chroot=51, sethostname=161, keyctl=219)}[platform.machine()]
NEWUSER, NEWNS, NEWNET, NEWPID, NEWIPC = 0x10000000, 0x20000, 0x40000000, 0x20000000, 0x08000000
for flags in (NEWUSER, NEWNS, NEWNET, NEWPID, NEWIPC, NEWUSER | NEWNS): call("unshare %#x" % flags, n["unshare"], flags)
call("clone", n["clone"], NEWUSER | 17, 0, 0, 0, 0)
args = (ctypes.c_uint64 * 8)(NEWUSER, 0, 0, 0, 17, 0, 0, 0)
call("clone3", 435, args, 64)
call("setns", n["setns"], os.open("/proc/self/ns/net", os.O_RDONLY), 0)
call("mount", n["mount"], b"tmpfs", b"/work", b"tmpfs", 0, None)
call("remount", n["mount"], None, b"/usr", None, 32 | 4096, None)
call("umount", n["umount2"], b"/work", 2)
call("pivot_root", n["pivot_root"], b"/work", b"/work")
call("chroot", n["chroot"], b"/work")
call("sethostname", n["sethostname"], b"x", 1)
call("open_tree", 428, -100, b"/usr", 1)
call("move_mount", 429, -1, b"", -1, b"", 0)
call("fsopen", 430, b"tmpfs", 0)
call("mount_setattr", 442, -100, b"/usr", 0, None, 0)
call("bpf", n["bpf"], 0, None, 0)
call("io_uring_setup", 425, 1, None)
call("keyctl", n["keyctl"], 0, -3, 0)
for kind in (0o20666, 0o60666):
    try: os.mknod("/tmp/device", kind, os.makedev(1, 5)); print("made a device")
    except PermissionError: pass
for name in "cmdline", "diskstats", "key-users", "keys", "timer_list":
    if os.path.exists("/proc/" + name) and open("/proc/" + name).read(): print(name)
`, "0 0 0 0 0 1 2")
}

func boxDisk(t *testing.T) {
	r := boxed(t, nil)
	start := python(`
import os
sizes = {p: os.statvfs(p).f_blocks * os.statvfs(p).f_frsize for p in ("/work", "/tmp", "/var/tmp", "/dev/shm", "/run/lock")}
print(sorted(set(sizes.values())), len({os.stat(p).st_dev for p in sizes}), oct(os.stat("/tmp").st_mode), oct(os.stat("/work").st_mode & 0o777), os.listdir("/tmp"))
try: open("/tmp/full", "wb").write(b"x" * (9 << 20))
except OSError as e: print(e.strerror)
os.remove("/tmp/full")
`)
	for _, size := range []int64{8 << 20, 8 << 20, 5 << 20} {
		start.Limits.DiskBytes = size
		r.prints(t, start, fmt.Sprintf("[%d] 1 0o41777 0o700 []\nNo space left on device", size))
	}
}

func boxNext(t *testing.T) {
	r := boxed(t, nil)
	leave := `
import os, ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(4711, 4096, 0), libc.msgget(4711, 0), libc.semget(4711, 1, 0), libc.mq_open(b"/q", os.O_RDWR))
print(sum(len(os.listdir(d)) for d in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/work")), [n for n in os.listdir("/proc") if n.isdigit() and n not in ("1", str(os.getpid()))])
for d in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/work"):
    os.makedirs(d + "/left/over"); open(d + "/left/over/file", "w").write("x")
made = libc.shmget(4711, 4096, 0o1666), libc.msgget(4711, 0o1666), libc.semget(4711, 1, 0o1666), libc.mq_open(b"/q", os.O_RDWR | os.O_CREAT, 0o600, None)
if min(made) < 0: print("made", made)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            import time
            while True: time.sleep(1e6)
        os._exit(0)
`
	for range 3 {
		r.saysInBox(t, leave, "-1 -1 -1 -1\n1 []")
	}
}

// closedPython makes a folder that only root and this user may enter, with an interpreter below it.
func closedPython(t *testing.T) (root, python string) {
	t.Helper()
	root = filepath.Join(workRoot(t), "closed")
	must(t, os.Mkdir(root, 0o700))
	dir := filepath.Join(root, "python")
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", "--copies", dir).CombinedOutput(); err != nil { //nolint:gosec // a test's own
		t.Fatalf("%v\n%s", err, out)
	}
	return root, dir
}

func boxClosedFolder(t *testing.T) {
	root, dir := closedPython(t)
	must(t, os.WriteFile(filepath.Join(root, "secret"), []byte("x"), 0o644)) //nolint:gosec // the folder is closed
	for name, change := range map[string]func(*Config, *Start){
		"config": func(c *Config, _ *Start) { c.Reach = []string{dir} },
		"start":  func(_ *Config, s *Start) { s.Reach = []string{dir} },
	} {
		t.Run(name, func(t *testing.T) {
			start := python("import sys, os\nprint(sys.prefix == " + strconv.Quote(dir) + ", os.listdir(os.path.dirname(sys.prefix)))")
			start.Interpreter = []string{filepath.Join(dir, "bin", "python3")}
			r := boxed(t, func(c *Config) { change(c, &start) })
			for range 2 {
				r.prints(t, start, "True ['python']")
			}
		})
	}
}

func boxFolders(t *testing.T) {
	r := boxed(t, nil)
	base := workRoot(t)
	folder := func(name string) string {
		dir := filepath.Join(base, name)
		must(t, os.Mkdir(dir, 0o777))                                                                                                                                                                                                            //nolint:gosec // programs write to it
		must(t, os.Chmod(dir, 0o777))                                                                                                                                                                                                            //nolint:gosec // likewise
		must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte("import os, sys\nprint(os.getcwd() == sys.argv[1], os.environ['HOME'])\ntry: open('new', 'w').write('x'); print('wrote')\nexcept OSError as e: print(e.strerror)\n"), 0o644)) //nolint:gosec // programs read it
		return dir
	}
	open, closed := folder("open"), folder("closed")
	start := python("")
	start.Code, start.Directory, start.Args = "", closed, []string{closed}
	r.prints(t, start, "True /work\nRead-only file system")
	start.Directory, start.DirectoryWritable, start.Args = open, true, []string{open}
	r.prints(t, start, "True /work\nwrote")
	if _, err := os.Stat(filepath.Join(open, "new")); err != nil {
		t.Error(err)
	}
	// A link that took the folder's place after it was checked, and one above it.
	to := filepath.Join(base, "to")
	must(t, os.Symlink(closed, to))
	must(t, os.Symlink(base, filepath.Join(base, "above")))
	for _, dir := range []string{to, filepath.Join(base, "above", "open"), filepath.Join(base, "none"), filepath.Join(open, "main.py")} {
		start.Directory, start.Args = dir, []string{dir}
		if res, rec := r.run(t, start, RunInput{}); describe(res) != "failed prepare/invalid" || res.Failure.Field != "host_directory" {
			t.Errorf("%s: %s %+v %s", dir, describe(res), res.Failure, rec.stdout())
		}
	}
	start = python("import os, sys\nfor d in sys.argv[1:]:\n  try: open(d + '/more', 'w'); print('wrote')\n  except OSError as e: print(e.strerror)")
	link := filepath.Join(base, "link")
	must(t, os.Symlink(closed, link))
	start.Args, start.Writable, start.Reach = []string{open, closed, link}, []string{open}, []string{link}
	r.prints(t, start, "wrote\nRead-only file system\nRead-only file system")
	start = python("import os, sys\nprint([os.path.exists(p) for p in sys.argv[1:]], os.listdir('/tmp'))")
	start.Args = []string{open, closed, link}
	r.prints(t, start, "[False, False, False] []") // they end with the program
	start.Reach = []string{"/"}
	if res, _ := r.run(t, start, RunInput{}); res.Failure == nil {
		t.Errorf("the machine's root folder: %s", describe(res))
	}
	for _, name := range []string{"open/main.py", "open/new", "open/more", "closed/main.py"} {
		if _, err := os.Stat(filepath.Join(base, name)); err != nil {
			t.Errorf("a file of the machine is gone: %v", err)
		}
	}
}

func boxHonest(t *testing.T) {
	boxed(t, nil).saysInBox(t, `
import asyncio, concurrent.futures, getpass, locale, mimetypes, multiprocessing as mp, os, pty, pwd, select, shutil, signal, socket, sqlite3, ssl, subprocess, sys, tempfile, threading, time, zoneinfo
from multiprocessing import shared_memory
def square(n): return n * n
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with mp.get_context(how).Pool(2) as pool: assert pool.map(square, [1, 2, 3]) == [1, 4, 9], how
    with concurrent.futures.ProcessPoolExecutor(2) as pool: assert list(pool.map(square, [4])) == [16]
    q = mp.Queue(); p = mp.Process(target=q.put, args=(5,)); p.start(); assert q.get() == 5; p.join()
    m = shared_memory.SharedMemory(create=True, size=1 << 20); m.buf[0] = 1; m.close(); m.unlink()
    lock = mp.Lock(); lock.acquire(); lock.release()
    a, b = pty.openpty(); os.write(b, b"x"); assert os.read(a, 1) == b"x"; assert os.ttyname(b).startswith("/dev/pts/")
    out = subprocess.run("echo $((1+1)) | cat; uname -n; id -u >/dev/null && echo $HOME", shell=True, capture_output=True, text=True); assert out.stdout == "2\nsandbox\n/work\n", out
    assert pwd.getpwuid(os.getuid()).pw_dir == "/work" and getpass.getuser()
    with tempfile.TemporaryDirectory() as d: assert d.startswith("/tmp/"); shutil.copytree(d, d + "-copy")
    with tempfile.NamedTemporaryFile() as f: f.write(b"x")
    db = sqlite3.connect("a.db"); db.execute("pragma journal_mode=wal"); db.execute("create table t(x)"); db.execute("insert into t values(1)"); db.commit(); db.close()
    t = threading.Thread(target=time.sleep, args=(0.01,)); t.start(); t.join()
    async def main():
        p = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        assert (await p.communicate(b"hi"))[0] == b"hi"
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        r, w = await asyncio.open_connection(*server.sockets[0].getsockname()); await r.read(); w.close(); server.close()
        u = await asyncio.start_unix_server(lambda r, w: w.close(), "/tmp/s"); u.close()
    asyncio.run(main())
    assert ssl.create_default_context().cert_store_stats()["x509_ca"] > 0
    assert str(zoneinfo.ZoneInfo("Europe/Berlin")) and time.tzname
    assert locale.setlocale(locale.LC_ALL, "C.UTF-8") and subprocess.run(["locale", "-a"], capture_output=True).returncode == 0
    assert mimetypes.guess_type("a.html")[0] == "text/html" and socket.getaddrinfo("localhost", 80) and socket.getservbyname("https") == 443
    assert socket.gethostbyname(socket.gethostname()) == "127.0.0.1"
    assert os.cpu_count() and open("/proc/meminfo").read() and os.path.realpath("/dev/fd") and open("/dev/stdout", "w")
    pid = os.fork()
    if pid == 0: os.execv(sys.executable, [sys.executable, "-c", "import signal; signal.raise_signal(15)"])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -15
    r, w = os.pipe(); assert select.select([], [w], [], 0)[1]; ep = select.epoll(); ep.close(); os.memfd_create("x"); os.eventfd(0) if sys.version_info >= (3, 10) else None
    s = socket.socket(socket.AF_UNIX); s.bind(b"\0abstract"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect(b"\0abstract")
    os.mkfifo("/tmp/fifo"); os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
    import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    print("all work")
`, "all work")
}
