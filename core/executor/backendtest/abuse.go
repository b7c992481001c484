package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// level is the minimum isolation at which an attempt must be refused. With less isolation the attempt is not made, because it
// may succeed and do harm.
type level int

const (
	// always means that every Backend must refuse the attempt.
	always level = iota
	// separated means that the program runs as another user than the suite, or is isolated.
	separated
	// contained means that the program is isolated.
	contained
)

// attempt is an abusive operation that must be refused.
type attempt struct {
	name string
	from level
	// python is the body of a function that raises OSError if the attempt is refused, and returns if it succeeds.
	python string
}

// prelude holds the helpers of the attempts. Each attempt runs in a process of its own, and counts as refused if a signal
// kills that process. MAIN is the process id of the program and PARENT that of its parent.
const prelude = `
import ctypes, errno, os, resource, signal, socket, struct, sys, time
MAIN, PARENT = os.getpid(), os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"x86_64": {
    "ptrace": 101, "setuid": 105, "setgid": 106, "setgroups": 116, "personality": 135, "pivot_root": 155, "chroot": 161, "acct": 163,
    "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "sethostname": 170, "setdomainname": 171, "iopl": 172,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "setxattr": 188, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300,
    "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "finit_module": 313, "bpf": 321, "userfaultfd": 323,
    "open_tree": 428, "fsopen": 430, "pidfd_open": 434, "pidfd_getfd": 438,
}, "aarch64": {
    "ptrace": 117, "setuid": 146, "setgid": 144, "setgroups": 159, "personality": 92, "pivot_root": 41, "chroot": 51, "acct": 89,
    "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "sethostname": 161, "setdomainname": 162,
    "init_module": 105, "delete_module": 106, "quotactl": 60, "setxattr": 5, "clock_settime": 112, "kexec_load": 104, "add_key": 217,
    "request_key": 218, "keyctl": 219, "unshare": 97, "perf_event_open": 241, "fanotify_init": 262,
    "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "finit_module": 273, "bpf": 280, "userfaultfd": 282,
    "open_tree": 428, "fsopen": 430, "pidfd_open": 434, "pidfd_getfd": 438,
}}.get(os.uname().machine, {})

class Refused(OSError):
    pass

def call(name, *args):
    """A system call by its number: it returns what the kernel does, or raises OSError."""
    if name not in NUMBERS:
        raise Refused("this machine has no " + name)
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(NUMBERS[name]), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if got == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got

def pids():
    """Every process that is to be seen, but this one and the program."""
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in (os.getpid(), MAIN)]

def ancestors():
    """The program's parent, its parent, and so on, as far as they are to be seen."""
    found, pid = [], PARENT
    while pid > 0:
        found.append(pid)
        try:
            stat = open("/proc/%d/stat" % pid).read()
        except OSError:
            break
        pid = int(stat[stat.rindex(")") + 2:].split()[1])
    return found

def first(things, use):
    """The first of things that use does not refuse."""
    for thing in things:
        try:
            return (thing, use(thing))
        except OSError:
            pass
    raise Refused("none of them")

def make(folder):
    """A file in folder, for a moment."""
    path = folder + "/pyexec-law"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(path)
    return folder

def attempt(name, function):
    child = os.fork()
    if child == 0:
        try:
            got = repr(function())[:200].replace("\n", " ")
            print(name + ": got through:", got, flush=True)
        except OSError as e:
            print(name + ": refused:", e, flush=True)
        except BaseException as e:
            print(name + ": broken:", repr(e), flush=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        print(name + ": refused: by signal", os.WTERMSIG(status), flush=True)
`

// separation returns the level of isolation of a program. It does not compare user ids, because a user namespace may map them
// to any number.
func (c *Case) separation() level {
	if c.caps().Isolation != executor.IsolationNone {
		return contained
	}
	r := c.program(Program{
		// The right to send a signal depends on the user only. Neither mounts nor user namespaces hide the user.
		Python: fmt.Sprintf("import os\ntry:\n    os.kill(%d, 0)\n    print('ours')\nexcept OSError:\n    print('another')\n", os.Getpid()),
		Fake:   "print another",
	}).succeeded()
	if r.stdout() == "ours\n" {
		return always
	}
	return separated
}

// try makes the attempts that must be refused at the level of the Backend, while a neighbour runs. tweak may change the job.
func (c *Case) try(attempts []attempt, tweak ...func(*executor.Job)) {
	reached := c.separation()
	made := slices.DeleteFunc(slices.Clone(attempts), func(a attempt) bool { return a.from > reached })
	if len(made) == 0 {
		c.Skipf("the program runs as the user of the suite without isolation, so nothing must be refused")
	}
	var python, fake strings.Builder
	python.WriteString(prelude)
	for _, a := range made {
		python.WriteString("\ndef function():\n")
		for line := range strings.Lines(strings.Trim(a.python, "\n") + "\n") {
			python.WriteString("    " + line)
		}
		fmt.Fprintf(&python, "\nattempt(%q, function)\n", a.name)
		fmt.Fprintf(&fake, "print %s: refused: by the fake\n", a.name)
	}
	n := c.neighbour()
	job := c.job(Program{Python: python.String(), Fake: fake.String()})
	for _, f := range tweak {
		f(&job)
	}
	r := c.start(job)
	n.answers()
	r.wait().succeeded()
	n.leaves()
	c.Logf("%s", r.stdout())
	for _, a := range made {
		c.judge(r, a.name)
	}
}

