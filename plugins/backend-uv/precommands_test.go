package uvbackend

import (
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

const whatIsThere = "import os; print(open('made').read() == 'made\\n', open('who').read() == f'{os.getuid()}\\n', open('where').read() == os.getcwd() + '\\n')"

func TestPreCommandsRunInTheWorkFolderAsTheProgramDoes(t *testing.T) {
	b := openBackend(t, nil)
	spec := executor.Spec{Code: whatIsThere, PreCommands: []string{" ", "sleep 600 & id -u > who", "pwd > where; echo made > made; echo said; echo said >&2"}}
	out, result := succeeds(t, b, spec)
	if out != "True True True\n" || result.StderrBytes > 0 {
		t.Errorf("the program printed %q, and %d bytes to stderr", out, result.StderrBytes)
	}
	// The next program has nothing of it.
	if out, _ := succeeds(t, b, executor.Spec{Code: "import os; print(os.listdir())"}); out != "['main.py']\n" {
		t.Errorf("the next program finds %s", out)
	}
}

func TestAPreCommandThatFailsIsAResultWithItsOutput(t *testing.T) {
	b := openBackend(t, nil)
	for command, want := range map[string]string{
		"echo out; echo err >&2; exit 7": "pre_commands[1] \"echo out; echo err >&2; exit 7\" ended with exit code 7:\n",
		"kill -KILL $$":                  `was ended by SIGKILL`,
		"touch /usr/bin/x":               "The docker backend runs them as root",
		"apt update -y":                  "The docker backend runs them as root",
		"sleep 600":                      "was stopped at the timeout of ",
	} {
		asked, j := job(executor.Spec{Code: "print(1)", PreCommands: []string{"true", command}}), &journal{}
		if command == "sleep 600" {
			asked.Limits.Timeout = 50 * time.Millisecond
		}
		result, err := b.Run(t.Context(), asked, j)
		if err != nil {
			t.Fatal(err)
		}
		f := result.Failure
		if result.Status != executor.StatusFailed || f == nil || f.Phase != executor.PhasePrepare || f.Code != executor.Invalid || f.Field != "pre_commands" || !strings.Contains(f.Message, want) {
			t.Errorf("%s: %+v, %+v, want %q", command, result, f, want)
		}
		if j.started() != nil || j.text(executor.Stdout) != "" {
			t.Errorf("%s: the program has started, and written %q", command, j.text(executor.Stdout))
		}
	}
}

// A command may go on after one of its processes was killed for its memory. That is no end of the command, nor of the program.
func TestWhatPreCommandsTolerateIsNotTheProgramsEnd(t *testing.T) {
	b := openBackend(t, nil)
	needtest.Need(t, b.can.Memory, needtest.Cgroup, "nothing bounds memory")
	for code, want := range map[string]executor.Status{"print(1)": executor.StatusSucceeded, "raise SystemExit(3)": executor.StatusFailed} {
		asked := job(executor.Spec{Code: code, PreCommands: []string{"python3 -c 'import mmap; mmap.mmap(-1, 1 << 30, flags=0x8022)' || true", "true"}})
		asked.Limits.MemoryBytes = 128 << 20
		result, err := b.Run(t.Context(), asked, &journal{})
		if err != nil || result.Status != want || result.Failure != nil {
			t.Errorf("%s: %+v, %v, want %s", code, result, err, want)
		}
	}
}

func TestPreCommandsOfASessionPrepareItsFolder(t *testing.T) {
	b := openBackend(t, nil)
	s := asked("ctx-pre", executor.Spec{PreCommands: []string{"echo made > made", "id -u > who; pwd > where"}})
	if _, err := b.OpenSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	out, _ := succeeds(t, b, executor.Spec{Session: s.ID, Code: whatIsThere})
	if out != "True True True\n" {
		t.Errorf("the session printed %q", out)
	}
	s = asked("ctx-bad", executor.Spec{PreCommands: []string{"echo why; exit 3"}})
	if _, err := b.OpenSession(t.Context(), s); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "ended with exit code 3:\nwhy") {
		t.Errorf("a command that fails: %v", err)
	}
}
