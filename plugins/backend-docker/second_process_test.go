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

// secondVariable is set in the second test process.
const secondVariable = "PYEXEC_TEST_SECOND"

// secondProcess is a second test process on the same daemon. Most time is spent waiting for containers, so two processes take
// little more time than one. In one process the tests would count each other's goroutines.
type secondProcess struct {
	output bytes.Buffer
	err    error
	done   chan struct{}
}

// second runs the law in the wire lane and on gVisor, while this process runs the other lanes. If it is nil, this process runs
// them all.
var second *secondProcess

// isSecond reports whether this process is the second one.
func isSecond() bool { return os.Getenv(secondVariable) != "" }

// lanesHere returns the lanes of TestConformance in this process. If all tests run, it starts the second process.
func lanesHere(t *testing.T) []backendtest.Lane {
	t.Helper()
	if isSecond() {
		return []backendtest.Lane{backendtest.LaneWire}
	}
	if second = nil; flag.Lookup("test.run").Value.String() != "" {
		return []backendtest.Lane{backendtest.LaneDirect, backendtest.LaneWire, backendtest.LaneProcess}
	}
	second = startSecond(t)
	return []backendtest.Lane{backendtest.LaneDirect, backendtest.LaneProcess}
}

// startSecond starts the second process, which is killed when this process dies. TestConformanceInTheSecondProcess waits for
// its end.
func startSecond(t *testing.T) *secondProcess {
	t.Helper()
	b := &secondProcess{done: make(chan struct{})}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestConformance(OnGVisor)?$",
		"-test.skip="+flag.Lookup("test.skip").Value.String(), "-test.timeout="+flag.Lookup("test.timeout").Value.String())
	cmd.Env = append(os.Environ(), secondVariable+"=1", "DOCKER_HOST="+dockertest.Host(t))
	cmd.Stdout, cmd.Stderr = &b.output, &b.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	go func() {
		runtime.LockOSThread() // Pdeathsig refers to the death of this thread
		defer close(b.done)
		b.err = cmd.Run()
	}()
	return b
}

// passes fails t with the output of the second process if that process fails.
func (b *secondProcess) passes(t *testing.T) {
	<-b.done
	if b.err != nil {
		t.Errorf("%v\n%s", b.err, b.output.Bytes())
	} else if testing.Verbose() {
		t.Logf("%s", b.output.Bytes())
	}
}
