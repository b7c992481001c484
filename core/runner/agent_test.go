//go:build linux

package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// rawHost speaks frames itself.
type rawHost struct {
	*frameReader
	*frameWriter
	net.Conn
}

func startRaw(t *testing.T) (*testRunner, *rawHost) {
	t.Helper()
	r, conn := startProcess(t, nil)
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil { // a hang is a failure
		t.Fatal(err)
	}
	return r, &rawHost{newFrameReader(conn), &frameWriter{w: conn}, conn}
}

// expect reads frames until one of type want.
func (h *rawHost) expect(t *testing.T, want frameType) []byte {
	t.Helper()
	for {
		ft, n, err := h.header()
		if err != nil {
			t.Fatalf("no frame of type %d: %v", want, err)
		}
		p, err := h.payload(n)
		if err != nil {
			t.Fatal(err)
		}
		if ft == want {
			return p
		}
	}
}

func TestABrokenProtocolEndsTheRunner(t *testing.T) {
	for name, send := range map[string][]byte{
		"garbage":                          []byte("GET / HTTP/1.1\r\n\r\n"),
		"a frame before hello":             {0, 0, 0, 0, byte(frameCancel)},
		"a frame that only runners send":   {0, 0, 0, 0, byte(frameArtifactEnd)},
		"a length that lies":               {0xff, 0xff, 0xff, 0xff, byte(frameHello)},
		"a hello that is no JSON":          {0, 0, 0, 1, byte(frameHello), '{'},
		"a hello of another version":       append([]byte{0, 0, 0, 14, byte(frameHello)}, `{"version":99}`...),
		"a hello with a wrong work folder": append([]byte{0, 0, 0, 44, byte(frameHello)}, `{"version":1,"config":{"work_root":"/none"}}`...),
	} {
		t.Run(name, func(t *testing.T) {
			r, host := startRaw(t)
			if _, err := host.Conn.Write(send); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, host.Conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the runner did not end: %v", err)
			}
			var exit *exec.ExitError
			if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitBroken {
				t.Errorf("%v\n%s", err, r.stderr)
			}
		})
	}
}

func TestAWrongConfigIsRefusedWithWords(t *testing.T) {
	r, host := startProcess(t, nil)
	_, err := NewConn(host, Config{WorkRoot: "/none"})
	if executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "/none") {
		t.Errorf("got %v", err)
	}
	_ = r.cmd.Wait() // its status is not what this is about
}

func TestAPingIsAnswered(t *testing.T) {
	_, host := startRaw(t)
	if err := host.json(frameHello, hello{Version: Version, Config: Config{WorkRoot: workRoot(t)}}); err != nil {
		t.Fatal(err)
	}
	var first, second helloReply
	if err := json.Unmarshal(host.expect(t, frameHelloReply), &first); err != nil {
		t.Fatal(err)
	}
	if err := host.frame(framePing); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(host.expect(t, frameHelloReply), &second); err != nil || first != second || first.Epoch == 0 {
		t.Errorf("%+v %+v %v", first, second, err)
	}
}

