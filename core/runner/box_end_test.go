//go:build linux

package runner

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// initOf returns the process number of the first process of r's box.
func initOf(t *testing.T, r *testRunner) int {
	t.Helper()
	for _, pid := range sandbox.ChildrenOf(r.cmd.Process.Pid) {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); f[0] == "NSpid:" && len(f) > 2 && f[len(f)-1] == "1" {
				return pid
			}
		}
	}
	t.Fatal("the runner has no box")
	return 0
}

// running runs family in r and calls then once all processes are there.
func running(t *testing.T, r *testRunner, then func(pids []string)) (executor.Result, error) {
	t.Helper()
	return runningAs(t, r, python, then)
}

// runningAs is running with the Start that start makes of code.
func runningAs(t *testing.T, r *testRunner, start func(code string) Start, then func(pids []string)) (executor.Result, error) {
	t.Helper()
	rec := newRecord()
	seen := make(chan []string, 1)
	rec.emit = func(e executor.Event) error {
		if _, ok := e.Body.(executor.Output); ok && strings.HasSuffix(rec.out[0].String(), "\n") {
			seen <- strings.Fields(rec.out[0].String())
		}
		return nil
	}
	done := make(chan struct{})
	var res executor.Result
	var err error
	go func() {
		defer close(done)
		res, err = r.Run(context.WithoutCancel(t.Context()), start(family+"time.sleep(1e6)"), RunInput{}, rec)
	}()
	then(<-seen)
	<-done
	return res, err
}

func boxKilledRunner(t *testing.T) {
	killedRunner(t, boxed(t, nil), python)
}

func killedRunner(t *testing.T, r *testRunner, start func(code string) Start) {
	t.Helper()
	var all []awaittest.Process
	_, err := runningAs(t, r, start, func([]string) {
		found := sandbox.ChildrenOf(r.cmd.Process.Pid)
		for n := 0; n < len(found); n++ {
			all, found = append(all, awaittest.Observe(t, found[n])), append(found, sandbox.ChildrenOf(found[n])...)
		}
		must(t, r.cmd.Process.Kill())
	})
	if executor.CodeOf(err) != executor.Unavailable || len(all) < 8 {
		t.Errorf("%d processes, %v", len(all), err)
	}
	for _, p := range all {
		p.Gone(t)
	}
	_ = r.cmd.Wait() // it was killed
}

func boxKilledInit(t *testing.T) {
	r := boxed(t, nil)
	res, err := running(t, r, func([]string) { must(t, syscall.Kill(initOf(t, r), syscall.SIGKILL)) })
	if got := describe(res); got != "failed SIGKILL" || err != nil {
		t.Errorf("%s, %v, and the runner says %s", got, err, r.stderr)
	}
	if err := r.cmd.Wait(); err == nil {
		t.Error("the runner goes on without its box")
	}
}

// The box ends while an Execution is prepared. That its program cannot start is not the failure of the program.
func boxKilledInitBeforeAProgram(t *testing.T) {
	r := boxed(t, nil)
	r.saysInBox(t, "print(1)", "1")
	init := initOf(t, r)
	workspace, in := io.Pipe()
	var res executor.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err = r.Run(context.WithoutCancel(t.Context()), python("print(1)"), RunInput{Workspace: workspace}, newRecord())
	}()
	data := tarball{file("data", "")}.bytes(t)
	_, sendErr := in.Write(data[:1])
	must(t, sendErr)
	first := awaittest.Observe(t, init)
	must(t, syscall.Kill(init, syscall.SIGKILL))
	first.Gone(t)
	_, _ = in.Write(data[1:]) // the runner may have ended
	must(t, in.Close())
	<-done
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("%s, %v", describe(res), err)
	}
	_ = r.cmd.Wait() // its box was killed
}

