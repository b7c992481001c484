package uvbackend

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// processes lists the processes whose command line or environment contains text. It leaves out zombies.
func processes(text string) []int {
	var found []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if pid != os.Getpid() && bytes.Contains(append(append(line, 0), env...), []byte(text)) {
			found = append(found, pid)
		}
	}
	return found
}

// lasting runs a program that tries to outlive its Execution: it ignores SIGTERM and has an orphan in a session of its own. ran is
// closed when both processes, and no others, run. ended is closed when Run has returned.
func lasting(t *testing.T, b executor.Backend, mark string) (ran, ended chan struct{}) {
	t.Helper()
	ran, ended = make(chan struct{}), make(chan struct{})
	j, ready := &journal{}, sync.OnceFunc(func() { close(ran) })
	j.on = func(executor.Event) error {
		if said := j.text(executor.Stdout); strings.Contains(said, "alone") && strings.Contains(said, "orphan") {
			ready()
		}
		return nil
	}
	go func() {
		defer close(ended)
		work := job(executor.Spec{Args: []string{mark}, Code: `
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.chdir("/")
    os.environ.clear()
    os.execv(sys.executable, [sys.executable, "-c", "import time; print('orphan', flush=True); time.sleep(1000)", sys.argv[1]])
os.wait()
print("alone", flush=True)
time.sleep(1000)
`})
		work.ID = mark
		_, _ = b.Run(context.WithoutCancel(t.Context()), work, j)
	}()
	return ran, ended
}

func TestAfterAKillOfThePluginNothingIsLeftAndTheNextStartCleansUp(t *testing.T) {
	cache := filepath.Join(folder(t), "cache")
	options, err := json.Marshal(map[string]any{"cache_dir": cache})
	if err != nil {
		t.Fatal(err)
	}
	p := plugintest.Process(t, "uv", options)
	mark := "uvbackend-kill-" + strconv.Itoa(os.Getpid())
	ran, ended := lasting(t, p.Backend, mark)
	<-ran
	p.Kill()
	<-ended
	awaittest.Until(t, "the end of every program and runner", func() bool {
		return len(processes(mark)) == 0 && len(processes(filepath.Join(cache, "work"))) == 0
	})
	dead, _ := filepath.Glob(filepath.Join(cache, "work", "[0-9a-f]*"))
	if len(dead) == 0 {
		t.Error("the killed plugin removed its folders, so the test shows nothing")
	}
	next, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: "next", Options: options})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "work", "[0-9a-f]*.lock")); len(left) != 1 { // the lock of the new backend
		t.Errorf("work folders after the next start: %q", left)
	}
	for _, dir := range dead {
		if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + groupName(filepath.Base(dir))); len(left) != 0 {
			t.Errorf("control groups of the killed plugin are left: %q", left)
		}
	}
	if out, _ := succeeds(t, next, executor.Spec{Code: "print(1)"}); out != "1\n" {
		t.Errorf("got %q", out)
	}
	claim := next.slots.claim.name
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "work", "[0-9a-f]*")); len(left) != 0 {
		t.Errorf("leftovers after Close: %q", left)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + groupName(claim)); len(left) != 0 {
		t.Errorf("control groups left after Close: %q", left)
	}
}

func TestTwoInstallationsOverOneCacheDoNotHurtEachOther(t *testing.T) {
	options := section(t, nil)
	start := func(instance string) *Backend {
		b, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: instance, Options: options, Embedded: true})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a := start("a")
	mark := "uvbackend-two-" + strconv.Itoa(os.Getpid())
	ran, ended := lasting(t, a, mark)
	<-ran
	b := start("b") // b sweeps, and must leave the processes of a alone
	succeeds(t, b, executor.Spec{Code: "print(1)"})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := len(processes(mark)); n != 2 {
		t.Errorf("%d processes of the other backend are alive, want 2", n)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	if n := len(processes(mark)); n != 0 {
		t.Errorf("%d processes are alive after Close", n)
	}
}