// judge records an error unless the attempt was refused.
func (c *Case) judge(r *running, name string) {
	for line := range strings.Lines(r.stdout()) {
		if verdict, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name+": "); ok {
			if !strings.HasPrefix(verdict, "refused: ") {
				c.Errorf("%s: %s", name, verdict)
			}
			return
		}
	}
	c.Errorf("%s: printed no result; %s, stdout %q, stderr %q", name, r.verdict(), clip(r.stdout()), clip(r.stderr()))
}

// neighbour is an honest Execution that runs at the same time as an abusive one.
type neighbour struct {
	*running
	in    *io.PipeWriter
	asked int
}

// neighbourPython prints each line of its input, and at the end whether its files and state are unchanged.
const neighbourPython = `
import os, sys
open("mine", "w").write("mine\n")
block = bytearray(range(256)) * 4096
print("up", flush=True)
told = ""
for line in sys.stdin:
    open("more", "a").write(line)
    print(line, end="", flush=True)
    told += line
sys.stdout.write(open("mine").read())
print(open("more").read() == told, block == bytearray(range(256)) * 4096, os.environ["OWN"], flush=True)
`

// neighbour starts a neighbour and waits until it is ready.
func (c *Case) neighbour() *neighbour {
	n := &neighbour{}
	read, write := io.Pipe()
	n.in = write
	c.Cleanup(func() { _ = write.Close() }) // a pipe's Close returns no error
	job := c.job(Program{
		Python: neighbourPython,
		Fake:   "write-file mine \"mine\\n\"\nprint up\nread-stdin\ncat mine\nprint True True own",
	})
	job.Spec.Env = map[string]string{"OWN": "own"}
	job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return read })
	n.running = c.start(job)
	n.says("up\n")
	return n
}

// answers sends the neighbour a line and waits for the right answer.
func (n *neighbour) answers() {
	n.asked++
	line := fmt.Sprintf("question %d\n", n.asked)
	told := make(chan error, 1)
	go func() {
		_, err := io.WriteString(n.in, line)
		told <- err
	}()
	n.says(line)
	if err := <-told; err != nil {
		n.c.Fatalf("the neighbour does not read: %v", err)
	}
}

// leaves sends the neighbour a last line, ends it, and checks all of its output.
func (n *neighbour) leaves() {
	n.answers()
	if err := n.in.Close(); err != nil {
		n.c.Fatalf("the neighbour's stdin: %v", err)
	}
	n.wait()
	want := "up\n"
	for i := range n.asked {
		want += fmt.Sprintf("question %d\n", i+1)
	}
	want += "mine\nTrue True own\n"
	if n.err != nil || n.result.Status != executor.StatusSucceeded || n.result.ExitCode == nil || *n.result.ExitCode != 0 || n.stdout() != want {
		n.c.Errorf("the neighbour was hurt: %s, error %v, stdout %q, want %q, stderr %q",
			n.verdict(), n.err, clip(n.stdout()), clip(want), clip(n.stderr()))
	}
}

// hostProcess starts a process on the host. Its command line identifies it, and its environment holds secret.
func (c *Case) hostProcess(mark, secret string) {
	cmd := exec.CommandContext(c.ctx, "sh", "-c", "read _", mark) //nolint:gosec // the suite's own words
	cmd.Env = []string{"PYEXEC_LAW_SECRET=" + secret}
	in, err := cmd.StdinPipe()
	if err != nil {
		c.Fatalf("a process of the host: %v", err)
	}
	if err := cmd.Start(); err != nil {
		c.Fatalf("a process of the host: %v", err)
	}
	c.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it may have ended
		var ended *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &ended) {
			c.Errorf("a process of the host: %v", err)
		}
	})
}

// hostFile creates a file on the host, in a folder that every user may enter.
func (c *Case) hostFile(name, text string, mode os.FileMode) string {
	dir, err := os.MkdirTemp("/run", "pyexec-law-") // where no private folder hides it
	if err != nil {
		dir, err = os.MkdirTemp("", "pyexec-law-")
	}
	if err != nil {
		c.Fatalf("temporary folder: %v", err)
	}
	c.Cleanup(func() { _ = os.RemoveAll(dir) }) // best effort
	path := dir + "/" + name
	err = errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode), os.Chmod(dir, 0o755)) //nolint:gosec // others must be able to see it: that is the test
	if err != nil {
		c.Fatalf("a file of the host: %v", err)
	}
	return path
}

// pieces is a reader of n bytes without a line end. It needs no memory for them.
type pieces struct{ left int64 }

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), p.left)
	copy(b, bytes.Repeat([]byte{'x'}, int(n)))
	p.left -= n
	return int(n), nil
}