func TestAHostThatComesBackGetsWhatItMissed(t *testing.T) {
	_, host := startRaw(t)
	cfg := testConfig(t)
	cfg.Silence = time.Minute
	if err := host.json(frameHello, hello{Version: Version, Config: cfg}); err != nil {
		t.Fatal(err)
	}
	var reply helloReply
	if err := json.Unmarshal(host.expect(t, frameHelloReply), &reply); err != nil {
		t.Fatal(err)
	}
	if err := host.json(frameStart, shell("printf 0123456789; printf err >&2")); err != nil {
		t.Fatal(err)
	}
	host.expect(t, frameExited)
	if err := host.json(frameHello, hello{Version: Version, Epoch: reply.Epoch, Resume: true, Stdout: 0, Stderr: 3}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(host.expect(t, frameHelloReply), &reply); err != nil || reply.ExecutionID != "exe_test" {
		t.Fatalf("%+v %v", reply, err)
	}
	host.expect(t, frameStarted)
	o, err := parseOutput(host.expect(t, frameOutput))
	if err != nil || o.Stream != executor.Stdout || o.Offset != 0 || string(o.Data) != "0123456789" {
		t.Errorf("%+v %v", o, err)
	}
	var res executor.Result
	if err := json.Unmarshal(host.expect(t, frameExited), &res); err != nil || describe(res) != "succeeded exit 0" {
		t.Errorf("%s %v", describe(res), err)
	}
}

func TestSilenceKillsTheProgramOnceItHasLastedLongEnough(t *testing.T) {
	r, host := startRaw(t)
	cfg := testConfig(t)
	cfg.Silence = 300 * time.Millisecond
	if err := errors.Join(
		host.json(frameHello, hello{Version: Version, Config: cfg}),
		host.json(frameStart, shell("sleep 100")),
	); err != nil {
		t.Fatal(err)
	}
	var s executor.Started
	if err := json.Unmarshal(host.expect(t, frameStarted), &s); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := r.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitSilence {
		t.Errorf("%v\n%s", err, r.stderr)
	}
	if state, _ := processState(s.PID); state != 0 && state != 'Z' {
		t.Errorf("the program is alive (%c)", state)
	}
	entries, err := os.ReadDir(cfg.WorkRoot)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestASignalReachesTheProgram(t *testing.T) {
	_, host := startRaw(t)
	if err := errors.Join(
		host.json(frameHello, hello{Version: Version, Config: testConfig(t)}),
		host.json(frameStart, shell("trap 'echo got it; exit 4' USR1; echo ready; while :; do :; done")),
	); err != nil {
		t.Fatal(err)
	}
	host.expect(t, frameOutput)
	if err := host.frame(frameSignal, byte(syscall.SIGUSR1)); err != nil {
		t.Fatal(err)
	}
	if o, err := parseOutput(host.expect(t, frameOutput)); err != nil || string(o.Data) != "got it\n" {
		t.Errorf("%q %v", o.Data, err)
	}
	var res executor.Result
	if err := json.Unmarshal(host.expect(t, frameExited), &res); err != nil || describe(res) != "failed exit 4" {
		t.Errorf("%s %v", describe(res), err)
	}
}

func TestTheRunnersDeathIsUnavailableAndKillsTheProgram(t *testing.T) {
	r := startRunner(t, testConfig(t))
	rec := newRecord()
	pid := make(chan int, 1)
	go func() {
		s := <-rec.started
		pid <- s.PID
		_ = r.cmd.Process.Kill()
	}()
	_, err := r.Run(t.Context(), shell("sleep 100"), RunInput{}, rec)
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
	<-r.Done()
	if _, err := r.Run(t.Context(), shell("true"), RunInput{}, newRecord()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("the next one: %v", err)
	}
	awaitDeath(t, <-pid)
}

// awaitDeath waits until a process that was sent SIGKILL is gone.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return // gone
	}
	defer syscall.Close(fd) //nolint:errcheck // read only
	for range 10_000 {
		if state, _ := processState(pid); state == 0 || state == 'Z' {
			return
		}
		if err := syscall.Kill(pid, 0); err != nil {
			return
		}
	}
	t.Errorf("process %d is alive", pid)
}

func TestSIGTERMEndsTheRunnerAndItsProgram(t *testing.T) {
	r := startRunner(t, testConfig(t))
	rec := newRecord()
	pid := make(chan int, 1)
	go func() {
		s := <-rec.started
		pid <- s.PID
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}()
	// The Result may still come through, or the connection may end first.
	if res, err := r.Run(t.Context(), shell("sleep 100"), RunInput{}, rec); err == nil && res.Status != executor.StatusKilled {
		t.Error(describe(res))
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, r.stderr)
	}
	if state, _ := processState(<-pid); state != 0 && state != 'Z' {
		t.Errorf("the program is alive (%c)", state)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--fd"}, {"--fd", "x"}, {"--fd", "1"}, {"--what"}} {
		if got := Main(args); got != exitUsage {
			t.Errorf("%v: %d", args, got)
		}
	}
	if fd, stdio, err := parseArgs([]string{"--stdio", "--fd", "7", ownMounts}); fd != 7 || !stdio || err != nil {
		t.Error(fd, stdio, err)
	}
}

