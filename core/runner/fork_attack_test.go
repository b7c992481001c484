//go:build linux

package runner

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// withModule is a Start whose environment has the module attack, which a fork server imports.
func withModule(t *testing.T, attack string) Start {
	t.Helper()
	env := openRoot(t)
	packages := filepath.Join(env, "lib", pythonName(t), "site-packages")
	must(t, os.MkdirAll(packages, 0o755))                      //nolint:gosec // programs read it
	must(t, os.Mkdir(filepath.Join(env, "bin"), 0o755))        //nolint:gosec // programs read it
	must(t, os.Symlink("/usr/bin/python3", env+"/bin/python")) //nolint:gocritic // a path
	for name, text := range map[string]string{"pyvenv.cfg": "home = /usr/bin\n", "lib/" + pythonName(t) + "/site-packages/attack.py": attack} {
		must(t, os.WriteFile(filepath.Join(env, name), []byte(text), 0o644)) //nolint:gosec // programs read it
	}
	s := python("")
	s.Fork, s.Preimport = "alice", []string{"attack"}
	s.Interpreter, s.Path, s.Reach = []string{env + "/bin/python"}, env+"/bin:/usr/bin:/bin", []string{env}
	return s
}

// pythonName is the name of the system's Python with its minor version.
func pythonName(t *testing.T) string {
	t.Helper()
	target, err := filepath.EvalSymlinks("/usr/bin/python3")
	must(t, err)
	return filepath.Base(target)
}

// livingPrograms counts the processes that have the uid of programs.
func livingPrograms(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	must(t, err)
	for _, name := range all {
		raw, err := os.ReadFile(name) //nolint:gosec // a path of procfs
		if err == nil && strings.Contains(string(raw), "\nUid:\t"+strconv.Itoa(testUID)+"\t") && !strings.Contains(string(raw), "\nState:\tZ") {
			n++
		}
	}
	return n
}

// howOrLost is how for a program whose interpreter may fail after it has begun.
func (r *testRunner) howOrLost(t *testing.T, start Start) string {
	t.Helper()
	rec := newRecord()
	res, err := r.Run(t.Context(), start, RunInput{}, rec)
	how := string((<-rec.started).Start)
	if executor.CodeOf(err) == executor.Internal {
		return how + " lost: " + err.Error()
	}
	must(t, err)
	if res.PeakMemoryBytes > start.Limits.MemoryBytes {
		t.Errorf("a peak of %d bytes", res.PeakMemoryBytes)
	}
	return strings.TrimSpace(how + " " + describe(res) + " " + rec.stdout() + rec.stderr())
}

// withServer finds the object of the fork server that is about to serve.
const withServer = "import sys\nf = sys._getframe()\nwhile 'server' not in f.f_locals: f = f.f_back\nserver = f.f_locals['server']\n"

// TestNothingOfAForkServerMeetsTheNextOwner runs code of an attacker in the fork server of one owner, and then a program of another
// owner in the same slot.
func TestNothingOfAForkServerMeetsTheNextOwner(t *testing.T) {
	needtest.NeedRoot(t)
	for _, c := range []struct {
		name, attack, code string
		// want is how alice's program ends, unless it is lost. note is what the runner says of the server then; "" if her programs are forks.
		want, note string
	}{
		{"that neither kills nor ends when it is asked", withServer + "import os\nserver.kill = os._exit = lambda *a: None", "print(1)", "succeeded exit 0 1", ""},
		{
			"whose programs leave processes that it does not kill", withServer + "server.kill = lambda: False",
			"import os, time\nif os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2); time.sleep(1e6)\nprint(1)", "succeeded exit 0 1", "",
		},
		{
			"that says that nothing is left", withServer + "server.end = lambda: None",
			"import os, time\nif os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2); time.sleep(1e6)\nprint(1)", "succeeded exit 0 1", "",
		},
		{
			"whose copies write to the folder of the next program",
			"import os, time\nreal = os.setsid\ndef setsid():\n    real()\n    for _ in range(150):\n        try: return open('/work/json.py', 'w').close()\n" +
				"        except OSError: time.sleep(0.01)\nos.setsid = setsid", "print(1)", "succeeded exit 0 1", "",
		},
		{
			"that leaves a process", withServer + "import os, time\nserver.end = lambda: None\n" +
				"if os.fork() == 0:\n    os.setsid()\n    while True: time.sleep(0.01)", "print(1)", "succeeded exit 0 1",
			"it has 3 threads",
		},
		{
			"that hides its threads", "import os, time, _thread\nreal = os.stat\nclass One: st_nlink = 3\nos.stat = lambda p, **k: One if 'task' in str(p) else real(p, **k)\n" +
				"_thread.start_new_thread(time.sleep, (99,))", "print(1)", "succeeded exit 0 1", "it has 3 threads",
		},
		{
			"whose copies do not enter the control groups",
			"import os\nreal = os.write\ndef write(fd, data):\n    if data != b'0': return real(fd, data)\n    open('/work/begun', 'w').close()\n    return 1\nos.write = write",
			// A program that has ended before the runner looks is in no group any more, so that of such a copy does not end.
			"import os, time\nbegun = os.path.exists('/work/begun')\nprint(begun)\nif begun: time.sleep(1e6)", "succeeded exit 0 False",
			"is not in the control groups",
		},
		{
			"whose copies leave the program to another process",
			"import os\nreal = os.chdir\ndef chdir(to):\n    if os.getpid() > 1 and os.fork():\n        os.wait()\n        os._exit(0)\n    real(to)\nos.chdir = chdir",
			"print(1)", "succeeded exit 0 1", "speaks for the copy",
		},
		{"that does not start", "import time\ntime.sleep(1e6)", "print(1)", "succeeded exit 0 1", "-"},
		{"that ends", "import os\nos._exit(0)", "print(1)", "succeeded exit 0 1", "the fork server has ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := boxed(t, func(cfg *Config) {
				needtest.Need(t, len(cfg.Cgroups) > 0, needtest.Cgroup, "there are no control groups")
			})
			alice := withModule(t, c.attack)
			alice.Code = c.code
			r.wants(t, alice, "exec "+c.want)
			awaittest.Until(t, "a fork, or the end of the server", func() bool {
				how := r.howOrLost(t, alice)
				if c.note != "" && strings.HasPrefix(how, "fork lost: ") && strings.Contains(how, c.note) { // it may have begun, so it does not run again
					return true
				}
				if _, ended, _ := strings.Cut(how, " "); !strings.HasPrefix(ended, c.want) {
					t.Fatalf("alice's program: %s", how)
				}
				return c.note == "-" || c.note == "" && strings.HasPrefix(how, "fork ") || c.note != "" && strings.Contains(r.stderr.String(), c.note)
			})
			if strings.Contains(c.attack, "/work/json.py") { // the next copy is made in the background
				file := "/proc/" + strconv.Itoa(initOf(t, r)) + "/root/work/json.py"
				awaittest.UntilNil(t, "the writing of the next copy", func() error {
					_, err := os.Stat(file)
					return err
				})
			}
			bob := forked("import os, sys\nprint(os.listdir('/work'), sum(n.isdigit() for n in os.listdir('/proc')))\nsys.stdin.read()")
			bob.Fork = "bob"
			rec := newRecord()
			living := 0
			held, end := io.Pipe()
			rec.emit = func(e executor.Event) error {
				if _, ok := e.Body.(executor.Output); ok && living == 0 {
					living = livingPrograms(t)
					must(t, end.Close())
				}
				return nil
			}
			res, err := r.Run(t.Context(), bob, RunInput{Stdin: held}, rec)
			must(t, err)
			if got := describe(res) + " " + strings.TrimSpace(rec.stdout()); got != "succeeded exit 0 ['main.py'] 2" || living != 1 {
				t.Errorf("bob's program: %s %s, beside %d processes", got, rec.stderr(), living-1)
			}
		})
	}
}

