package dockertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
)

const (
	// privatePrefix starts the name of a private daemon's folder. The folder is short: a socket's path has 107 bytes.
	privatePrefix = "pyexec-docker-"
	startTime     = 60 * time.Second
	stopTime      = 30 * time.Second
)

// private is a Docker of this process. Its folder holds data/, exec/, docker.sock, pid, log, bridge (the name of its
// bridge) and lock, which this process holds as long as it lives.
type private struct {
	dir string
	// address is its bridge's.
	address string
	lock    *os.File
	cmd     *exec.Cmd
	// done is closed when dockerd has ended.
	done chan struct{}
	// ignore ends what heed began; removed is what came of remove. Both are done once.
	ignore  func()
	removed func() error
}

func (p *private) host() string { return "unix://" + p.path("docker.sock") }

func (p *private) path(name string) string { return filepath.Join(p.dir, name) }

// start starts a private Docker, after it has swept what killed processes left of theirs.
func start() (*private, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a private one needs root")
	}
	for _, program := range []string{"dockerd", "containerd", "runc", "ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("a private one needs %s, which is not installed", program)
		}
	}
	sweep()
	// A daemon that starts makes the machine's firewall chains anew, and fails where another does so at the same time.
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
	close(p.done) // nothing runs yet
	if err := p.launch(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a private dockerd: %w", err), p.stop())
	}
	p.heed()
	return p, nil
}

// heed removes the Docker when this process is told to end, before it does. A second signal ends it at once.
func (p *private) heed() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	p.ignore = sync.OnceFunc(func() {
		signal.Stop(told)
		close(told)
	})
	go func() {
		s, ok := (<-told).(unix.Signal)
		if !ok {
			return // the Docker was stopped
		}
		signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
		if err := p.removed(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the private Docker:", err)
		}
		_ = unix.Kill(os.Getpid(), s)
	}()
}

func (p *private) launch() error {
	lock, err := os.OpenFile(p.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	p.lock = lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	bridge, err := p.bridge()
	if err != nil {
		return err
	}
	log, err := os.Create(p.path("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command("dockerd", "--data-root", p.path("data"), "--exec-root", p.path("exec"), "--pidfile", p.path("pid"),
		"--host", p.host(), "--bridge", bridge, "--config-file", p.path("daemon.json"), "--group", strconv.Itoa(os.Getegid()))
	settings, err := privateSettings()
	if err == nil {
		err = os.WriteFile(p.path("daemon.json"), settings, 0o600)
	}
	if err != nil {
		return err
	}
	secured, err := p.secure()
	if err != nil {
		return err
	}
	p.cmd.Args = append(p.cmd.Args, secured...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A test process that is killed (-9) takes its daemon along. The parent's death is that of the thread that forked: the
	// thread is kept by the goroutine that waits.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	begun := make(chan error, 1)
	p.done = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		begun <- err
		if err == nil {
			_ = p.cmd.Wait() // what it ended with is in its log
		}
	}()
	if err := <-begun; err != nil {
		return err
	}
	return p.ready()
}

// privateSettings are those of a private Docker: gVisor is a runtime of it where it is installed. Its ptrace platform works
// everywhere, also inside a virtual machine. The network is the container's own, passed on: gVisor's own network stack of
// 2022, which is Debian's, does not come up on newer kernels ("cannot run with network enabled in root network namespace").
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
			return fmt.Errorf("it ended: %s", p.said())
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

// bridge makes a bridge with a network of its own: daemons that share one would give out the same addresses.
func (p *private) bridge() (string, error) {
	var failed error
	for n := range 64 {
		name := fmt.Sprintf("pyexec%d", n)
		if err := run("ip", "link", "add", name, "type", "bridge"); err != nil {
			failed = err // somebody else's, most likely
			continue
		}
		if err := os.WriteFile(p.path("bridge"), []byte(name), 0o600); err != nil {
			return "", errors.Join(err, run("ip", "link", "delete", name))
		}
		p.address = fmt.Sprintf("10.213.%d.1", n)
		return name, errors.Join(run("ip", "address", "add", p.address+"/24", "dev", name), run("ip", "link", "set", name, "up"))
	}
	return "", failed
}

// stop ends the daemon and removes all it had.
func (p *private) stop() error {
	p.ignore()
	return p.removed()
}

func (p *private) remove() error {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(stopTime, func() { _ = p.cmd.Process.Kill() })
		<-p.done
		late.Stop()
	}
	err := remove(p.dir)
	if p.lock != nil {
		p.lock.Close()
	}
	return err
}

// sweep removes what test processes left that were killed: folders whose lock nobody holds.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), privatePrefix+"*")) // the pattern is well formed
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue // just made, or just removed
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if err := remove(dir); err != nil {
				fmt.Fprintln(os.Stderr, "sweep", dir+":", err)
			}
		}
		lock.Close()
	}
}

// remove ends every process that belongs to the daemon in dir, and removes its mounts, its bridge with the rules about it,
// and dir.
func remove(dir string) error {
	end(dir)
	unmount(dir)
	if raw, err := os.ReadFile(filepath.Join(dir, "bridge")); err == nil {
		forget(strings.TrimSpace(string(raw)))
	}
	return os.RemoveAll(dir)
}

// end kills what was started for the daemon in dir: dockerd, containerd and shims have dir in their command lines. They
// are asked first.
func end(dir string) {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		for range 100 {
			left := members(dir)
			if len(left) == 0 {
				return
			}
			for _, pid := range left {
				_ = unix.Kill(pid, signal)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			<-ctx.Done()
			cancel()
		}
	}
}

// members are the processes with a path below dir in their command line.
func members(dir string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(raw), dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unmount unmounts what is mounted below dir, innermost first.
func unmount(dir string) {
	raw, _ := os.ReadFile("/proc/self/mounts")
	var below []string
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			below = append(below, fields[1])
		}
	}
	slices.Sort(below)
	slices.Reverse(below)
	for _, place := range below {
		_ = unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}

// forget removes a bridge and the packet filter's rules about it, which dockerd leaves.
func forget(bridge string) {
	if bridge == "" {
		return
	}
	_ = run("ip", "link", "delete", bridge) // not there: good
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
	// The network of the bridge stands in a rule of its own.
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
