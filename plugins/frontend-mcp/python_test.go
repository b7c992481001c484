package mcpfrontend

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestRunScriptWithDependencies(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	a := c.call("run_script_with_dependencies", map[string]any{
		"script_content": "print hi\nprint-err oh\nprint-args\nexit 3", "python_version": "3.12", "dependencies": []string{"probe==1.2.3"}, "args": []string{"a", "b c"},
	})
	f := a.fields
	if a.isError || f["stdout"] != "hi\na\nb c\n" || f["stderr"] != "oh\n" || f["exit_code"] != 3.0 || f["execution_strategy"] != "uv-run" {
		t.Errorf("%v", a)
	}
	if deps, _ := f["resolved_dependencies"].([]any); len(deps) == 0 || !strings.HasPrefix(f["python_version_used"].(string), "3.12") {
		t.Errorf("%v", f)
	}
	if a = c.call("run_script_with_dependencies", map[string]any{"script_content": "signal KILL", "python_version": "3.12"}); a.fields["exit_code"] != -9.0 {
		t.Errorf("a death by signal: %v", a)
	}
	a = c.outrun("print-err x\nhang", 2)
	if a.isError || a.fields["stderr"] != "x\n[TIMEOUT]" || a.fields["exit_code"] != -15.0 {
		t.Errorf("a timeout: %v", a)
	}
	long := c.call("run_script_with_dependencies", map[string]any{"script_content": "flood stdout 200KB", "python_version": "3.12"})
	if text := long.fields["stdout"].(string); long.fields["stdout_truncated"] != true || long.fields["stdout_bytes"] != 204800.0 ||
		len(text) > 41_000 || !strings.Contains(text, "164800 of 204800 bytes left out; get_job_output(job_id=") {
		t.Errorf("%d bytes of output, %v of %v", len(text), long.fields["stdout_truncated"], long.fields["stdout_bytes"])
	}
	b := c.call("benchmark_script", map[string]any{"script_content": "busy 30ms", "python_version": "3.12", "sample_interval": 0.01})
	if b.isError || b.fields["wall_time_seconds"] == 0.0 || b.fields["peak_rss_mb"] == nil || b.fields["cpu_time_seconds"] == nil {
		t.Errorf("%v", b)
	}
}

func TestAFolderIsSentWhereItCannotBeUsedInPlace(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tool.py", "cat data/x\nexists .git/config\nexists out")
	write("data/x", "content\n")
	write(".git/config", "secret")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.Directories = []string{filepath.Dir(dir)} })
	for _, path := range []string{"tool.py", filepath.Join(dir, "tool.py")} {
		a := c.call("run_script_in_dir", map[string]any{"directory": dir, "script_path": path, "python_version": "3.12"})
		if a.isError || a.fields["stdout"] != "content\nfalse\nfalse\n" {
			t.Errorf("%s: %v", path, a)
		}
	}
	write("pyproject.toml", "[project]\ndependencies = [\"probe==1.2.3\"]\n")
	a := c.call("run_script_in_dir", map[string]any{"directory": dir, "script_content": "cat data/x\nimport probe"})
	if a.isError || a.fields["stdout"] == "" || a.fields["exit_code"] != 0.0 {
		t.Errorf("with the project's packages: %v", a)
	}
	// requirements.txt and the script's own metadata count before the project, as they do for every upload.
	write("pyproject.toml", "broken")
	write("requirements.txt", "probe==1.2.3\n")
	a = c.call("run_script_in_dir", map[string]any{"directory": dir, "script_content": "import probe"})
	if a.isError || a.fields["exit_code"] != 0.0 {
		t.Errorf("with requirements.txt: %v", a)
	}
	write("requirements.txt", "absent==9\n")
	write("own.py", "# /// script\n# dependencies = ['probe==1.2.3']\n# requires-python = '<3.13'\n# ///\nimport probe")
	a = c.call("run_script_in_dir", map[string]any{"directory": dir, "script_path": "own.py"})
	if a.isError || a.fields["exit_code"] != 0.0 {
		t.Errorf("with the script's own packages: %v", a)
	}
	write("own.py", "# /// script\n# requires-python = '<3.0'\n# ///\n")
	a = c.call("run_script_in_dir", map[string]any{"directory": dir, "script_path": "own.py"})
	if !a.isError || !strings.Contains(a.text, "requires Python <3.0") {
		t.Errorf("with a Python that nobody has: %v", a)
	}
	a = c.call("run_script_in_dir", map[string]any{"directory": dir, "script_content": "cat data/x", "use_uv": false})
	if a.isError || a.fields["execution_strategy"] != "system-python" {
		t.Errorf("with the system's python: %v", a)
	}
}

