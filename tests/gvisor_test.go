package tests

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

// gvisorEnv makes the program under test use the docker backend with gVisor's kernel below programs.
func gvisorEnv(t *testing.T, more ...string) []string {
	t.Helper()
	return slices.Concat([]string{"PYEXEC_BACKENDS_DOCKER_RUNTIME=" + dockertest.GVisor(t)}, more)
}

// TestARunOnGVisor is the CLI by itself, without a server.
func TestARunOnGVisor(t *testing.T) {
	needtest.Long(t, "the same on runc")
	env := dockerEnv(t, gvisorEnv(t)...)
	script := "import os, sys\nprint(os.path.exists('/proc/sentry-meminfo'), os.getuid(), sys.stdin.read())\nos.makedirs('out')\nopen('out/file', 'w').write('made')\nsys.exit(3)\n"
	dir := tree(t, file{"main.py", script}, file{"in", "given"})
	out := t.TempDir()
	o := cli(t, env, nil, "run", dir, "--stdin", dir+"/in", "--output", out, "--artifact", "out/*")
	if o.code != 3 || o.stdout != "True 1000 given\n" {
		t.Errorf("%+v", o)
	}
	for name, want := range map[string]int{"import time; time.sleep(600)": 124, "import os; os.kill(os.getpid(), 15)": 143} {
		if o := cli(t, env, strings.NewReader(name), "run", "--timeout", "2"); o.code != want {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestTheShellOfMCPOnGVisor is the specification's sandbox: commands share files as long as their client's session lives, and
// a timeout ends all that one has started.
func TestTheShellOfMCPOnGVisor(t *testing.T) {
	needtest.Long(t, "the same on runc")
	env := gvisorEnv(t, "PYEXEC_MCP_TOOLSETS=shell,contexts")
	address := freeAddress(t)
	s := startDocker(t, slices.Concat(env, []string{"PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=" + address})...)
	c := newMCPCaller(t, "http://"+address+"/mcp", "")
	execute := func(args map[string]any) map[string]any {
		t.Helper()
		fields, text, isError := c.call("execute", args)
		if isError || fields == nil {
			t.Fatalf("%v: %q", args, text)
		}
		return fields
	}
	for _, step := range []struct {
		args           map[string]any
		stdout, stderr string
		code           float64
	}{
		{map[string]any{"command": "test -e /proc/sentry-meminfo && id -u && echo kept > file"}, "1000\n", "", 0},
		{map[string]any{"command": "cat", "args": []string{"file"}}, "kept\n", "", 0},
		{map[string]any{"command": "wc -c; echo done >&2; exit 3", "stdin": "hello"}, "5\n", "done\n", 3},
		{map[string]any{"command": "echo", "args": []string{"a b", "$HOME"}}, "a b $HOME\n", "", 0},
	} {
		got := execute(step.args)
		if got["stdout"] != step.stdout || got["stderr"] != step.stderr || got["exit_code"] != step.code || got["timed_out"] != false {
			t.Errorf("%v: %v", step.args, got)
		}
	}
	late := execute(map[string]any{"command": "(trap '' TERM; while true; do sleep 1; done) & echo begun; sleep 600 & wait", "timeout_ms": 3000})
	if late["timed_out"] != true || late["stdout"] != "begun\n" {
		t.Errorf("%v", late)
	}
	left := execute(map[string]any{"command": "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done | grep -c '^sleep' || true; cat file"})
	if left["stdout"] != "0\nkept\n" {
		t.Errorf("what a timeout leaves: %v", left)
	}
	// A shell cannot end what holds it.
	if got := execute(map[string]any{"command": "kill -9 1 || echo refused; cat file"}); got["stdout"] != "refused\nkept\n" {
		t.Errorf("%v", got)
	}
	if _, text, isError := c.call("execute", map[string]any{"command": " "}); !isError || !strings.Contains(text, "Error: command: empty") {
		t.Errorf("an empty command: %v %q", isError, text)
	}
	if _, text, isError := c.call("execute", map[string]any{"command": "/no/such/program", "args": []string{}}); !isError || !strings.Contains(text, "Error: execute: spawn failed") {
		t.Errorf("no command: %v %q", isError, text)
	}
	c.leave()
	awaittest.Until(t, "the end of the sandbox", func() bool {
		return !slices.ContainsFunc(s.get("/api/v1/sessions").json(t)["sessions"].([]any), func(x any) bool { return x.(map[string]any)["status"] != "closed" })
	})
}

// leave ends the client's session, and with it its sandbox.
func (c *mcpCaller) leave() {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodDelete, c.url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", c.session)
	r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		c.t.Errorf("the session is not ended: %s", resp.Status)
	}
}
