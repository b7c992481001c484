package dockerbackend

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// besideVariable is set in a test process that works beside another.
const besideVariable = "PYEXEC_TEST_BESIDE"

// beside is a second test process on the same daemon. Containers are waited for more than worked for, so two go on in not
// much more time than one; in one process they would count each other's goroutines.
type beside struct {
	output bytes.Buffer
	err    error
	done   chan struct{}
}

// besides holds the law in the wire lane and on gVisor while this process does in the other lanes; nil: it is all done here.
var besides *beside

// isBeside reports whether this process is the second one.
func isBeside() bool { return os.Getenv(besideVariable) != "" }

// besideLanes are the lanes of TestConformance in this process. Where every test is to run it starts the second process.
func besideLanes(t *testing.T) []backendtest.Lane {
	t.Helper()
	if isBeside() {
		return []backendtest.Lane{backendtest.LaneWire}
	}
	if besides = nil; flag.Lookup("test.run").Value.String() != "" {
		return []backendtest.Lane{backendtest.LaneDirect, backendtest.LaneWire, backendtest.LaneProcess}
	}
	besides = startBeside(t)
	return []backendtest.Lane{backendtest.LaneDirect, backendtest.LaneProcess}
}

// startBeside starts the second process. TestConformanceBeside waits for its end; it ends with this process if that is killed.
func startBeside(t *testing.T) *beside {
	t.Helper()
	b := &beside{done: make(chan struct{})}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestConformance(OnGVisor)?$",
		"-test.skip="+flag.Lookup("test.skip").Value.String(), "-test.timeout="+flag.Lookup("test.timeout").Value.String())
	cmd.Env = append(os.Environ(), besideVariable+"=1", "DOCKER_HOST="+dockertest.Host(t))
	cmd.Stdout, cmd.Stderr = &b.output, &b.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	go func() {
		runtime.LockOSThread() // the death that it is told of is this thread's
		defer close(b.done)
		b.err = cmd.Run()
	}()
	return b
}

// passes fails t, with what the second process said, if that fails.
func (b *beside) passes(t *testing.T) {
	<-b.done
	if b.err != nil {
		t.Errorf("%v\n%s", b.err, b.output.Bytes())
	} else if testing.Verbose() {
		t.Logf("%s", b.output.Bytes())
	}
}