func TestStandardStreamsServeAsAConnection(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "runner", "--stdio") //nolint:gosec // ourselves
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := NewConn(struct {
		io.Reader
		io.WriteCloser
	}{out, in}, testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecord()
	res, err := conn.Run(t.Context(), shell("cat; echo more"), RunInput{Stdin: strings.NewReader("in ")}, rec)
	if err != nil || describe(res) != "succeeded exit 0" || rec.stdout() != "in more\n" {
		t.Error(err, describe(res), rec.stdout())
	}
	if err := errors.Join(conn.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

func TestLeftoversAreKilledByFolder(t *testing.T) {
	root := workRoot(t)
	home := filepath.Join(root, "abc")
	if err := os.Mkdir(home, 0o755); err != nil { //nolint:gosec // a test's folder
		t.Fatal(err)
	}
	byHome, byCwd, other := exec.Command("sleep", "100"), exec.Command("sleep", "100"), exec.Command("sleep", "100")
	byHome.Env = []string{"HOME=" + home}
	byCwd.Dir = home
	other.Env = []string{"HOME=" + root + "-other"}
	for _, cmd := range []*exec.Cmd{byHome, byCwd, other} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	n, err := KillLeftovers(root, testUID+1000, 10)
	if n != 2 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	for _, cmd := range []*exec.Cmd{byHome, byCwd} {
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%v", err)
		}
	}
	if err := errors.Join(other.Process.Signal(syscall.Signal(0)), other.Process.Kill()); err != nil {
		t.Errorf("a stranger was killed: %v", err)
	}
	_ = other.Wait() // by our Kill
}

func TestLeftoversAreKilledByUID(t *testing.T) {
	needs(t, isRoot(), "root")
	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID + 2000, Gid: testUID + 2000}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := KillLeftovers("", testUID+1990, 20); n != 1 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	_ = cmd.Wait() // by that
}

func TestGroupPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, mountinfo, cgroup, want string }{
		{"v2 alone", "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n", "0::/user.slice/x.scope\n",
			"[{unified /sys/fs/cgroup /sys/fs/cgroup/user.slice/x.scope}]"},
		{"v2 in a namespace", "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/\n",
			"[{unified /sys/fs/cgroup /sys/fs/cgroup}]"},
		{"a v1 container", "40 23 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", "4:memory:/docker/abc/sub\n",
			"[{memory /sys/fs/cgroup/memory /sys/fs/cgroup/memory/sub}]"},
		{"v1 controllers together", "40 23 0:30 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n", "4:cpu,cpuacct:/a\n",
			"[{cpu /cg/cpu,cpuacct /cg/cpu,cpuacct/a} {cpuacct /cg/cpu,cpuacct /cg/cpu,cpuacct/a}]"},
		{"nothing", "22 1 8:1 / / rw - ext4 /dev/sda rw\n", "", "[]"},
		{"garbage", "x\n- -\n\n", "a:b\n::\n", "[]"},
	} {
		if got := fmt.Sprint(groupPlaces(c.mountinfo, c.cgroup)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestControlGroupsCanBeKilledAndRemoved(t *testing.T) {
	slot := testCgroups(t)
	needs(t, len(slot) > 0, "control groups")
	child, err := slot.Make("a")
	if err != nil {
		t.Fatal(err)
	}
	if got := slot.Children(); fmt.Sprint(got) != "[a]" {
		t.Errorf("children %v", got)
	}
	if _, err := child.Make("b"); err != nil {
		t.Fatal(err)
	}
	var sleepers []*exec.Cmd
	for _, group := range []Cgroups{child, child.Child("b")} {
		cmd := exec.Command("sleep", "100")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range group.folders() {
			if err := writeGroup(dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
		sleepers = append(sleepers, cmd)
	}
	if err := errors.Join(child.Remove(), child.Remove()); err != nil {
		t.Error(err)
	}
	for _, cmd := range sleepers {
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Error(err)
		}
	}
	if got := slot.Children(); len(got) > 0 {
		t.Errorf("children %v", got)
	}
}

func TestProbes(t *testing.T) {
	needs(t, isRoot(), "root")
	if err := ProbeSetuid(testUID, testUID); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{"network": ProbeNetworkNamespace(), "tmpfs": ProbeTmpfs(), "user": ProbeUserNamespace()} {
		t.Logf("%s: %v", name, err)
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Errorf("a probe has changed this process: %v", err)
	}
}
