// Package terminaltest puts a command into a pseudo terminal, and a test in front of it. Linux only.
package terminaltest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// What a keyboard sends.
const (
	CtrlC = "\x03"
	CtrlD = "\x04"
	Up    = "\x1b[A"
)

// Terminal is a person at a terminal with a command running in it.
type Terminal struct {
	t      testing.TB
	master *os.File
	cmd    *exec.Cmd
	before unix.Termios // the modes that the command found

	mu     sync.Mutex
	screen bytes.Buffer
	read   int
	more   chan struct{}
	ended  chan struct{}
}

// Start starts cmd, which was not started yet, in a terminal of its own of 24 lines of 100 columns. Its three streams and its
// SysProcAttr are set here. It is killed at the end of the test. The test is skipped where there are no pseudo
// terminals, and fails there if PYEXEC_TEST_REQUIRE has "pty".
func Start(t testing.TB, cmd *exec.Cmd) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		needtest.Need(t, false, "pty", err.Error())
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
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	y := &Terminal{t: t, master: master, cmd: cmd, more: make(chan struct{}, 1), ended: make(chan struct{})}
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
func (y *Terminal) watch() {
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

// Sees waits until text appears behind what was seen before.
func (y *Terminal) Sees(text string) {
	y.t.Helper()
	hung := awaittest.Context(y.t)
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
		case <-hung.Done():
			y.t.Fatalf("%q does not appear:\n%q", text, screen)
		}
	}
}

// Types types text. The return key is "\r".
func (y *Terminal) Types(text string) {
	y.t.Helper()
	if _, err := y.master.WriteString(text); err != nil {
		y.t.Fatal(err)
	}
}

// Signal sends the command, and nothing else in the terminal, a signal.
func (y *Terminal) Signal(signal syscall.Signal) {
	y.t.Helper()
	if err := y.cmd.Process.Signal(signal); err != nil {
		y.t.Fatal(err)
	}
}

// Leaves waits for the end of the command, and holds it to an exit status and to leaving the terminal as it was.
func (y *Terminal) Leaves(status int) {
	y.t.Helper()
	err := y.cmd.Wait()
	y.mu.Lock()
	screen := y.screen.String()
	y.mu.Unlock()
	if got := y.cmd.ProcessState.ExitCode(); got != status {
		y.t.Errorf("exit status %d (%v), want %d:\n%q", got, err, status, screen)
	}
	if after := y.modes(); after != y.before {
		y.t.Errorf("the terminal's modes were %+v and are %+v:\n%q", y.before, after, screen)
	}
}

// modes are the terminal's.
func (y *Terminal) modes() unix.Termios {
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
