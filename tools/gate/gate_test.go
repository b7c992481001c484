package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The test binary is gate itself, with a table of a test, where this variable names one.
const testTable = "PYEXEC_GATE_TEST_TABLE"

// leaves is a shell script that leaves a process in a session of its own, whose number it prints.
const leaver = `setsid sleep 1000 >/dev/null 2>&1 & echo left $!; `

var tables = map[string][]Part{
	"leaves": {{Name: "leaver", Tier: Gate, Command: []string{"sh", "-c", leaver + "exit 0"}, Seconds: 1}},
	"hangs":  {{Name: "hanger", Tier: Gate, Command: []string{"sh", "-c", leaver + `echo $! >"$GATE_TEST_FILE"; setsid sleep 1000`}, Seconds: 2}, {Name: "next", Tier: Gate, Command: []string{"true"}, After: []string{"hanger"}, Seconds: 1}},
	"fails":  {{Name: "red", Tier: Gate, Command: []string{"sh", "-c", "echo why; exit 3"}, Seconds: 1}, {Name: "next", Tier: Gate, Command: []string{"true"}, After: []string{"red"}, Seconds: 1}},
	"passes": {{Name: "green", Tier: Gate, Command: []string{"echo", "fine"}, Seconds: 1}},
	"serves": {
		{Name: "server", Tier: Gate, Command: []string{"sh", "-c", "echo GATE_TEST_SERVED=here; echo; cat; echo has ended >served"}, Serves: true, Seconds: 1},
		{Name: "served", Tier: Gate, Command: []string{"sh", "-c", "[ ! -e served ] && echo it is $GATE_TEST_SERVED"}, After: []string{"server"}, Seconds: 1},
	},
	"serves not": {
		{Name: "server", Tier: Gate, Command: []string{"sh", "-c", "echo GATE_TEST_SERVED=here; echo no luck >&2; exit 1"}, Serves: true, Seconds: 1},
		{Name: "served", Tier: Gate, Command: []string{"true"}, After: []string{"server"}, Seconds: 1},
	},
	// Every second run of its test fails, beginning with the first.
	"flaky": {{Name: "flaky", Tier: Gate, Dir: "m", Test: []string{"."}, Env: []string{"GOWORK=off"}, Seconds: 1}},
	// Its test fails after another one only.
	"victim": {{Name: "victim", Tier: Gate, Dir: "m", Test: []string{"./victim"}, Env: []string{"GOWORK=off"}, Seconds: 1}},
	// Each waits for the other one.
	"apart": {
		{Name: "a", Tier: Gate, Command: []string{"sh", "-c", meets}, Env: []string{"ME=a", "OTHER=b"}, Uses: "uids:1", Apart: true, Seconds: 1},
		{Name: "b", Tier: Gate, Command: []string{"sh", "-c", meets}, Env: []string{"ME=b", "OTHER=a"}, Uses: "uids:1", Apart: true, Seconds: 1},
	},
	"missing": {{Name: "missing", Tier: Gate, Command: []string{"/no/such/program"}, Seconds: 1}},
}

// meets is a shell script that waits for another one, and fails if it sees processes or files of this machine.
const meets = `touch $ME; until [ -e $OTHER ]; do sleep 0.05; done; [ $$ -lt 100 ] && [ -z "$(ls -A /dev/shm)$(ls -A /var/tmp)" ] && echo $ME is apart && { setsid sleep 1000 >/dev/null 2>&1 & }`

const flaky = `package m

import (
	"os"
	"testing"
)

func TestFlaky(t *testing.T) {
	t.Run("deep", func(t *testing.T) {
		if os.Remove("passes") != nil {
			_ = os.WriteFile("passes", nil, 0o600)
			t.Error("it was the turn")
		}
	})
	t.Run("other", func(t *testing.T) {})
}
`

const victim = `package victim

import "testing"

var left bool

func TestCulprit(t *testing.T) { left = true }

func TestVictim(t *testing.T) {
	if left {
		t.Error("another one was here")
	}
}
`

