//go:build linux

package runner

import (
	"os"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/agent"
)

func shellSession(program string) SessionStart {
	return SessionStart{
		SessionID: "ctx-test", Language: executor.LanguageShell, Interpreter: []string{program}, Path: "/usr/bin:/bin", Limits: limits(),
	}
}

func TestAShellKeepsItsState(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	r.wants(t, "x=100; arr=(a b); declare -A m=([k]=v); f() { echo \"f $1\"; }; alias ll='echo aliased'; mkdir d; cd d", "", "")
	r.wants(t, "echo $((x + 1)) ${arr[1]} ${m[k]} ${PWD##*/}; f 2; ll", "101 b v d\nf 2\naliased\n", "")
	res, rec := r.cell(t, "false")
	if describe(res) != "failed exit 1" || rec.stderr() != "" {
		t.Error(describe(res), rec.stderr())
	}
	r.wants(t, "echo $?", "1\n", "")
}

func TestExitEndsACellAndNotTheShell(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	r.wants(t, "x=1; f() { exit 3; }; readonly r=5", "", "")
	for code, want := range map[string]string{
		"f; echo no": "failed exit 3", "exit": "succeeded exit 0", "set -e; false; echo no": "failed exit 1", "builtin exit 9": "failed exit 9",
		"false; exit": "failed exit 1", "(exit 4)": "failed exit 4", "(true; exit)": "succeeded exit 0", "(false; exit) || exit 6": "failed exit 6",
		"set -o posix; exit 4": "failed exit 4", "break 3; exit 8": "succeeded exit 0", "if": "failed exit 2", "${nope:?gone}": "failed exit 1",
	} {
		res, rec := r.cell(t, code)
		if describe(res) != want || res.SessionState != executor.SessionStateKept || rec.stdout() != "" {
			t.Errorf("%q: %s %q %q", code, describe(res), res.SessionState, rec.stdout())
		}
		r.wants(t, "echo $x $r; set +eo posix; echo err >&2", "1 5\n", "")
	}
}

func TestAShellIsInterrupted(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	r.wants(t, "x=1; sleep 1000000 & job=$!", "", "")
	for _, code := range []string{
		"sh -c 'echo up; exec sleep 1000000'; echo no", "sh -c 'echo up; exec sleep 1000000' | cat; echo no", "echo up; while :; do :; done",
		"echo up; read line < <(sleep 1000000)", "echo up; wait",
	} {
		res, rec := r.told(t, cellOf(code), said{"up", agent.LimitTimeout})
		if res.Status != executor.StatusTimedOut || res.SessionState != executor.SessionStateKept || rec.stdout() != "up\n" {
			t.Errorf("%q: %s %q %q", code, describe(res), res.SessionState, rec.stdout())
		}
	}
	r.wants(t, "kill -0 $job && echo $x", "1\n", "") // what ran in the background goes on
}

func TestAShellReadsStandardInput(t *testing.T) {
	for _, program := range []string{"/bin/bash", "/bin/dash"} {
		if _, err := os.Stat(program); err != nil {
			t.Logf("SKIPPED: no %s here", program)
			continue
		}
		r := openSession(t, shellSession(program))
		for _, line := range []string{"one", "two"} {
			res, rec := r.run(t, cellOf("read a; cat /dev/stdin; cat </dev/stdin; echo \"[$a]\""), RunInput{Stdin: strings.NewReader(line + "\nrest\n")})
			if rec.stdout() != "rest\n["+line+"]\n" {
				t.Error(program, describe(res), rec.stdout(), rec.stderr())
			}
		}
		r.wants(t, "cat", "", "")
	}
}

func TestAShellWithoutBashIsStartedAnewWhenItEnds(t *testing.T) {
	if _, err := os.Stat("/bin/dash"); err != nil {
		t.Skip("SKIPPED: no dash here")
	}
	r := openSession(t, shellSession("/bin/dash"))
	r.wants(t, "x=1; f() { echo 'f\\n'; }", "", "")
	r.wants(t, "f; echo \"$x \\\\ 'q'\"\necho two", "f\n\n1 \\ 'q'\ntwo\n", "")
	res, rec := r.cell(t, "echo bye; exit 3")
	if describe(res) != "failed exit 3" || res.SessionState != executor.SessionStateRestarted || rec.stdout() != "bye\n" {
		t.Error(describe(res), res.SessionState, rec.stdout())
	}
	r.wants(t, "echo \"[$x]\"", "[]\n", "")
}

// A shell that ends and cannot keep its state says so; it is not said to have kept it.
func TestAShellThatCannotKeepItsState(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	// Its place is taken from it, and then both.
	r.wants(t, "x=1; mkdir $TMPDIR/.pyexec-state; TMPDIR=/nowhere", "", "")
	if res, rec := r.cell(t, "set -e; false"); describe(res) != "failed exit 1" || res.SessionState != executor.SessionStateKept || rec.stderr() != "" {
		t.Errorf("%s %q %q", describe(res), res.SessionState, rec.stderr())
	}
	r.wants(t, "echo $x $TMPDIR; chmod 500 ~", "1 /nowhere\n", "")
	if os.Geteuid() == 0 {
		r.wants(t, "chmod 700 ~; mkdir ~/.pyexec-state", "", "")
	}
	res, rec := r.cell(t, "set -e; false")
	if describe(res) != "failed exit 1" || res.SessionState != executor.SessionStateLost || !strings.Contains(rec.stderr(), "to keep its state") {
		t.Errorf("%s %q %q", describe(res), res.SessionState, rec.stderr())
	}
}

// An environment in which nothing can be executed does not keep a shell that ends from executing itself.
func TestAShellWithALargeEnvironmentKeepsItsState(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	r.wants(t, "x=1; export y=2 big=$(head -c 200000 /dev/zero | tr '\\0' a)", "", "")
	if res, rec := r.cell(t, "set -e; ls"); describe(res) != "failed exit 126" || res.SessionState != executor.SessionStateKept {
		t.Errorf("%s %q %q", describe(res), res.SessionState, rec.stderr())
	}
	r.wants(t, "echo $x ${#big}; unset big; sh -c 'echo $y'", "1 200000\n2\n", "")
}

// exec of what is not there ends no interactive shell.
func TestAnExecThatFailsEndsNoShell(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	res, rec := r.cell(t, "x=1; exec no-such-program; echo after $?")
	if describe(res) != "succeeded exit 0" || rec.stdout() != "after 127\n" {
		t.Errorf("%s %q %q", describe(res), rec.stdout(), rec.stderr())
	}
	r.wants(t, "echo $x", "1\n", "")
}

// Commands that failed are no jobs; what runs in the background is, and its end can be asked for.
func TestAShellsJobs(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	if res, _ := r.cell(t, "ls /nope; /bin/false"); describe(res) != "failed exit 1" {
		t.Error(describe(res))
	}
	r.wants(t, "jobs", "", "")
	if _, rec := r.run(t, cellOf("read line; jobs"), RunInput{Stdin: strings.NewReader("line\n")}); rec.stdout() != "" {
		t.Errorf("with standard input: %q", rec.stdout())
	}
	if res, _ := r.cell(t, "set -e; false"); describe(res) != "failed exit 1" {
		t.Error(describe(res))
	}
	r.wants(t, "jobs", "", "")
	r.wants(t, "sh -c 'exit 7' & job=$!", "", "")
	r.wants(t, "wait $job; echo $?", "7\n", "")
}
