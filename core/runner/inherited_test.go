//go:build linux

package runner

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// A server that its service manager protects from the kernel's choice must not pass that on: programs would outlive the host's processes.
func TestAProgramIsNoHarderToKillThanOtherProcesses(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	must(t, err)
	scores := map[string]string{"0": "0", "300": "300"}
	if err := exec.Command("/bin/sh", "-c", "echo -1 >/proc/self/oom_score_adj").Run(); err == nil { // it takes CAP_SYS_RESOURCE
		scores["-1"] = "0"
	} else {
		t.Logf("this process may not lower its score: %v", err)
	}
	for score, want := range scores {
		cmd := exec.Command("/bin/sh", "-c", `echo `+score+` >/proc/self/oom_score_adj && exec "$0" runner --fd 3`, exe) //nolint:gosec // ourselves
		r, host := startCommand(t, nil, cmd)
		r.Conn, err = NewConn(host, testConfig(t))
		must(t, err)
		res, rec := r.run(t, shell("cat /proc/self/oom_score_adj"), RunInput{})
		if got := strings.TrimSpace(rec.stdout()); res.Status != executor.StatusSucceeded || got != want {
			t.Errorf("of a server with %s a program has %q, %s", score, got, rec.stderr())
		}
		must(t, r.Close())
	}
}

// The names of control groups tell of the host: its services, its containers, its users.
func TestAProgramSeesNoNameOfTheHostsGroups(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	needtest.Need(t, cfg.Box, needtest.Box, "there is no box")
	needtest.Need(t, len(cfg.Cgroups) > 0, needtest.Cgroup, "there are no control groups")
	r := startRunner(t, cfg)
	known := regexp.MustCompile(`^(/|(/\.\.)+(/run-[0-9]+)?)$`)
	for _, start := range []Start{shell("cat /proc/self/cgroup /proc/1/cgroup"), python(`print(open("/proc/self/cgroup").read() + open("/proc/1/cgroup").read(), end="")`)} {
		start.Fork = "owner"
		for range 4 { // the later ones are forks
			res, rec := r.run(t, start, RunInput{})
			if res.Status != executor.StatusSucceeded || rec.stdout() == "" {
				t.Fatalf("%s %s", describe(res), rec.stderr())
			}
			for line := range strings.Lines(rec.stdout()) {
				if name := strings.SplitN(strings.TrimSpace(line), ":", 3)[2]; !known.MatchString(name) {
					t.Errorf("a program sees %q", line)
				}
			}
		}
	}
}