// elsewhere is the Service of a remote server. It lacks the fields that the HTTP API does not have.
type elsewhere struct{ executor.Service }

func (e elsewhere) Get(ctx context.Context, id string) (executor.Execution, error) {
	x, err := e.Service.Get(ctx, id)
	x.Owner, x.Spec, x.LastSeq = "", executor.Spec{}, 0
	return x, err
}

func (e elsewhere) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	x, err := e.Service.Cancel(ctx, id)
	return executor.Execution{ID: x.ID, Status: x.Status}, err
}

func (e elsewhere) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		for event, err := range e.Service.Events(ctx, id, after) {
			event.Time = time.Time{}
			if !yield(event, err) {
				return
			}
		}
	}
}

func TestExecute(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.Shell.MaxOutputBytes = 10 })
	run := func(args map[string]any) answer { return c.call("execute", args) }
	a := run(map[string]any{"command": "fake", "args": []string{"-c", "print-err oh\nwrite äöüß\nexit 7"}, "stdin": "x"})
	if f := a.fields; a.isError || f["exit_code"] != 7.0 || f["stderr"] != "oh\n" || f["stdout"] != "äöü" || f["stdout_truncated"] != true || f["stderr_truncated"] != false || f["timed_out"] != false {
		t.Errorf("%v", f)
	}
	if a = run(map[string]any{"command": "fake", "args": []string{"-c", "hang"}, "timeout_ms": 200}); a.isError || a.fields["timed_out"] != true || a.fields["exit_code"] != -15.0 {
		t.Errorf("%v", a)
	}
	if a = run(map[string]any{"command": "fake", "args": []string{"-c", "read-stdin"}, "stdin": "in"}); a.fields["stdout"] != "in" {
		t.Errorf("%v", a)
	}
}

func TestWithoutSessionsEveryCommandHasASandboxOfItsOwn(t *testing.T) {
	can := fake.DefaultCapabilities()
	c := serveTest(t, newService(t, fake.Options{Capabilities: &can}), nil)
	if a := c.call("execute", map[string]any{"command": "fake", "args": []string{"-c", "write-file f x\nexists f"}}); a.fields["stdout"] != "true\n" {
		t.Errorf("%v", a)
	}
	if a := c.call("execute", map[string]any{"command": "fake", "args": []string{"-c", "exists f"}}); a.fields["stdout"] != "false\n" {
		t.Errorf("%v", a)
	}
	result, _ := c.request("tools/list", nil)
	for _, tool := range result["tools"].([]any) {
		if tool.(map[string]any)["name"] == "run_code" {
			t.Error("a tool is listed that the backend cannot serve")
		}
	}
}

