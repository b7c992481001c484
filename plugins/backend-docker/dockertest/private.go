package dockertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/leftovertest"
)

const (
	// privatePrefix begins the name of a private daemon's folder. The path must be short, because that of a socket has at most
	// 107 bytes.
	privatePrefix = "pyexec-docker-"
	startTime     = 60 * time.Second
	stopTime      = 30 * time.Second
)

// private is a daemon that this process started. Its folder holds exec/, docker.sock, pid, log, bridge (the name of its
// bridge), lock (a file that this process keeps locked), and data/ unless its data is in the cache.
type private struct {
	dir   string
	cache *cache // nil: another daemon has it
	lock  *os.File
	cmd   *exec.Cmd
	// done is closed when dockerd has ended.
	done chan struct{}
	// ignore stops the signal handling of heed. removed calls remove once and returns its error.
	ignore  func()
	removed func() error
}

func (p *private) host() string { return hostOf(p.dir) }

// hostOf returns the DOCKER_HOST of the private daemon in dir.
func hostOf(dir string) string { return "unix://" + filepath.Join(dir, "docker.sock") }

func (p *private) path(name string) string { return filepath.Join(p.dir, name) }

// start starts a private daemon, after it has removed the leftovers of killed processes.
func start() (*private, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a private daemon needs root")
	}
	for _, program := range []string{"dockerd", "containerd", "runc", "ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("a private daemon needs %s, which is not installed", program)
		}
	}
	sweep()
	// A starting daemon creates the machine's firewall chains, and fails if another does so at the same time.
	turn, err := os.OpenFile(filepath.Join(os.TempDir(), "pyexec-dockerd-start.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", privatePrefix)
	if err != nil {
		return nil, err
	}
	p := &private{dir: dir, done: make(chan struct{}), ignore: func() {}}
	p.removed = sync.OnceValue(p.remove)
	close(p.done) // no dockerd runs yet
	if err := p.launch(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a private dockerd: %w", err), p.stop())
	}
	p.heed()
	return p, nil
}

// heed removes the daemon on a signal that ends this process, and then ends it. A second signal ends it at once.
func (p *private) heed() {
	p.ignore = leftovertest.Heed(func(s unix.Signal) {
		signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
		if err := p.removed(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the private Docker:", err)
		}
		leftovertest.EndBy(s)
	})
}

func (p *private) launch() error {
	var err error
	if p.lock, err = leftovertest.Lock(p.dir); err != nil {
		return err
	}
	bridge, err := p.bridge()
	if err != nil {
		return err
	}
	if p.cache, err = openCache(); err != nil {
		return err
	}
	log, err := os.Create(p.path("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	data := p.path("data")
	if p.cache != nil {
		data = p.cache.data()
	}
	p.cmd = exec.Command("dockerd", "--data-root", data, "--exec-root", p.path("exec"), "--pidfile", p.path("pid"),
		"--host", p.host(), "--bridge", bridge, "--config-file", p.path("daemon.json"), "--group", strconv.Itoa(os.Getegid()))
	settings, err := privateSettings()
	if err == nil {
		err = os.WriteFile(p.path("daemon.json"), settings, 0o600)
	}
	if err != nil {
		return err
	}
	secured, err := p.secure(addressOf(bridge))
	if err != nil {
		return err
	}
	p.cmd.Args = append(p.cmd.Args, secured...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if p.cache != nil {
		p.cmd.ExtraFiles = []*os.File{p.cache.lock} // a daemon outlives a test process that is killed
	}
	// If a test process is killed (-9), its daemon gets SIGTERM. Pdeathsig refers to the death of the thread that forked, so
	// the goroutine that waits keeps that thread.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	begun := make(chan error, 1)
	p.done = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		begun <- err
		if err == nil {
			_ = p.cmd.Wait() // the reason is in its log
		}
	}()
	if err := <-begun; err != nil {
		return err
	}
	return p.ready()
}

// privateSettings returns the settings of a private daemon, with gVisor as a runtime if it is installed. The ptrace platform
// works everywhere, also inside a virtual machine. --network=host passes the container's network on. Debian's gVisor of 2022
// does not start its own network stack on newer kernels ("cannot run with network enabled in root network namespace").
func privateSettings() ([]byte, error) {
	settings := map[string]any{}
	if path, err := exec.LookPath(gVisor); err == nil {
		settings["runtimes"] = map[string]any{gVisor: map[string]any{"path": path, "runtimeArgs": []string{"--platform=ptrace", "--network=host"}}}
	}
	return json.Marshal(settings)
}

// ready waits until the daemon answers.
func (p *private) ready() error {
	late := time.NewTimer(startTime)
	defer late.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-p.done:
			return fmt.Errorf("dockerd ended: %s", p.said())
		case <-late.C:
			return fmt.Errorf("no answer within %s: %s", startTime, p.said())
		case <-again.C:
			if answers(p.host()) == nil {
				return nil
			}
		}
	}
}

