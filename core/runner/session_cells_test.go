//go:build linux

package runner

import (
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// childThat is Python code that runs code in a child, as subprocess does, and sets ended to the negative signal that ended it.
func childThat(code string) string {
	return "import subprocess, sys\nended = subprocess.run([sys.executable, '-c', " + code + "]).returncode\n"
}

// What a limit does in one Execution of a session is no reason for the end of a later one.
func TestALimitIsNamedByTheExecutionThatHitItOnly(t *testing.T) {
	if len(testConfig(t).Cgroups) == 0 {
		t.Skip("nothing counts the processes that were killed for their memory: there is no control group")
	}
	start := pythonSession()
	start.Limits.MemoryBytes, start.Limits.DiskBytes = 128<<20, 8<<20
	r := openSession(t, start)
	for name, hit := range map[string]string{
		"memory": childThat("'x = [bytes(1 << 20) and b\"x\" * (1 << 20) for _ in range(400)]'") + "assert ended != -9, 'a child was killed'",
		"disk":   "try: open('big', 'wb').write(bytes(16 << 20))\nfinally: import os; full = True",
	} {
		res, rec := r.cell(t, hit)
		if res.Status != executor.StatusFailed || res.HitLimit() == nil || res.SessionState == executor.SessionStateLost {
			t.Errorf("%s: %s %s\n%s", name, describe(res), res.SessionState, rec.stderr())
		}
		r.wants(t, "import os; [os.remove(f) for f in os.listdir()]; None", "", "")
		for _, later := range []Start{cellOf("raise ValueError"), beside("exit 1")} {
			if res, _ := r.run(t, later, RunInput{}); describe(res) != "failed exit 1" {
				t.Errorf("after an Execution that hit its limit of %s: %s", name, describe(res))
			}
		}
	}
}