// TestAForkServerIsNotBelieved has code of packages in fork servers of one owner.
func TestAForkServerIsNotBelieved(t *testing.T) {
	needtest.NeedRoot(t)
	const lie = withServer + `
real = server.say
def say(word, *words):
    if word == "exited":
        n, status, cpu, peak = words
        words = n, %s, cpu, %s
    real(word, *words)
server.say = say
`
	for _, c := range []struct {
		name, attack, code string
		// want is how one of its programs ends, or a part of that or of what the runner says. A program whose exit is seen early succeeds.
		want string
	}{
		{"about memory", fmt.Sprintf(lie, "status", "1 << 40"), "print(1)", "fork succeeded exit 0 1"},
		{"that says that a program was stopped", fmt.Sprintf(lie, "0x137f", "4096"), "print(True)", "unknown message"},
		{"about a status that does not exist", fmt.Sprintf(lie, "(1 << 40) + 256", "4096"), "print(True)", "unknown message"},
		{
			"that keeps memory of programs", "import os\nfd = os.memfd_create('kept')",
			"import os, attack\nos.write(attack.fd, bytes(40 << 20))\nprint(os.fstat(attack.fd).st_size <= 80 << 20)", "it keeps 80 MiB",
		},
		{
			"that computes for itself", withServer + `
import os
class Poll:
    real = server.poll
    def poll(self):
        while os.getpid() == 1:
            found = self.real.poll(0)
            if found: return found
        return self.real.poll()
server.poll = Poll()
`,
			"import os, time\ntime.sleep(50 * (os.getppid() == 1)) # the fork server is killed before\nprint(True)", "fork lost: runner: fork server: it uses the processor",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := boxed(t, func(cfg *Config) {
				needtest.Need(t, len(cfg.Cgroups) > 0, needtest.Cgroup, "there are no control groups")
			})
			alice := withModule(t, c.attack)
			alice.Code, alice.Limits.PIDs = c.code, 64
			awaittest.Until(t, c.want, func() bool {
				how := r.howOrLost(t, alice)
				if strings.Contains(how+r.stderr.String(), c.want) {
					return true
				}
				if !strings.HasPrefix(how, "exec ") && how != "fork succeeded exit 0 True" {
					t.Fatal(how)
				}
				return false
			})
		})
	}
}

func TestAForkServerGivesTheRunnerNoDescriptors(t *testing.T) {
	needtest.NeedRoot(t)
	r := boxed(t, func(cfg *Config) {
		needtest.Need(t, len(cfg.Cgroups) > 0, needtest.Cgroup, "there are no control groups")
	})
	alice := withModule(t, withServer+`
import os
child = f.f_locals["child"]
class Own:
    def __init__(self, own): self.own = own
    def __getattr__(self, name): return getattr(self.own, name)
    def send(self, data):
        files = [os.memfd_create("given") for _ in range(4)]
        return self.own.sendmsg([data], [(1, 1, b"".join(n.to_bytes(4, sys.byteorder) for n in files))])
real = child.wait
child.wait = lambda own: real(Own(own))
`)
	alice.Code = "print(1)"
	awaittest.Until(t, "a fork", func() bool { return r.howOrLost(t, alice) == "fork succeeded exit 0 1" })
	folder := fmt.Sprintf("/proc/%d/fd/", r.cmd.Process.Pid)
	files, err := os.ReadDir(folder)
	must(t, err)
	for _, file := range files {
		if link, _ := os.Readlink(folder + file.Name()); strings.Contains(link, "given") {
			t.Errorf("the runner has %s", link)
		}
	}
}
