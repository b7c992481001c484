//go:build linux

package runner

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// A path that was added stays for the interpreters that follow, and for Commands, before what was there.
func TestAPathThatIsAddedStays(t *testing.T) {
	start := pythonSession()
	start.Env = map[string]string{"PYTHONPATH": "/old"}
	r := openSession(t, start)
	for _, dir := range []string{"/first", "/second"} {
		if err := r.AddPath(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	has := "import sys; [dir in sys.path for dir in ('/first', '/second')]"
	r.wants(t, has, "", "[True, True]")
	if err := r.RestartSession(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.wants(t, has, "", "[True, True]")
	if res, rec := r.run(t, beside("echo $PYTHONPATH"), RunInput{}); rec.stdout() != "/second:/first:/old\n" {
		t.Errorf("%s %q", describe(res), rec.stdout())
	}
}

func TestWhatASessionDoesNotHaveIsRefused(t *testing.T) {
	r := openSession(t, shellSession("/bin/bash"))
	if list, err := r.Variables(t.Context()); executor.CodeOf(err) != executor.Unimplemented {
		t.Errorf("variables of a shell: %v, %v", list, err)
	}
	if err := r.AddPath(t.Context(), "/x"); executor.CodeOf(err) != executor.Unimplemented {
		t.Errorf("a path of a shell: %v", err)
	}
	if res, _ := r.run(t, cellOf("true"), RunInput{Workspace: strings.NewReader("")}); describe(res) != "failed prepare/invalid" {
		t.Errorf("a workspace: %s", describe(res))
	}
	if res, _ := r.run(t, shell("exit 0"), RunInput{}); describe(res) != "failed prepare/conflict" {
		t.Errorf("an Execution that is not in the session: %s", describe(res))
	}
	r.wants(t, "echo on", "on\n", "")
}
