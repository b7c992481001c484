package requirements

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// runScript runs commands in a shell, as a backend does. It returns the progress, what the shell wrote to standard output, and the Failure.
func runScript(t *testing.T, env map[string]string, remove string, commands ...string) (told []string, stdout string, failure *executor.Failure) {
	t.Helper()
	c := NewCommands(commands, func(message string) { told = append(told, message) })
	lines := Lines{Tell: c.Line}
	var out bytes.Buffer
	shell := exec.CommandContext(t.Context(), "/bin/sh")
	shell.Stdin, shell.Stdout, shell.Stderr = bytes.NewReader(c.Script(env, remove)), &out, &lines
	err := shell.Run()
	lines.Flush()
	if err != nil {
		failure = c.Exited(shell.ProcessState.ExitCode())
	}
	return told, out.String(), failure
}

func TestCommandsRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	// A shell may read the script in blocks. The last command is in a later block than cat, which has no input.
	commands := []string{"echo out; echo err >&2; echo out", "cat; cd /; V=1", `printf "%s" "$TEXT$V"; : ` + strings.Repeat("x", 100_000)}
	told, stdout, failure := runScript(t, map[string]string{"TEXT": `it's "$HOME"`}, folder, commands...)
	want := []string{"running " + commands[0], "out", "err", "out", "running " + commands[1], "running " + commands[2][:160] + "…", `it's "$HOME"`}
	if failure != nil || stdout != "" || !slices.Equal(told, want) {
		t.Errorf("told %q, stdout %q, %+v", told, stdout, failure)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}

func TestTheFailureOfACommandHasItsOutputOnly(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"echo two; exit 3":             "pre_commands[1] \"echo two; exit 3\" ended with exit code 3:\ntwo",
		"exit 1":                       `pre_commands[1] "exit 1" ended with exit code 1`,
		"exit 137":                     `pre_commands[1] "exit 137" ended with exit code 137 (SIGKILL)`,
		"exit 143":                     `pre_commands[1] "exit 143" ended with exit code 143 (SIGTERM)`,
		"exit 200":                     `pre_commands[1] "exit 200" ended with exit code 200`,
		"exit 139":                     `pre_commands[1] "exit 139" ended with exit code 139 (SIGSEGV)`,
		"echo 'it''s' here >&2; false": "pre_commands[1] \"echo 'it''s' here >&2; false\" ended with exit code 1:\nits here",
	} {
		told, _, failure := runScript(t, nil, "", "echo one", command, "echo three")
		if slices.Contains(told, "three") {
			t.Errorf("%s: a command ran after it", command)
		}
		if failure == nil || failure.Message != want || failure.Code != executor.Invalid || failure.Phase != executor.PhasePrepare || failure.Field != "pre_commands" {
			t.Errorf("%s: %+v", command, failure)
		}
	}
}

// TestALineLikeAMarkIsOutput: only the mark with the index of a command begins its output.
func TestALineLikeAMarkIsOutput(t *testing.T) {
	t.Parallel()
	var told []string
	c := NewCommands([]string{"x"}, func(message string) { told = append(told, message) })
	lines := []string{c.mark + " 1", c.mark + " -1", c.mark, "python-executor: x 0"}
	for _, line := range lines {
		c.Line(line)
	}
	if !slices.Equal(told, lines) {
		t.Errorf("told %q", told)
	}
	failure := c.Failure(executor.Unavailable, "took too long")
	if want := "the shell took too long:\n" + strings.Join(lines, "\n"); failure.Message != want || failure.Code != executor.Unavailable {
		t.Errorf("got %+v", failure)
	}
}

func TestATailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	tail := Tail{Max: 8}
	for _, c := range []struct{ line, want string }{
		{"1234567", "1234567"}, // with its end of line it just fits
		{"ab", "…4567\nab"},
		{"äöüß", "…öüß"}, // half of the first letter is left out
		{"", "…öüß"},
	} {
		tail.Add(c.line)
		if got := tail.String(); got != c.want {
			t.Errorf("after %q: %q, want %q", c.line, got, c.want)
		}
	}
	tail.Reset()
	tail.Add("new")
	if got := tail.String(); got != "new" {
		t.Errorf("after Reset: %q", got)
	}
}
