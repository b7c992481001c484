//go:build linux

package runner

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/agent"
)

func TestACommandHasTheSessionsEnvironment(t *testing.T) {
	start := pythonSession()
	start.Env = map[string]string{"OF_THE_SESSION": "yes"}
	r := openSession(t, start)
	command := beside(`echo "$OF_THE_SESSION $PATH $OF_THE_START"; pwd; cat`)
	command.Env, command.Path, command.Directory = map[string]string{"OF_THE_START": "no"}, "/nowhere", "/"
	res, rec := r.run(t, command, RunInput{})
	r.wants(t, "import os; os.getcwd()", "", "'"+lastLine(rec.stdout())+"'")
	if want := "yes /usr/bin:/bin \n"; describe(res) != "succeeded exit 0" || len(rec.stdout()) < len(want) || rec.stdout()[:len(want)] != want {
		t.Errorf("%s, %q", describe(res), rec.stdout())
	}
}

func lastLine(s string) string {
	for i := len(s) - 2; i >= 0; i-- {
		if s[i] == '\n' {
			return s[i+1 : len(s)-1]
		}
	}
	return s
}

// A restart does not wait for the grace of a Command that stays.
func TestARestartWaitsForNoCommand(t *testing.T) {
	r := openSession(t, pythonSession())
	start := beside("trap '' TERM; echo up; while :; do sleep 0.01; done")
	ended := make(chan error, 1)
	rec := newRecord()
	rec.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindOutput {
			go func() {
				err := r.RestartSession(awaittest.Context(t), false)
				if err != nil {
					_ = r.Close() // so that this test ends
				}
				ended <- err
			}()
		}
		return nil
	}
	res, err := r.Run(t.Context(), start, RunInput{}, rec)
	if err != nil || describe(res) != "killed SIGKILL" {
		t.Errorf("%s, %v", describe(res), err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.wants(t, "1 + 1", "", "2")
}

// What an earlier cell has started is none of an interrupted cell's, also where it does not ignore the signal.
func TestAnInterruptSparesWhatWasStartedBefore(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	r.wants(t, `python3 -c '
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
open("up", "w").close()
time.sleep(1e6)' & job=$!; while [ ! -e up ]; do sleep 0.01; done; sleep 0.1`, "", "")
	res, _ := r.told(t, cellOf("echo up; sleep 1000000"), said{"up", agent.LimitTimeout})
	if res.Status != executor.StatusTimedOut || res.SessionState != executor.SessionStateKept {
		t.Errorf("%s %q", describe(res), res.SessionState)
	}
	r.wants(t, "kill -0 $job && echo alive", "alive\n", "")
}

// The interpreter outlives a Command that has to be killed, with control groups and without.
func TestACommandThatIsKilledLeavesTheInterpreter(t *testing.T) {
	for name, cgroups := range map[string]bool{"with control groups": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			if !cgroups {
				cfg.Cgroups = nil
			}
			r := openSessionWith(t, cfg, pythonSession())
			r.wants(t, "x = 5", "", "")
			start := beside("trap '' TERM; sleep 1000000 & echo up; while :; do sleep 0.01; done")
			res, _ := r.told(t, start, said{"up", agent.LimitTimeout}, said{"up", agent.LimitGrace})
			if got := describe(res); got != "timed_out SIGKILL run/exhausted" {
				t.Error(got)
			}
			if res.CPU < 0 {
				t.Errorf("its CPU time is %s", res.CPU)
			}
			r.wants(t, "x", "", "5")
		})
	}
}

// A file that comes between two Executions is new to the second.
func TestAFileThatComesBetweenTwoExecutionsIsNew(t *testing.T) {
	r := openSession(t, pythonSession())
	changed := func(code string) string {
		start := cellOf(code)
		start.FilesChanged = true
		res, _ := r.run(t, start, RunInput{})
		var names string
		for _, f := range res.FilesChanged {
			names += f.Path + " "
		}
		return names
	}
	if got := changed("open('first', 'w').close()"); got != "first " {
		t.Errorf("the first made %q", got)
	}
	if _, err := r.WriteFile(t.Context(), executor.File{Path: "between", SizeBytes: 1}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if got := changed("open('second', 'w').close()"); got != "between second " {
		t.Errorf("the second finds %q", got)
	}
}
