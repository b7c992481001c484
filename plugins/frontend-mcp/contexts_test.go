package mcpfrontend

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestAContextKeepsItsStateUntilItIsStopped(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	made := c.call("create_context", map[string]any{"name": "first", "description": "a test"})
	id, _ := made.fields["context_id"].(string)
	if !regexp.MustCompile(`^ctx-[0-9a-f-]{36}$`).MatchString(id) || made.fields["status"] != "active" || made.fields["language"] != "python" ||
		made.fields["name"] != "first" || made.fields["description"] != "a test" || made.fields["message"] != "Python context created successfully" {
		t.Fatalf("%v", made)
	}
	if created, _ := made.fields["created_at"].(string); !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).MatchString(created) {
		t.Errorf("created_at is %q", created)
	}
	run := func(code string) answer { return c.call("run_code", map[string]any{"code": code, "context_id": id}) }
	if a := run("set x 100\nprint stored"); a.isError || a.fields["success"] != true || a.fields["stdout"] != "stored\n" || a.fields["execution_time"] == nil {
		t.Errorf("%v", a)
	}
	if a := run("value x"); a.fields["result"] != "100" {
		t.Errorf("%v", a)
	}
	if a := run("raise oh"); a.isError || a.fields["success"] != false || !strings.Contains(a.fields["stderr"].(string), "RuntimeError: oh") {
		t.Errorf("%v", a)
	}
	second := c.call("create_context", map[string]any{"name": "second"})
	list := c.call("list_contexts", nil)
	contexts, _ := list.fields["contexts"].([]any)
	if list.fields["total"] != 2.0 || len(contexts) != 2 || contexts[0].(map[string]any)["context_id"] != second.fields["context_id"] {
		t.Errorf("not the newest first: %v", list.fields)
	}
	if a := c.call("stop_context", map[string]any{"context_id": id}); a.fields["status"] != "stopped" || a.fields["message"] != "Context stopped successfully" {
		t.Errorf("%v", a)
	}
	if list := c.call("list_contexts", nil); list.fields["total"] != 1.0 {
		t.Errorf("a stopped context is listed: %v", list.fields)
	}
	for name, a := range map[string]answer{"run": run("print x"), "stop": c.call("stop_context", map[string]any{"context_id": id})} {
		if !a.isError || !strings.Contains(a.text, `"CONTEXT_NOT_FOUND"`) {
			t.Errorf("%s in a stopped context: %v", name, a)
		}
	}
}

func TestLongOutputOfAContextSaysWhereTheRestIs(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	id := c.call("create_context", map[string]any{"name": "n"}).fields["context_id"]
	f := c.call("run_code", map[string]any{"context_id": id, "code": "flood stdout 100KB"}).fields
	if want := `bytes left out; get_job_output(job_id="` + f["execution_id"].(string) + `", `; !strings.Contains(f["stdout"].(string), want) {
		t.Errorf("%q is not in %d bytes", want, len(f["stdout"].(string)))
	}
	f = c.call("get_job_output", map[string]any{"job_id": f["execution_id"], "stdout_offset": 102_400 - 16}).fields
	if f["next_stdout_offset"] != 102_400.0 || len(f["stdout"].(string)) != 16 {
		t.Errorf("%v", f)
	}
}

func TestAnExitThatSaysNothingIsExplained(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	id := c.call("create_context", map[string]any{"name": "n"}).fields["context_id"]
	for code, want := range map[string]any{"exit 3": "The code ended with exit code 3.", "raise oh": nil, "exit 0": nil} {
		if a := c.call("run_code", map[string]any{"context_id": id, "code": code}); a.isError || a.fields["note"] != want {
			t.Errorf("%s: %v", code, a)
		}
	}
}

func TestCodeWithoutAContextIsAProgramOfItsOwn(t *testing.T) {
	e := newService(t, fake.Options{})
	c := serveTest(t, e, func(c *Config) { c.Contexts.Requirements = []string{"probe"} })
	all := executor.WithPrincipal(t.Context(), executor.Principal{Owner: executor.LocalOwner, Scopes: executor.Scopes()})
	run := func(more map[string]any) answer {
		args := map[string]any{"code": "set x 1\nprint x\nprint-err oh"}
		for name, value := range more {
			args[name] = value
		}
		return c.call("run_code", args)
	}
	for name, more := range map[string]map[string]any{"left out": nil, "empty": {"context_id": ""}} {
		a := run(more)
		id, _ := a.fields["execution_id"].(string)
		if a.isError || a.fields["success"] != true || a.fields["stdout"] != "x\n" || a.fields["stderr"] != "oh\n" || a.fields["execution_time"] == nil || a.fields["note"] != nil {
			t.Errorf("%s: %v", name, a)
		}
		x, err := e.Get(all, id)
		if err != nil || x.Spec.Session != "" || x.Spec.Requirements != "probe" {
			t.Errorf("%s: %+v, %v", name, x.Spec, err)
		}
	}
	if list := c.call("list_contexts", nil); list.fields["total"] != 0.0 {
		t.Errorf("a context was made: %v", list.fields)
	}
	for code, want := range map[string]any{
		"exit 3": "The code ended with exit code 3.", "raise oh": nil, "signal SEGV": "SIGSEGV ended the program: it used memory that is not its own, mostly in a native library or by an endless recursion", "signal KILL": "The code was ended by SIGKILL.",
		"raise ModuleNotFoundError: No module named 'yaml'": `Module yaml is missing: call run_code with requirements=["pyyaml"].`,
	} {
		if a := run(map[string]any{"code": code}); a.isError || a.fields["success"] != false || a.fields["note"] != want {
			t.Errorf("%s: %v", code, a)
		}
	}
	if a := run(map[string]any{"code": "hang", "timeout_ms": 50}); !strings.HasPrefix(a.fields["note"].(string), "The time limit was reached (timeout_ms: the program ran longer than its limit of 0.05 s") {
		t.Error(a)
	}
	if a := run(map[string]any{"code": "set x 42\ndisplay image/png abc\nvalue x"}); a.fields["result"] != "42" || a.fields["stdout"] != "" || len(a.content) != 2 || a.content[1].(map[string]any)["type"] != "image" {
		t.Errorf("a value and a picture: %v", a)
	}
	if uris, _ := links(t, run(map[string]any{"code": "write-file a.txt one"})); len(uris) != 1 || !strings.HasPrefix(uris[0], "execution-file://") {
		t.Errorf("links: %v", uris)
	}
	if a := run(map[string]any{"requirements": []string{"no-such-package"}}); !a.isError || !strings.Contains(a.text, `"INVALID_PARAMS"`) || !strings.Contains(a.text, "requirements: ") {
		t.Error(a)
	}
	if a := run(map[string]any{"timeout_ms": 1e12}); !a.isError || !strings.Contains(a.text, `"INVALID_PARAMS"`) || !strings.Contains(a.text, "timeout_ms") {
		t.Error(a)
	}
}

