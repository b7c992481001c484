package terminaltest

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// complaining is a test that keeps what it is told.
type complaining struct {
	testing.TB
	said string
}

func (c *complaining) Errorf(format string, args ...any) { c.said += fmt.Sprintf(format, args...) }

func TestWhatIsTypedAndSeen(t *testing.T) {
	y := Start(t, exec.CommandContext(t.Context(), "sh", "-c", `echo ready; read x; echo "got <$x>"; exit 3`))
	y.Sees("ready\r\n")
	y.Types("a word\r")
	y.Sees("got <a word>")
	y.Leaves(3)
}

func TestCtrlCIsASignalAndSignalsHaveAStatus(t *testing.T) {
	y := Start(t, exec.CommandContext(t.Context(), "sh", "-c", `trap 'exit 4' INT; echo ready; read x`))
	y.Sees("ready")
	y.Types(CtrlC)
	y.Leaves(4)
	y = Start(t, exec.CommandContext(t.Context(), "sh", "-c", `echo ready; read x`))
	y.Sees("ready")
	y.Signal(syscall.SIGTERM)
	y.Leaves(-1)
}

func TestATerminalThatIsNotAsItWasIsNoticed(t *testing.T) {
	c := &complaining{TB: t}
	y := Start(c, exec.CommandContext(t.Context(), "sh", "-c", "stty -echo -icanon; exit 1"))
	if y.Leaves(0); !strings.Contains(c.said, "exit status 1") || !strings.Contains(c.said, "the terminal's modes were") {
		t.Errorf("%q", c.said)
	}
}