func TestMain(m *testing.M) {
	if name := os.Getenv(testTable); name != "" {
		parts = tables[name]
		main()
	}
	os.Exit(m.Run())
}

// gateWith prepares gate with a table, in a folder that looks like the repository.
func gateWith(t *testing.T, table string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	apart, err := os.ReadFile("../apart.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"tools/gate/go.mod": "", "tools/apart.sh": string(apart), "m/go.mod": "module m\n\ngo 1.26\n", "m/m_test.go": flaky, "m/victim/victim_test.go": victim} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "test")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), testTable+"="+table)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestGateIsRedIfAPartIs(t *testing.T) {
	for table, want := range map[string]struct {
		code int
		says []string
	}{
		"passes":     {0, []string{"=== green\n", "s, ok\nfine\n"}},
		"fails":      {1, []string{"s, FAILED\nwhy\nexit status 3\n", "not run\n", "FAILED: red\n"}},
		"serves":     {0, []string{"s, ok\nGATE_TEST_SERVED=here\n", "s, ok\nit is here\n"}},
		"serves not": {1, []string{"no luck\n", "it ended before it was ready", "not run\n", "FAILED: server\n"}},
		"flaky": {1, []string{
			"it was the turn", "evidence: m TestFlaky/deep alone: 10 of 20 runs failed\n", "evidence: m TestFlaky/deep beside 1 busy loops: 10 of 20 runs failed\n",
			"evidence: m TestFlaky/deep in its whole package: 1 of 3 runs failed\n", "FAILED: flaky\n        m TestFlaky/deep\n            ", ": it was the turn",
		}},
		"victim": {1, []string{
			"evidence: m/victim TestVictim alone: 0 of 20 runs failed\n", "evidence: m/victim TestVictim beside 1 busy loops: 0 of 20 runs failed\n",
			"evidence: m/victim TestVictim in its whole package: 3 of 3 runs failed\n",
		}},
		"apart":   {0, []string{"a is apart\n", "b is apart\n", ", which the part left running: "}},
		"missing": {1, []string{"no such file", "FAILED: missing\n"}},
	} {
		if table == "apart" && !canBeApart() {
			t.Log("apart: not here")
			continue
		}
		cmd, out := gateWith(t, table)
		cmd.Env = append(cmd.Env, "LOOPS=1")
		_ = cmd.Run()
		if cmd.ProcessState.ExitCode() != want.code {
			t.Errorf("%s: exit code %d, want %d:\n%s", table, cmd.ProcessState.ExitCode(), want.code, out)
		}
		if _, err := os.Stat(filepath.Join(cmd.Dir, "served")); table == "serves" && err != nil {
			t.Error("the server was not let end:", err)
		}
		for _, text := range want.says {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is missing:\n%s", table, text, out)
			}
		}
	}
}

func TestWhatAPartLeavesRunningEnds(t *testing.T) {
	cmd, out := gateWith(t, "leaves")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var pid int
	_, after, _ := strings.Cut(out.String(), "left ")
	if _, err := fmt.Sscan(after, &pid); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mustBeGone(t, pid)
	// It may not have become sleep yet.
	if !regexp.MustCompile(fmt.Sprintf(`ending process %d, which a part left running: (sh|setsid|sleep) `, pid)).MatchString(out.String()) {
		t.Errorf("it does not say so:\n%s", out)
	}
}

func TestAnInterruptEndsEverything(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := gateWith(t, "hangs")
	cmd.Env = append(cmd.Env, "GATE_TEST_FILE="+fifo)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(fifo) // until the part writes to it
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	line, err := bufio.NewReader(file).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	mustBeGone(t, pid)
	if cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d, want 1", cmd.ProcessState.ExitCode())
	}
	if strings.Contains(out.String(), "=== next") || !strings.Contains(out.String(), "FAILED: hanger") {
		t.Error(out)
	}
}

func mustBeGone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d: %v, want %v", pid, err, syscall.ESRCH)
	}
}