func (p *private) said() string {
	raw, err := os.ReadFile(p.path("log"))
	if err != nil {
		return err.Error()
	}
	return last(string(raw))
}

// bridge creates a bridge with a network of its own. Daemons on one bridge would assign the same addresses. The names are tried in a
// random order, so that the next daemon does not take the name that another process has just given back and looks for.
func (p *private) bridge() (string, error) {
	var failed error
	for _, n := range rand.Perm(64) { //nolint:gosec // no secret
		name := fmt.Sprintf("pyexec%d", n)
		if err := run("ip", "link", "add", name, "type", "bridge"); err != nil {
			failed = err // another process probably has the name
			continue
		}
		if err := os.WriteFile(p.path("bridge"), []byte(name), 0o600); err != nil {
			return "", errors.Join(err, run("ip", "link", "delete", name))
		}
		return name, errors.Join(run("ip", "address", "add", addressOf(name)+"/24", "dev", name), run("ip", "link", "set", name, "up"))
	}
	return "", failed
}

// addressOf returns the IP address of a bridge.
func addressOf(bridge string) string { return "10.213." + strings.TrimPrefix(bridge, "pyexec") + ".1" }

// stop ends the daemon and removes all its files, processes and network objects.
func (p *private) stop() error {
	p.ignore()
	return p.removed()
}

func (p *private) remove() error {
	var err error
	if p.cmd != nil && p.cmd.Process != nil {
		if p.cache != nil {
			err = empty(p.host())
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(stopTime, func() { _ = p.cmd.Process.Kill() })
		<-p.done
		late.Stop()
	}
	if p.cache != nil {
		if err == nil && p.cmd != nil && p.cmd.ProcessState.Success() {
			err = p.cache.well()
		}
		defer p.cache.close()
	}
	err = errors.Join(err, remove(p.dir))
	if p.lock != nil {
		p.lock.Close()
	}
	return err
}

// sweep removes the daemons of test processes that were killed.
func sweep() { leftovertest.Sweep(privatePrefix, remove) }

// remove ends every process that belongs to the daemon in dir, and removes its mounts, its bridge with the rules about it,
// and dir.
func remove(dir string) error {
	err := end(dir)
	leftovertest.Unmount(dir)
	if raw, err := os.ReadFile(filepath.Join(dir, "bridge")); err == nil {
		forget(strings.TrimSpace(string(raw)))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// end ends dockerd, containerd and the shims of the daemon in dir.
func end(dir string) error {
	return leftovertest.End(func() []int { return members(dir) }, unix.SIGTERM, unix.SIGKILL)
}

// members returns the processes with a path below dir in their command line.
func members(dir string) []int {
	return leftovertest.Processes("cmdline", func(content string) bool { return strings.Contains(content, dir+"/") })
}

// forget removes a bridge and its packet filter rules, which dockerd leaves.
func forget(bridge string) {
	if bridge == "" {
		return
	}
	_ = run("ip", "link", "delete", bridge) // it may not exist
	for _, table := range []string{"nat", "filter"} {
		out, err := exec.Command("iptables", "-w", "-t", table, "-S").Output()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(out)) {
			if words := strings.Fields(line); len(words) > 2 && words[0] == "-A" && slices.Contains(words, bridge) {
				_ = run("iptables", append([]string{"-w", "-t", table, "-D"}, words[1:]...)...)
			}
		}
	}
	// One rule names the network of the bridge, not the bridge.
	var n int
	if _, err := fmt.Sscanf(bridge, "pyexec%d", &n); err == nil {
		_ = run("iptables", "-w", "-t", "nat", "-D", "POSTROUTING", "-s", fmt.Sprintf("10.213.%d.0/24", n), "!", "-o", bridge, "-j", "MASQUERADE")
	}
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, last(string(out)))
	}
	return err
}