func TestARunnerThatDiesIsReplaced(t *testing.T) {
	b := openBackend(t, nil)
	succeeds(t, b, executor.Spec{Code: "print(1)"})
	for range 3 {
		b.slots.mu.Lock()
		for s := range b.slots.all {
			_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL)
		}
		b.slots.mu.Unlock()
		if out, _ := succeeds(t, b, executor.Spec{Code: "print(2)"}); out != "2\n" {
			t.Errorf("got %q", out)
		}
	}
}

func TestARunnerThatDiesUnderAProgramEndsItAndIsUnavailable(t *testing.T) {
	b := openBackend(t, nil)
	mark := "uvbackend-runner-" + strconv.Itoa(os.Getpid())
	j := &journal{}
	j.on = func(e executor.Event) error {
		if o, ok := e.Body.(executor.Output); ok && strings.Contains(string(o.Data), "ready") {
			b.slots.mu.Lock()
			defer b.slots.mu.Unlock()
			for s := range b.slots.all {
				_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL)
			}
		}
		return nil
	}
	_, err := b.Run(t.Context(), job(executor.Spec{Args: []string{mark}, Code: `
import os, sys, time
if os.fork() == 0:
    os.setsid()
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]])
print("ready", flush=True)
time.sleep(1000)`}), j)
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
	awaittest.Until(t, "the end of its program", func() bool { return len(processes(mark)) == 0 })
	succeeds(t, b, executor.Spec{Code: "print(1)"})
}

func TestRemoveEndsWhatRuns(t *testing.T) {
	b := openBackend(t, nil)
	mark := "uvbackend-remove-" + strconv.Itoa(os.Getpid())
	ran, ended := lasting(t, b, mark)
	<-ran
	for range 2 {
		if err := b.Remove(t.Context(), mark); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	if n := len(processes(mark)); n != 0 {
		t.Errorf("%d processes are alive after Remove", n)
	}
}

func TestCloseIsIdempotentAndEndsEverything(t *testing.T) {
	b := openBackend(t, nil)
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Run(t.Context(), job(executor.Spec{Code: "print(1)"}), &journal{}); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("Run after Close: %v", err)
	}
}

// TestAfterAKillOfThePluginNoBuildIsLeft shows that neither processes of the build nor an incomplete environment are left.
func TestAfterAKillOfThePluginNoBuildIsLeft(t *testing.T) {
	needUV(t)
	w := newWheelhouse(t)
	w.probe()
	w.hold = make(chan struct{})
	cache := filepath.Join(folder(t), "cache")
	options, err := json.Marshal(map[string]any{"cache_dir": cache, "index_url": w.url()})
	if err != nil {
		t.Fatal(err)
	}
	p := plugintest.Process(t, "uv", options)
	spec := executor.Spec{Code: probeProgram, Requirements: "pyexec-probe"}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = p.Backend.Run(context.WithoutCancel(t.Context()), job(spec), &journal{})
	}()
	<-w.asked
	if n := len(processes(filepath.Join(cache, "environments"))); n == 0 {
		t.Error("no process of a build was found, so the test shows nothing")
	}
	p.Kill()
	<-ended
	awaittest.Until(t, "the end of every process of the build", func() bool { return len(processes(cache)) == 0 })
	close(w.hold)
	next, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: "next", Options: options})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if list, _ := next.cache.entries(); len(list) != 0 {
		t.Errorf("%d environments after the kill", len(list))
	}
	if out, _ := succeeds(t, next, spec); out != "2.0 1.0\n" {
		t.Errorf("got %q", out)
	}
	next.wg.Wait() // for cache.clean
	if left, _ := filepath.Glob(filepath.Join(cache, "environments", ".tmp-*")); len(left) != 0 {
		t.Errorf("leftovers of the build: %q", left)
	}
}
