package cmd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/terminaltest"
)

// atTerminal starts the command line in a terminal of its own.
func atTerminal(t *testing.T, env []string, args ...string) *terminaltest.Terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(append(os.Environ(), asCommand+"=1", "TERM=xterm"), env...)
	return terminaltest.Start(t, cmd)
}

const (
	ctrlC = terminaltest.CtrlC
	ctrlD = terminaltest.CtrlD
	up    = terminaltest.Up
)

func TestAConsoleAtATerminal(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	state := t.TempDir()
	env := []string{"XDG_STATE_HOME=" + state}
	y := atTerminal(t, env, "session", "exec", "-i", id)
	y.Sees("in session " + id)
	y.Sees(">>> ")
	y.Types("set x 100\r")
	y.Sees(">>> ")
	y.Types("get x\r")
	y.Sees("\n100\r\n")
	y.Sees(">>> ")

	// Several lines.
	y.Types("print (\r")
	y.Sees("... ")
	y.Types("print )\r")
	y.Sees("\n(\r\n)\r\n")
	y.Sees(">>> ")

	// The history.
	y.Types("print first\r")
	y.Sees("\nfirst\r\n")
	y.Sees(">>> ")
	y.Types(up + " again\r")
	y.Sees("\nfirst again\r\n")
	y.Sees(">>> ")

	// Output without a line end does not swallow the prompt.
	y.Types("write open\r")
	y.Sees("\nopen\r\n")
	y.Sees(">>> ")

	// Ctrl-C drops what was typed, also of several lines.
	y.Types("print dropped" + ctrlC)
	y.Sees("^C")
	y.Sees(">>> ")
	y.Types("print (\r")
	y.Sees("... ")
	y.Types(ctrlC)
	y.Sees(">>> ")

	// Ctrl-C interrupts what runs, and the session keeps its state.
	y.Types("print running\\\r") // a line of its own for the fake: the backslash joins nothing there
	y.Sees("... ")
	y.Types(ctrlC)
	y.Sees(">>> ")
	y.Types("print '''\r")
	y.Sees("... ")
	y.Types("hang\r")
	y.Sees("... ")
	y.Types("print '''\r")
	y.Sees("\n'''\r\n")
	y.Types(ctrlC)
	y.Sees("interrupted")
	y.Sees(">>> ")
	y.Types("get x\r")
	y.Sees("\n100\r\n")
	y.Sees(">>> ")

	// Tab indents.
	y.Types("print '''\r")
	y.Sees("... ")
	y.Types("\t# '''\r")
	y.Sees("    # '''")
	y.Sees(">>> ")

	// Ctrl-D leaves, and the terminal is as it was.
	y.Types(ctrlD)
	y.Leaves(0)
	history := filepath.Join(state, "python-executor", "history-python")
	raw, err := os.ReadFile(history)
	if err != nil || !strings.Contains(string(raw), "print first again\n") {
		t.Errorf("%q %v", raw, err)
	}
	if info, err := os.Stat(history); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}

	// It is there the next time.
	y = atTerminal(t, env, "session", "exec", "-i", id)
	y.Sees(">>> ")
	y.Types(up)
	y.Sees("    # '''")
	y.Types(ctrlC)
	y.Sees(">>> ")
	y.Types(ctrlD)
	y.Leaves(0)
}

func TestASignalEndsAConsoleAndGivesTheTerminalBack(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle, "--language", "shell")
	y := atTerminal(t, []string{"XDG_STATE_HOME=" + t.TempDir()}, "session", "exec", "-i", id)
	y.Sees("$ ")
	y.Signal(syscall.SIGTERM)
	y.Leaves(143)
}

func TestCtrlCEndsWhatReadsNoTerminal(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	y := atTerminal(t, nil, "session", "run", id, "-c", "print up\nhang")
	y.Sees("up")
	y.Types(ctrlC)
	y.Leaves(130)
}

func TestInterruptsAreTakenAndGivenBack(t *testing.T) {
	t.Parallel()
	taker := &signalTaker{}
	ctx := context.WithValue(t.Context(), takerKey{}, taker)
	if taker.offer(syscall.SIGINT) {
		t.Error("nobody took it")
	}
	interrupts, release := takeInterrupts(ctx)
	for range 2 {
		if !taker.offer(syscall.SIGINT) {
			t.Error("it was not taken")
		}
	}
	<-interrupts
	select {
	case <-interrupts:
		t.Error("two before anybody looked are two")
	default:
	}
	release()
	if taker.offer(syscall.SIGINT) {
		t.Error("it is still taken")
	}
	if c, release := takeInterrupts(t.Context()); c == nil {
		t.Error("without signals there is no channel")
	} else {
		release()
	}
}