func TestADeadInterpreterIsSaidAndImagesComeAsImages(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	id := c.call("create_context", map[string]any{"name": "n"}).fields["context_id"]
	a := c.call("run_code", map[string]any{"code": "display image/png abc\ndisplay text/plain note", "context_id": id})
	kinds := ""
	for _, part := range a.content {
		m := part.(map[string]any)
		kinds += m["type"].(string) + " "
		if m["type"] == "image" && (m["mimeType"] != "image/png" || m["data"] != "YWJj") {
			t.Errorf("%v", m)
		}
	}
	if kinds != "text image text " || strings.Contains(a.text, "YWJj") {
		t.Errorf("content is %s: %v", kinds, a)
	}
	a = c.call("run_code", map[string]any{"code": "signal SEGV", "context_id": id})
	if a.fields["success"] != false || !strings.Contains(a.fields["note"].(string), "died of SIGSEGV: the context is lost") {
		t.Errorf("%v", a)
	}
	if a = c.call("run_code", map[string]any{"code": "print 1", "context_id": id}); !a.isError || !strings.Contains(a.text, "EXECUTION_FAILED") || !strings.Contains(a.text, "create a new one with create_context") {
		t.Errorf("in a lost context: %v", a)
	}
}

// journal is a slog.Handler that keeps the messages of the records.
type journal struct {
	mu       sync.Mutex
	messages []string
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.messages = append(j.messages, r.Message)
	return nil
}

func (j *journal) said() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.messages)
}

func TestAContextIsLoggedAsItsSpecificationPrescribes(t *testing.T) {
	t.Parallel()
	var id, made string
	log := &journal{}
	t.Run("while it serves", func(t *testing.T) {
		e := newService(t, fake.Options{})
		all := executor.WithPrincipal(t.Context(), executor.Principal{Owner: executor.LocalOwner, Scopes: executor.Scopes()})
		s, err := e.OpenSession(all, executor.Session{Name: "made elsewhere", Language: executor.LanguageJavaScript})
		if err != nil {
			t.Fatal(err)
		}
		made = s.ID
		c := serveLogged(t, e, slog.New(log), func(c *Config) { c.Toolsets = []string{ToolsetContexts} })
		id = c.call("create_context", map[string]any{"name": "test"}).fields["context_id"].(string)
		for _, context := range []string{id, id, made, "ctx-none"} {
			c.call("run_code", map[string]any{"context_id": context, "code": "print 1"})
		}
		c.call("stop_context", map[string]any{"context_id": id})
	})
	want := []string{
		"python-executor MCP Server Starting...", "Server initialization complete", "Supported languages: Python, JavaScript",
		"Available tools: 9 (run_code, create_context, stop_context, list_contexts, install_packages, interrupt_context, restart_context, write_context_file, read_context_file)",
		"Created python context: " + id + " (name: test)", "Executing code in context " + id + " (language: python)",
		"Executing code in context " + id + " (language: python)", "Executing code in context " + made + " (language: javascript)",
		"Stopped context: " + id + " (name: test)", "python-executor MCP Server Shutting Down...", "Server cleanup complete",
	}
	if got := log.said(); !slices.Equal(got, want) {
		t.Errorf("logged is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheListHasActiveContextsOnly(t *testing.T) {
	t.Parallel()
	c := serveTest(t, newService(t, fake.Options{}), nil)
	alive := c.call("create_context", map[string]any{"name": "alive"}).fields["context_id"]
	dead := c.call("create_context", map[string]any{"name": "dead"}).fields["context_id"]
	c.call("run_code", map[string]any{"code": "signal SEGV", "context_id": dead})
	list := c.call("list_contexts", nil)
	if contexts, _ := list.fields["contexts"].([]any); list.fields["total"] != 1.0 || len(contexts) != 1 || contexts[0].(map[string]any)["context_id"] != alive {
		t.Errorf("a lost context is listed: %v", list.fields)
	}
	if a := c.call("stop_context", map[string]any{"context_id": dead}); a.fields["status"] != "stopped" {
		t.Errorf("a lost context is not stopped: %v", a)
	}
}