func TestEveryToolSaysWhatItIs(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	result, _ := c.request("tools/list", nil)
	want := []string{
		"benchmark_script", "create_context", "execute", "get_job_output", "install_packages", "interrupt_context", "job_cleanup", "kill_job", "list_allowed",
		"list_contexts", "list_running_jobs", "read_context_file", "restart_context", "run_code", "run_script", "run_script_in_dir", "run_script_in_dir_async",
		"run_script_with_dependencies", "run_script_with_dependencies_async", "stop_context", "write_context_file",
	}
	var got []string
	for _, tool := range result["tools"].([]any) {
		m := tool.(map[string]any)
		got = append(got, m["name"].(string))
		notes, _ := m["annotations"].(map[string]any) // the protocol's defaults are left out
		input, _ := m["inputSchema"].(map[string]any)
		output, _ := m["outputSchema"].(map[string]any)
		only := strings.HasPrefix(m["name"].(string), "list_") || m["name"] == "get_job_output" || m["name"] == "read_context_file"
		if notes == nil || (notes["readOnlyHint"] == true) != only || len(m["description"].(string)) < 30 || input["type"] != "object" || output["type"] != "object" {
			t.Errorf("%v", m)
		}
		if strings.Contains(text(m), `"null"`) {
			t.Errorf("%s allows null: %s", m["name"], text(m))
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("tools are %v", got)
	}
}

func TestATailKeepsBothEnds(t *testing.T) {
	t.Parallel()
	for _, step := range []int{1, 3, 7, 100} {
		in := strings.Repeat("0123456789", 10)
		w := tail{limit: 20}
		for rest := in; rest != ""; {
			n := min(step, len(rest))
			w.add([]byte(rest[:n]))
			rest = rest[n:]
		}
		if got := w.text(" (x)"); got != "0123456789\n[… 80 of 100 bytes left out (x) …]\n0123456789" {
			t.Errorf("step %d: %q", step, got)
		}
	}
	short := tail{limit: 20}
	short.add([]byte("exactly twenty bytes"))
	if short.truncated() || short.text("") != "exactly twenty bytes" {
		t.Errorf("%q", short.text(""))
	}
}

func TestConfigurationProblemsAreAllNamed(t *testing.T) {
	t.Parallel()
	_, err := parseConfig("mcp", []byte(`{"toolsets":["perl"],"directories":["x"],"network":{"y":true},"http":{"bind":"z","path":"p","max_body_bytes":0,"max_sessions":0,"session_idle_seconds":0},"max_result_bytes":1,"shell":{"max_output_bytes":0,"log_output_bytes":-1}}`))
	if executor.CodeOf(err) != executor.Invalid {
		t.Fatal(err)
	}
	for _, key := range []string{"toolsets[0]", "directories[0]", "network.y", "http.bind", "http.path", "http.max_body_bytes", "http.max_sessions", "http.session_idle_seconds", "max_result_bytes", "shell.max_output_bytes", "shell.log_output_bytes"} {
		if !strings.Contains(err.Error(), "mcp."+key+": ") {
			t.Errorf("%s is not named: %v", key, err)
		}
	}
	for _, bad := range []string{`{"nonsense":1}`, `{"toolsets":7}`, `{"test_fixtures":true,"http":{"bind":"0.0.0.0:1"}}`, `{"http":{"max_buffered_bytes":1000}}`, `{"http":{"max_sessions_per_owner":-1}}`} {
		if _, err := parseConfig("mcp", []byte(bad)); executor.CodeOf(err) != executor.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestOutputThatTheServerHasCutIsSaidToBeCut(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}, func(o *engine.Options) { o.Limits.Default.OutputBytes = 2000 }), nil)
	f := c.call("run_script_with_dependencies", map[string]any{"script_content": "flood stdout 4KB", "python_version": "3.12"}).fields
	if f["stdout_truncated"] != true || f["stderr_truncated"] != false {
		t.Errorf("%v", f)
	}
	f = c.call("get_job_output", map[string]any{"job_id": f["job_id"], "stdout_offset": 0}).fields
	if f["stdout_truncated"] != true || f["stderr_truncated"] != false || len(f["stdout"].(string)) != 2000 || f["stdout_bytes"] != 4096.0 {
		t.Errorf("%v", f)
	}
}

func TestTheDefaultsOfArgumentsAreInTheirSchemas(t *testing.T) {
	t.Parallel()
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.Toolsets = []string{ToolsetPython, ToolsetContexts} })
	list, _ := c.request("tools/list", nil)
	seen := map[string]map[string]any{}
	for _, listed := range list["tools"].([]any) {
		tool := listed.(map[string]any)
		name := tool["name"].(string)
		schema, _ := tool["inputSchema"].(map[string]any)
		seen[name], _ = schema["properties"].(map[string]any)
	}
	for tool, properties := range defaults {
		for name, want := range properties {
			property, _ := seen[tool][name].(map[string]any)
			got, said := property["default"]
			if n, isNumber := want.(int); isNumber {
				want = float64(n)
			}
			if !said || got != want {
				t.Errorf("%s: the default of %s is %v, want %v", tool, name, got, want)
			}
		}
	}
}
