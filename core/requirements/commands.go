package requirements

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// Commands runs pre_commands as one script, and follows its output.
type Commands struct {
	commands []string
	// mark begins the line before the output of each command. It holds a random part, so that no command prints it by chance.
	mark string
	// at is the index of the running command; -1 before the first. said is the end of its output.
	at   int
	said Tail
	tell func(message string)
}

// NewCommands returns Commands whose progress goes to tell.
func NewCommands(commands []string, tell func(message string)) *Commands {
	return &Commands{commands: commands, mark: "python-executor: " + rand.Text(), at: -1, said: Tail{Max: 8 << 10}, tell: tell}
}

// Line handles a line of the script's output.
func (c *Commands) Line(line string) {
	var n int
	if _, err := fmt.Sscanf(line, c.mark+" %d", &n); err == nil && n >= 0 && n < len(c.commands) {
		c.at = n
		c.said.Reset()
		c.tell("running " + Shorten(c.commands[n], 160))
		return
	}
	c.said.Add(line)
	if line = Printable(line); line != "" {
		c.tell(Shorten(line, 200))
	}
}

// Failure returns the Failure of the last command that ran: how it ended, and the end of its output.
func (c *Commands) Failure(code executor.Code, how string) *executor.Failure {
	what := "the shell"
	if c.at >= 0 {
		what = CommandName(c.at, c.commands[c.at])
	}
	return CommandFailure(code, what, how, &c.said)
}

// CommandName names the n-th of the pre_commands in messages.
func CommandName(n int, command string) string {
	return fmt.Sprintf("pre_commands[%d] %q", n, Shorten(command, 200))
}

// CommandFailure returns the Failure of a command: its name, how it ended, and the end of its output.
func CommandFailure(code executor.Code, name, how string, output *Tail) *executor.Failure {
	message := name + " " + how
	if said := output.String(); said != "" {
		message += ":\n" + said
	}
	return &executor.Failure{Code: code, Phase: executor.PhasePrepare, Field: "pre_commands", Message: message}
}

// Exited returns the Failure of a command that ended with an exit code.
func (c *Commands) Exited(code int) *executor.Failure {
	return c.Failure(executor.Invalid, "ended with exit code "+exitName(code))
}

// exitSignal is what a shell adds to a signal's number for an exit code.
const exitSignal = 128

// shellSignals are the signals that an exit code of a shell may stand for.
var shellSignals = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM"}

// exitName returns an exit code of a shell as text, with the signal that ended the command, if any.
func exitName(code int) string {
	if n := slices.IndexFunc(shellSignals, func(name string) bool { return executor.SignalNumber(name) == code-exitSignal }); n >= 0 {
		return fmt.Sprintf("%d (%s)", code, shellSignals[n])
	}
	return fmt.Sprint(code)
}

// Script returns a script that runs each command in its own shell without input, until one fails. A shell reads the script from
// its standard input. env are variables of the commands. After the last command the script removes the folder remove, if it is
// not empty. A line of the mark and the command's index precedes the output of each command. Both go to standard error, because
// two streams could arrive in any order.
func (c *Commands) Script(env map[string]string, remove string) []byte {
	var b bytes.Buffer
	b.WriteString("exec 1>&2\n")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(env[name]))
	}
	for n, command := range c.commands {
		fmt.Fprintf(&b, "echo; echo '%s %d'\n/bin/sh -c %s </dev/null || exit\n", c.mark, n, quote(command))
	}
	if remove != "" {
		fmt.Fprintf(&b, "rm -rf %s\n", quote(remove))
	}
	b.WriteString("exit 0\n")
	return b.Bytes()
}

// quote returns text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Tail keeps the last Max bytes of what is added.
type Tail struct {
	Max  int
	text []byte
	cut  bool
}

// Add adds a line.
func (t *Tail) Add(line string) { t.Append([]byte(line + "\n")) }

// Append adds bytes.
func (t *Tail) Append(part []byte) {
	t.text = append(t.text, part...)
	if over := len(t.text) - t.Max; over > 0 {
		t.text, t.cut = append(t.text[:0], t.text[over:]...), true
	}
}

// Reset forgets all.
func (t *Tail) Reset() { t.text, t.cut = t.text[:0], false }

// String returns what is kept, as valid UTF-8.
func (t *Tail) String() string {
	text := strings.ToValidUTF8(strings.TrimRight(string(t.text), "\n"), "")
	if t.cut {
		text = "…" + text
	}
	return text
}
