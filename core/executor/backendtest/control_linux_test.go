package backendtest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// wideOpen is a Backend that runs programs with all rights of root, but declares that they are isolated. To protect the
// machine, a program has namespaces of its own for mounts, processes, host name and shared memory. It also has a network of
// its own, unless a case is about the network.
type wideOpen struct {
	dir string
	// temporary is what all programs have in place of the host's folders for temporary files. Empty: the host's.
	temporary string
}

// wideOpenScript starts main.py. The shell stays the parent of the program, as a runner does. The work folder may lie in the
// folder that /tmp hides, so it moves.
const wideOpenScript = `
mount -t proc proc /proc || exit
if [ "$1" ]; then
	mkdir -p "$1/work" && mount --bind . "$1/work" || exit
	for folder in /var/tmp /dev/shm /run/lock /tmp; do
		[ ! -d $folder ] || mount --rbind "$1" $folder || exit
	done
	cd /tmp/work || exit
fi
python3 main.py
exit $?`

func (w *wideOpen) Info(context.Context) (executor.Info, error) {
	return executor.Info{Name: "wide-open", Type: "wide-open", Version: "1", Healthy: true, Capabilities: executor.Capabilities{
		Isolation: executor.IsolationContainer, NetworkOff: true, Languages: []executor.Language{executor.LanguagePython},
	}}, nil
}

func (w *wideOpen) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	dir, err := os.MkdirTemp(w.dir, "")
	if err != nil {
		return executor.Result{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte(job.Spec.Code), 0o600); err != nil {
		return executor.Result{}, err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", wideOpenScript, "sh", w.temporary)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONUNBUFFERED=1")
	for name, value := range job.Spec.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	if job.Spec.Network != executor.NetworkOff { // the one rule that asks for it is about the host's network
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if job.Stdin != nil {
		in, err := job.Stdin.Open()
		if err != nil {
			return executor.Result{}, err
		}
		defer in.Close() //nolint:errcheck // a test's pipe
		cmd.Stdin = in
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return executor.Result{}, err
	}
	if err := cmd.Start(); err != nil {
		return executor.Result{}, err
	}
	if err := sink.Emit(executor.Event{Body: executor.Started{PID: cmd.Process.Pid, Start: executor.StartExec}}); err != nil {
		return executor.Result{}, err
	}
	total, buf := int64(0), make([]byte, 32<<10)
	for {
		n, err := out.Read(buf)
		if n > 0 {
			if err := say(sink, executor.Output{Stream: executor.Stdout, Offset: total, Data: bytes.Clone(buf[:n])}); err != nil {
				return executor.Result{}, err
			}
			total += int64(n)
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return executor.Result{}, err
	}
	if stderr.Len() > 0 {
		if err := say(sink, executor.Output{Stream: executor.Stderr, Data: stderr.Bytes()[:min(stderr.Len(), executor.MaxOutputData)]}); err != nil {
			return executor.Result{}, err
		}
	}
	code := cmd.ProcessState.ExitCode()
	result := executor.Result{Status: executor.StatusSucceeded, ExitCode: &code, StdoutBytes: total, StderrBytes: int64(stderr.Len())}
	if code != 0 {
		result.Status = executor.StatusFailed
	}
	return result, nil
}

func (w *wideOpen) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.Unimplemented, "attach")
}

func (w *wideOpen) Remove(context.Context, string) error { return nil }

// TestTheAttemptsGetThroughWhereNothingHoldsThem checks that attempts succeed where nothing refuses them. An attempt that
// fails for another reason would pass on every backend and prove nothing. Attempts that need something a machine may lack (a
// device, a filter, a right of its root) are left out.
func TestTheAttemptsGetThroughWhereNothingHoldsThem(t *testing.T) {
	needtest.NeedRoot(t)
	b := &wideOpen{dir: t.TempDir()}
	probe := executor.Job{Spec: executor.Spec{Code: "import ctypes, socket\nprint('up')\n"}}
	r, err := b.Run(t.Context(), probe, discard{})
	up := err == nil && r.Status == executor.StatusSucceeded
	needtest.Need(t, up, needtest.Root, fmt.Sprintf("no python3 with ctypes in namespaces of its own: %v, %+v", err, r))
	want := map[string][]string{
		"BE-200": {
			"a file of the host", "a file of the host, up from here", "a file of the host, by the root of another process",
			"a file of the host, by the folder of another process", "a private file of the host", "the host's passwords",
		},
		"BE-201": {"a system folder", "a system file", "the interpreter", "the interpreter's folder", "the standard library", "the folder around the work folder"},
		"BE-202": {"mount a file system", "bind a folder", "unmount the processes", "change the root"},
		"BE-203": {"a better place in the queue for the CPU"},
		"BE-204": {"a device of its own making"},
		"BE-205": {"trace it", "its memory", "its memory by a call", "its environment", "its map", "its descriptors", "its root and its folder", "its order of dying", "its limits"},
		"BE-208": {"to be root", "a capability", "a capability that it could get", "new privileges", "root by a call", "more groups by a call", "a setuid program of its own", "somebody else's file"},
		"BE-210": {"make one of mounts", "make one of names", "make one of users"},
		"BE-211": {
			"a key that the server's user left, by its name", "a key that the server's user left, by its number", "the name of a key that the server's user left",
			"a key that an earlier program left, by its name", "a key that an earlier program left, by asking", "a key that an earlier program left, by a link",
		},
		"BE-213": {"raw IP", "packets"},
		"BE-224": {"a file in a folder for temporary files", "a tree in a folder for temporary files"},
		"BE-214": {"a port of the host", "a port of the host by another loopback address", "a port of the host by an address in an address", "a socket of the host without a file"},
	}
	const temporary = "BE-224" // leaves a deep tree in every folder below those for temporary files: the host has many
	results := backendtest.Check(t.Context(), &wideOpen{dir: t.TempDir(), temporary: t.TempDir()}, backendtest.Options{Only: []string{temporary}})
	var options backendtest.Options
	for id := range want {
		if id != temporary {
			options.Only = append(options.Only, id)
		}
	}
	for _, r := range append(results, backendtest.Check(t.Context(), b, options)...) {
		for _, attempt := range want[r.ID] {
			if !slices.ContainsFunc(r.Errors, func(e string) bool { return strings.HasPrefix(e, attempt+": got through: ") }) {
				t.Errorf("%s %q did not get through", r.ID, attempt)
			}
		}
		for _, e := range r.Errors {
			if !strings.Contains(e, ": got through: ") {
				t.Errorf("%s: %s", r.ID, e)
			}
		}
		t.Logf("%s %s", r.ID, strings.Join(r.Log, "\n"))
	}
}

// discard is a Sink that discards everything.
type discard struct{ executor.Sink }

func (discard) Emit(executor.Event) error { return nil }

var (
	_ executor.Backend = (*wideOpen)(nil)
)
