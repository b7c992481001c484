//go:build linux

package runner

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/agent"
)

// family starts every kind of child that has ever survived its parent somewhere, and prints their process numbers.
const family = `
import os, signal, sys, time
def spawn(how):
    r, w = os.pipe()
    if os.fork() == 0:
        if "setsid" in how: os.setsid()
        if "deaf" in how: signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if "double" in how:
            if os.fork() > 0: os._exit(0)
        if "silent" in how: os.close(1); os.close(2)
        os.write(w, str(os.getpid()).encode())
        os.close(w)
        while True: time.sleep(1e6)
    os.close(w)
    return os.read(r, 20).decode()
pids = [spawn(h) for h in ("", "setsid", "double", "double setsid deaf", "deaf silent", "double setsid deaf silent")]
print(*pids, flush=True)
`

// livingAs lists the living processes of programs that know their own number as pid: in a box it is not the machine's.
func livingAs(t *testing.T, pid string) (found []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	must(t, err)
	for _, name := range all {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		status := map[string][]string{}
		for line := range strings.Lines(string(raw)) {
			key, value, _ := strings.Cut(line, ":")
			status[key] = strings.Fields(value)
		}
		numbers := status["NSpid"]
		uid, err := strconv.Atoi(status["Uid"][0])
		must(t, err)
		ours := uid >= testUID && uid < testUID+4096 || !isRoot() && uid == os.Getuid()
		if ours && numbers[len(numbers)-1] == pid && status["State"][0] != "Z" {
			n, err := strconv.Atoi(numbers[0])
			must(t, err)
			found = append(found, n)
		}
	}
	return found
}

func TestNobodySurvives(t *testing.T) {
	r := startRunner(t, testConfig(t))
	bare := testConfig(t)
	bare.Cgroups = nil
	if isRoot() {
		bare.UID, bare.GID = testUID+1, testUID+1 // what one sweeps by uid is not the others
	}
	for name, r := range map[string]*testRunner{"with control groups": r, "without": startRunner(t, bare)} {
		for _, c := range []struct{ name, end, want string }{
			{"when the program ends", "", "succeeded exit 0"},
			{"when it dies", "os.kill(os.getpid(), 9)", "failed SIGKILL"},
			{"when its time is over", "time.sleep(1e6)", "timed_out SIGTERM run/exhausted"},
		} {
			t.Run(c.name+" "+name, func(t *testing.T) {
				var limits []said
				if c.end == "time.sleep(1e6)" {
					limits = []said{{"\n", agent.LimitTimeout}}
				}
				res, rec := r.told(t, python(family+c.end), limits...)
				if got := describe(res); got != c.want {
					t.Fatalf("got %q, want %q\n%s", got, c.want, rec.stderr())
				}
				pids := strings.Fields(rec.stdout())
				if len(pids) != 6 {
					t.Fatalf("got %q", rec.stdout())
				}
				for _, pid := range pids {
					for _, left := range livingAs(t, pid) {
						t.Errorf("process %s is alive as %d", pid, left)
					}
				}
			})
		}
	}
}

func TestTheDeathOfTheHostKillsAll(t *testing.T) {
	r := startRunner(t, testConfig(t))
	rec := newRecord()
	seen := make(chan []string, 1)
	rec.emit = func(e executor.Event) error {
		if _, ok := e.Body.(executor.Output); ok && strings.HasSuffix(rec.out[0].String(), "\n") {
			seen <- strings.Fields(rec.out[0].String())
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.Run(context.WithoutCancel(t.Context()), python(family+"time.sleep(1e6)"), RunInput{}, rec)
		done <- err
	}()
	pids := <-seen
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %v", err)
	}
	if err := r.cmd.Wait(); err != nil { // the runner ends when all is clean
		t.Error(err)
	}
	for _, pid := range pids {
		for _, left := range livingAs(t, pid) {
			t.Errorf("process %s is alive as %d", pid, left)
		}
	}
}
