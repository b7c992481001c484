package cmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a person at a terminal with the command running in it.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	before unix.Termios // the modes that the command found

	mu     sync.Mutex
	screen bytes.Buffer
	read   int
	more   chan struct{}
	ended  chan struct{}
}

// atTerminal starts the command line in a terminal of its own.
func atTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	// Deadlines and Close work on a descriptor that does not block; Fd made it block.
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(append(os.Environ(), asCommand+"=1", "TERM=xterm"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	y := &terminal{t: t, master: master, cmd: cmd, more: make(chan struct{}, 1), ended: make(chan struct{})}
	y.before = y.modes()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go y.watch()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-y.ended
		master.Close()
	})
	return y
}

// watch keeps what appears on the screen, until the last process has left the terminal.
func (y *terminal) watch() {
	defer close(y.ended)
	buffer := make([]byte, 4096)
	for {
		n, err := y.master.Read(buffer)
		y.mu.Lock()
		y.screen.Write(buffer[:n])
		y.mu.Unlock()
		select {
		case y.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// sees waits until text appears behind what was seen before.
func (y *terminal) sees(text string) {
	y.t.Helper()
	for {
		y.mu.Lock()
		screen := y.screen.String()
		at := strings.Index(screen[y.read:], text)
		if at >= 0 {
			y.read += at + len(text)
		}
		y.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-y.more:
		case <-y.ended:
			y.mu.Lock()
			defer y.mu.Unlock()
			if strings.Contains(y.screen.String()[y.read:], text) {
				return
			}
			y.t.Fatalf("%q did not appear:\n%q", text, y.screen.String())
		case <-time.After(time.Minute): // only a failure takes that long
			y.t.Fatalf("%q does not appear:\n%q", text, screen)
		}
	}
}

func (y *terminal) types(text string) {
	y.t.Helper()
	if _, err := y.master.WriteString(text); err != nil {
		y.t.Fatal(err)
	}
}

// leaves waits for the end of the command.
func (y *terminal) leaves(status int) {
	y.t.Helper()
	err := y.cmd.Wait()
	if got := y.cmd.ProcessState.ExitCode(); got != status {
		y.t.Errorf("exit status %d (%v), want %d:\n%q", got, err, status, y.screen.String())
	}
}

// modes are the terminal's.
func (y *terminal) modes() unix.Termios {
	y.t.Helper()
	m, err := unix.IoctlGetTermios(int(y.master.Fd()), unix.TCGETS)
	if err != nil {
		y.t.Fatal(err)
	}
	if err := unix.SetNonblock(int(y.master.Fd()), true); err != nil {
		y.t.Fatal(err)
	}
	return *m
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	up    = "\x1b[A"
)

func TestAConsoleAtATerminal(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	state := t.TempDir()
	env := []string{"XDG_STATE_HOME=" + state}
	y := atTerminal(t, env, "session", "exec", "-i", id)
	y.sees("in session " + id)
	y.sees(">>> ")
	y.types("set x 100\r")
	y.sees(">>> ")
	y.types("get x\r")
	y.sees("\n100\r\n")
	y.sees(">>> ")

	// Several lines.
	y.types("print (\r")
	y.sees("... ")
	y.types("print )\r")
	y.sees("\n(\r\n)\r\n")
	y.sees(">>> ")

	// The history.
	y.types("print first\r")
	y.sees("\nfirst\r\n")
	y.sees(">>> ")
	y.types(up + " again\r")
	y.sees("\nfirst again\r\n")
	y.sees(">>> ")

	// Output without a line end does not swallow the prompt.
	y.types("write open\r")
	y.sees("\nopen\r\n")
	y.sees(">>> ")

	// Ctrl-C drops what was typed, also of several lines.
	y.types("print dropped" + ctrlC)
	y.sees("^C")
	y.sees(">>> ")
	y.types("print (\r")
	y.sees("... ")
	y.types(ctrlC)
	y.sees(">>> ")

	// Ctrl-C interrupts what runs, and the session keeps its state.
	y.types("print running\\\r") // a line of its own for the fake: the backslash joins nothing there
	y.sees("... ")
	y.types(ctrlC)
	y.sees(">>> ")
	y.types("print '''\r")
	y.sees("... ")
	y.types("hang\r")
	y.sees("... ")
	y.types("print '''\r")
	y.sees("\n'''\r\n")
	y.types(ctrlC)
	y.sees("interrupted")
	y.sees(">>> ")
	y.types("get x\r")
	y.sees("\n100\r\n")
	y.sees(">>> ")

	// Tab indents.
	y.types("print '''\r")
	y.sees("... ")
	y.types("\t# '''\r")
	y.sees("    # '''")
	y.sees(">>> ")

	// Ctrl-D leaves, and the terminal is as it was.
	y.types(ctrlD)
	y.leaves(0)
	if after := y.modes(); after.Lflag != y.before.Lflag || after.Iflag != y.before.Iflag {
		t.Errorf("the terminal's modes were %x %x and are %x %x", y.before.Lflag, y.before.Iflag, after.Lflag, after.Iflag)
	}
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
	y.sees(">>> ")
	y.types(up)
	y.sees("    # '''")
	y.types(ctrlC)
	y.sees(">>> ")
	y.types(ctrlD)
	y.leaves(0)
}

func TestASignalEndsAConsoleAndGivesTheTerminalBack(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle, "--language", "shell")
	y := atTerminal(t, []string{"XDG_STATE_HOME=" + t.TempDir()}, "session", "exec", "-i", id)
	y.sees("$ ")
	if err := y.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	y.leaves(143)
	if after := y.modes(); after.Lflag != y.before.Lflag {
		t.Errorf("the terminal's modes were %x and are %x", y.before.Lflag, after.Lflag)
	}
}

func TestCtrlCEndsWhatReadsNoTerminal(t *testing.T) {
	bundle := sessionServer(t)
	id := opened(t, bundle)
	y := atTerminal(t, nil, "session", "run", id, "-c", "print up\nhang")
	y.sees("up")
	y.types(ctrlC)
	y.leaves(130)
}

func TestInterruptsAreTakenAndGivenBack(t *testing.T) {
	t.Parallel()
	taker := &interruptTaker{}
	ctx := context.WithValue(t.Context(), takerKey{}, taker)
	if taker.offer() {
		t.Error("nobody took it")
	}
	interrupts, release := takeInterrupts(ctx)
	for range 2 {
		if !taker.offer() {
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
	if taker.offer() {
		t.Error("it is still taken")
	}
	if c, release := takeInterrupts(t.Context()); c == nil {
		t.Error("without signals there is no channel")
	} else {
		release()
	}
}