func boxSession(t *testing.T) {
	modules := filepath.Join(workRoot(t), "modules")
	must(t, os.Mkdir(modules, 0o755))                                                         //nolint:gosec // programs read it
	must(t, os.WriteFile(filepath.Join(modules, "added.py"), []byte("answer = 42\n"), 0o644)) //nolint:gosec // likewise
	r := &sessionRunner{boxed(t, nil)}
	must(t, r.OpenSession(t.Context(), pythonSession()))
	r.wants(t, "import os; os.getcwd(), os.getppid(), len([n for n in os.listdir('/proc') if n.isdigit()]), os.path.exists('/etc/shadow')", "", "('/work', 0, 2, False)")
	r.wants(t, "import os; os.path.exists("+strconv.Quote(modules)+")", "", "False")
	must(t, r.AddPath(t.Context(), modules))
	r.wants(t, "import added; added.answer", "", "42")
	// A Command sees the session's processes. What it leaves ends with it, and what the interpreter has left stays.
	r.wants(t, "import subprocess; p = subprocess.Popen(['setsid', 'sleep', '100'])\nwhile b'setsid' in open(f'/proc/{p.pid}/cmdline', 'rb').read(): pass", "", "")
	if res, rec := r.run(t, beside("pwd; (setsid sleep 200 >/dev/null 2>&1 &); ls /proc | grep -c '^[0-9]'"), RunInput{}); !strings.HasPrefix(rec.stdout(), "/work\n") {
		t.Errorf("%s %q", describe(res), rec.stdout())
	}
	r.wants(t, `
def sleeps():
    found = []
    for n in filter(str.isdigit, os.listdir('/proc')):
        try:
            line = open('/proc/%s/cmdline' % n).read()
        except OSError:
            continue  # it ended meanwhile
        if 'sleep' in line:
            found.append(line)
    return found
p.poll(), sleeps()`, "", `(None, ['sleep\x00100\x00'])`)
	must(t, r.RestartSession(t.Context(), true))
	r.wants(t, "import os; len([n for n in os.listdir('/proc') if n.isdigit()])", "", "2")
	must(t, r.CloseSession(t.Context()))
	r.saysInBox(t, "import os; print(len([n for n in os.listdir('/proc') if n.isdigit()]), os.path.exists("+strconv.Quote(modules)+"))", "2 False")
}

func boxNetwork(t *testing.T) {
	r := boxed(t, nil)
	r.saysInBox(t, reach, "loopback works\n['lo']")
	own, err := os.Readlink("/proc/thread-self/ns/net")
	must(t, err)
	start := python("import os; print(os.readlink('/proc/self/ns/net'), os.getppid(), os.path.exists('/etc/shadow'), os.getcwd())")
	start.Network = true
	r.prints(t, start, own+" 0 False /work")
	// Abstract sockets belong to the network, but a program may not speak to those of other programs of the machine.
	if l := sandbox.Layers()[0]; l.Missing != "" || l.Version < 6 {
		t.Logf("not tried: abstract sockets; landlock %+v", l)
		return
	}
	name := "pyexec-test-" + strconv.Itoa(os.Getpid())
	listener, err := net.Listen("unix", "@"+name)
	must(t, err)
	defer listener.Close() //nolint:errcheck // nothing was sent
	start = python("import socket, sys\ns = socket.socket(socket.AF_UNIX)\ntry: s.connect('\\0' + sys.argv[1]); print('connected')\nexcept PermissionError: print('may not')")
	start.Network, start.Args = true, []string{name}
	r.prints(t, start, "may not")
}

// A link in the box leads a program, and the runner that looks for a program, to what the box has, and not to the machine's.
func boxLinks(t *testing.T) {
	r := &sessionRunner{boxed(t, nil)}
	session := pythonSession()
	session.Path = "/work/bin:/usr/bin:/bin"
	must(t, r.OpenSession(t.Context(), session))
	host := filepath.Join(workRoot(t), "program")
	must(t, os.WriteFile(host, []byte("#!/bin/sh\necho machine\n"), 0o755)) //nolint:gosec // a program
	r.wants(t, "import os; os.mkdir('bin'); os.symlink("+strconv.Quote(host)+", 'bin/machine'); os.symlink('/bin/echo', 'bin/box'); None", "", "")
	for name, want := range map[string]string{
		"/work/bin/machine": "failed start/not_found", "/work/bin/box": "succeeded exit 0", "machine": "failed start/not_found", "box": "succeeded exit 0",
	} {
		start := beside("")
		start.Command = []string{name}
		if res, _ := r.run(t, start, RunInput{}); describe(res) != want {
			t.Errorf("%s: %s, want %s", name, describe(res), want)
		}
	}
}

// A program of the runner's own user may rename the folders above a mount in a private folder.
func boxMoved(t *testing.T) {
	dir := workRoot(t)
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("here"), 0o644)) //nolint:gosec // programs read it
	inner := filepath.Join(dir, "a", "b")
	must(t, os.MkdirAll(inner, 0o755))                                         //nolint:gosec // programs read it
	must(t, os.WriteFile(filepath.Join(inner, "file"), []byte("here"), 0o644)) //nolint:gosec // likewise
	r := boxed(t, nil)
	start := python(`
import os, sys
print(open(sys.argv[1] + "/file").read())
up = "/tmp/" + sys.argv[1].split("/")[2]
try: os.rename(up, "/tmp/moved"); os.symlink("/usr", up)
except OSError: pass
`)
	start.Args, start.Reach = []string{inner}, []string{inner}
	for range 3 {
		r.prints(t, start, "here")
	}
	start.Reach = nil
	start.Code = "import os, sys; print(os.path.exists(sys.argv[1]), len(os.listdir('/usr')) > 1)"
	r.prints(t, start, "False True")
	if names, err := os.ReadDir(inner); err != nil || !slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == "file" }) {
		t.Errorf("the machine's folder: %v, %v", names, err)
	}
}
