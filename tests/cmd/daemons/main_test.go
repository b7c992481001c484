package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// asCommand makes this test binary the command.
const asCommand = "PYEXEC_DAEMONS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0) // the second process ends by itself
	}
	os.Exit(m.Run())
}

// daemons is the command under test, with a daemon of its own.
type daemons struct {
	cmd *exec.Cmd
	in  io.Closer
	// folder is that of the daemon.
	folder string
}

// start runs script below the command. The script's first line is the daemon's folder; its input stays open.
func start(t *testing.T, script string) *daemons {
	t.Helper()
	_, err := exec.LookPath("dockerd")
	needtest.Need(t, err == nil && os.Geteuid() == 0, "docker", "a private daemon needs root and dockerd")
	d := &daemons{cmd: exec.Command(os.Args[0], "-docker", "--", "sh", "-c", "echo $"+dockertest.Variable+"; "+script)} //nolint:gosec // this test binary
	d.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, dockertest.Variable) || strings.HasPrefix(pair, nomadtest.Variable) || strings.HasPrefix(pair, "DOCKER_")
	}), asCommand+"=1")
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.in.Close() })
	line, err := bufio.NewReader(out).ReadString('\n')
	d.folder = strings.TrimSpace(line)
	if err != nil {
		t.Fatal(err)
	}
	if d.folder == "" {
		d.in.Close()
		_ = d.cmd.Wait()
		t.Skip("SKIPPED, this machine's own daemon is used")
	}
	return d
}

// left lists what there is of the daemon: its folder, processes and bridge.
func (d *daemons) left(bridge string) (list []string) {
	if _, err := os.Stat(d.folder); err == nil {
		list = append(list, d.folder)
	}
	for range leftovertest.Processes("cmdline", func(content string) bool { return strings.Contains(content, d.folder+"/") }) {
		list = append(list, "a process")
	}
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		list = append(list, bridge)
	}
	return list
}

func TestTheDaemonIsThereForTheCommandAndGoneAfterIt(t *testing.T) {
	needtest.Long(t, "the gate itself runs below this command, and its tests fail without the daemons")
	for name, c := range map[string]struct {
		end  func(d *daemons) error
		want int
	}{
		"the command ends":               {func(d *daemons) error { return d.in.Close() }, 7},
		"it is told to end":              {func(d *daemons) error { return d.cmd.Process.Signal(syscall.SIGTERM) }, 5},
		"it is killed, and cannot clean": {func(d *daemons) error { return d.cmd.Process.Kill() }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, "trap 'exit 5' TERM; read nothing; exit 7")
			bridge, err := os.ReadFile(d.folder + "/bridge")
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("docker", "--host", "unix://"+d.folder+"/docker.sock", "image", "inspect", "pyexec-test:python", "pyexec-test:bare").CombinedOutput(); err != nil {
				t.Errorf("the images are not there: %v: %s", err, out)
			}
			if err := c.end(d); err != nil {
				t.Fatal(err)
			}
			_ = d.cmd.Wait() // its code is looked at
			if code := d.cmd.ProcessState.ExitCode(); code != c.want {
				t.Errorf("exit code %d, want %d", code, c.want)
			}
			if c.want >= 0 {
				if left := d.left(string(bridge)); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				return
			}
			awaittest.Until(t, "the end of all that the killed command has left", func() bool { return len(d.left(string(bridge))) == 0 })
		})
	}
}
