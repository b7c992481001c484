package mcpfrontend

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// prescribed holds the tools of the source specifications with their arguments, results and tags. NAME:TYPE is a property of a JSON schema,
// ! says that the argument is required, [TYPE] is a list, and A[].B is a property of the objects in the list A.
var prescribed = []struct{ tool, args, results, tags string }{
	{"execute", "command:string! args:[string] stdin:string timeout_ms:integer",
		"stdout:string stderr:string exit_code:integer timed_out:boolean stdout_truncated:boolean stderr_truncated:boolean elapsed_ms:integer", ""},
	{"run_code", "code:string! context_id:string", "stdout:string stderr:string success:boolean execution_time:number", ""}, // decision 47
	{"create_context", "name:string! language:string description:string",
		"context_id:string name:string language:string description:string created_at:string status:string message:string", ""},
	{"stop_context", "context_id:string!", "context_id:string status:string message:string", ""},
	{"list_contexts", "", "total:integer contexts[].context_id:string contexts[].name:string contexts[].language:string contexts[].description:string " +
		"contexts[].status:string contexts[].created_at:string contexts[].last_used:string", ""},
	{"run_script_in_dir", dirSignature + " timeout_seconds:integer", runSignature, "execution sync"},
	{"run_script_with_dependencies", depsSignature + " timeout_seconds:integer", depsResultSignature, "execution dependencies sync"},
	{"benchmark_script", depsSignature + " timeout_seconds:integer sample_interval:number",
		depsResultSignature + " wall_time_seconds:number cpu_time_seconds:number peak_rss_mb:number", "benchmark performance sync"},
	{"run_script_in_dir_async", dirSignature + " stream:boolean", "job_id:string status:string execution_strategy:string", "execution async stream"},
	{"run_script_with_dependencies_async", depsSignature + " stream:boolean",
		"job_id:string status:string python_version_used:string resolved_dependencies:[string]", "execution dependencies async stream"},
	{"list_running_jobs", "", "result[].job_id:string result[].running:string result[].exit_code:string result[].pid:string " +
		"result[].elapsed_seconds:string result[].stream:string result[].stdout_chunks:string result[].stderr_chunks:string", "jobs introspection"},
	{"get_job_output", "job_id:string!", "status:string stdout:string stderr:string exit_code:string elapsed_seconds:string", "jobs introspection"},
	{"kill_job", "job_id:string!", "job_id:string status:string exit_code:string", "jobs control"},
	{"run_script", "path:string! args:[string] env:object timeout_ms:integer",
		"exitCode:integer duration_ms:integer stdout:string stderr:string truncated:boolean logPath:string", ""},
	{"list_allowed", "", "scripts[].path:string scripts[].allowedArgs:[string] scripts[].defaultArgs:[string]", ""},
}

const (
	dirSignature        = "directory:string! script_path:string script_content:string args:[string] use_uv:boolean python_version:string"
	depsSignature       = "script_content:string script_path:string python_version:string dependencies:[string] args:[string]"
	runSignature        = "stdout:string stderr:string exit_code:integer execution_strategy:string elapsed_seconds:number"
	depsResultSignature = runSignature + " resolved_dependencies:[string] python_version_used:string"
)

// property returns the type of a property by its name, as prescribed has it, and whether it is required. The type is empty if there is no
// such property.
func property(schema map[string]any, name string) (kind string, required bool) {
	if list, inner, ok := strings.Cut(name, "[]."); ok {
		properties, _ := schema["properties"].(map[string]any)
		array, _ := properties[list].(map[string]any)
		items, _ := array["items"].(map[string]any)
		return property(items, inner)
	}
	properties, _ := schema["properties"].(map[string]any)
	p, _ := properties[name].(map[string]any)
	kind, _ = p["type"].(string)
	if items, ok := p["items"].(map[string]any); ok {
		kind = "[" + text(items["type"]) + "]"
		kind = strings.ReplaceAll(kind, `"`, "")
	}
	names, _ := schema["required"].([]any)
	return kind, slices.Contains(names, any(name))
}

func TestTheToolsAreThoseOfTheirSpecifications(t *testing.T) {
	t.Parallel()
	c := serveTest(t, newService(t, fake.Options{}), nil)
	tools, _ := listed(c)
	for _, want := range prescribed {
		tool := tools[want.tool]
		if tool == nil {
			t.Errorf("%s is not listed", want.tool)
			continue
		}
		input, _ := tool["inputSchema"].(map[string]any)
		output, _ := tool["outputSchema"].(map[string]any)
		required := 0
		for word := range strings.FieldsSeq(want.args) {
			name, kind, _ := strings.Cut(word, ":")
			kind, must := strings.CutSuffix(kind, "!")
			if must {
				required++
			}
			if got, is := property(input, name); got != kind || is != must {
				t.Errorf("%s: the argument %s is %q, required %t; want %s, required %t", want.tool, name, got, is, kind, must)
			}
		}
		if names, _ := input["required"].([]any); len(names) != required { // of our own arguments, none is required
			t.Errorf("%s requires %v, want %d arguments", want.tool, names, required)
		}
		for word := range strings.FieldsSeq(want.results) {
			name, kind, _ := strings.Cut(word, ":")
			if got, _ := property(output, name); got != kind {
				t.Errorf("%s: the result's %s is %q, want %s", want.tool, name, got, kind)
			}
		}
		meta, _ := tool["_meta"].(map[string]any)
		tags, _ := meta[metaTags].([]any)
		var got []string
		for _, tag := range tags {
			got = append(got, tag.(string))
		}
		if strings.Join(got, " ") != want.tags {
			t.Errorf("%s has the tags %q, want %q", want.tool, got, want.tags)
		}
	}
}

// unreadable is a Service whose logs end with err.
type unreadable struct {
	ending
	err error
}

func (u unreadable) Events(context.Context, string, uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		if yield(executor.Event{Seq: 1, Body: executor.Started{}}, nil) && u.err != nil {
			yield(executor.Event{}, u.err)
		}
	}
}

func TestOutputThatCannotBeReadHasTheErrorOfTheSpecification(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"a log that ends early": nil, "a log that was removed": executor.Errorf(executor.Purged, "gone"),
		"a broken log": executor.Errorf(executor.Internal, "the inside"), "a backend that is away": executor.Errorf(executor.Unavailable, "away"),
	} {
		c := serveTest(t, unreadable{ending{Service: newService(t, fake.Options{})}, err}, nil)
		a := c.call("execute", map[string]any{"command": "x"})
		if !a.isError || a.text != errReadFailed || strings.Contains(text(a.content), "the inside") {
			t.Errorf("%s: %v", name, a)
		}
	}
}

func TestAnErrorOfThisServerIsAnOSError(t *testing.T) {
	t.Parallel()
	for want, svc := range map[string]executor.Service{
		"OSError: run: the backend ended":                          ending{Service: newService(t, fake.Options{}), result: lost},
		"OSError: away":                                            unreadable{ending{Service: newService(t, fake.Options{})}, executor.Errorf(executor.Unavailable, "away")},
		"OSError: internal error; the server's log says more":      unreadable{ending{Service: newService(t, fake.Options{})}, executor.Errorf(executor.Internal, "x")},
		"ValueError: python_version: must be one that is at hand.": unreadable{ending{Service: newService(t, fake.Options{})}, executor.FieldErrorf(executor.Invalid, "python_version", "must be one that is at hand.")},
	} {
		c := serveTest(t, svc, func(c *Config) { c.Toolsets = []string{ToolsetPython} })
		if a := c.call("run_script_with_dependencies", map[string]any{"script_content": "print 1"}); !a.isError || a.text != want {
			t.Errorf("%v, want %s", a, want)
		}
	}
}

func TestTheVersionOfTheSystemsPythonIsItsOwn(t *testing.T) {
	t.Parallel()
	p := &python{tools: &tools{config: testConfig(func(c *Config) { c.Stdio = true })}}
	p.offered.info.Capabilities.HostDirectories = true
	p.offered.info.Capabilities.PythonVersions, p.offered.info.Capabilities.SystemInterpreter = []string{"3.12"}, true
	code, version := "print(1)", "3.12"
	for uv, want := range map[bool]string{true: "3.12", false: ""} {
		s, err := p.dirScript(dirArgs{Directory: t.TempDir(), ScriptContent: &code, UseUV: &uv, PythonVersion: &version})
		if err != nil || s.spec.PythonVersion != want || (s.spec.Interpreter == executor.InterpreterSystem) == uv {
			t.Errorf("use_uv %t: version %q, interpreter %q, %v", uv, s.spec.PythonVersion, s.spec.Interpreter, err)
		}
		s.close()
	}
}

func TestTheAsyncToolsHaveNoTimeout(t *testing.T) {
	t.Parallel()
	dir, e := t.TempDir(), newService(t, fake.Options{})
	c := serveTest(t, e, func(c *Config) { c.Directories = []string{dir} })
	all := executor.WithPrincipal(t.Context(), executor.Principal{Owner: executor.LocalOwner, Scopes: executor.Scopes()})
	for tool, args := range map[string]map[string]any{
		"run_script_in_dir_async":            {"directory": dir, "script_content": "print 1"},
		"run_script_with_dependencies_async": {"script_content": "print 1"},
	} {
		id, _ := c.call(tool, args).fields["job_id"].(string)
		if x, err := e.Get(all, id); err != nil || x.Spec.Limits.Timeout != executor.TimeoutMaximum {
			t.Errorf("%s: a limit of %s, %v", tool, x.Spec.Limits.Timeout, err)
		}
		args["timeout_seconds"] = 5
		if a := c.call(tool, args); !a.isError || !strings.Contains(a.text, "timeout_seconds: unknown argument") {
			t.Errorf("%s: %v", tool, a)
		}
	}
}

func TestOutputOfAJobIsThereWithoutStreamAndStays(t *testing.T) {
	t.Parallel()
	svc := newService(t, fake.Options{})
	c := serveTest(t, svc, nil)
	id, _ := c.call("run_script_with_dependencies_async", map[string]any{"script_content": "print one\nprint-err two", "stream": false}).fields["job_id"].(string)
	awaitEnd(t, svc, id)
	for range 2 {
		if a := c.call("get_job_output", map[string]any{"job_id": id}); a.fields["status"] != "finished" || a.fields["stdout"] != "one\n" || a.fields["stderr"] != "two\n" {
			t.Errorf("%v", a)
		}
		result, _ := c.request("resources/read", map[string]any{"uri": "job-stream://" + id})
		contents, _ := result["contents"].([]any)
		if got := contents[0].(map[string]any)["text"]; got != "---STDOUT---\none\n\n---STDERR---\ntwo\n" {
			t.Errorf("the snapshot is %q", got)
		}
	}
	jobs, _ := c.call("list_running_jobs", nil).fields["result"].([]any)
	if len(jobs) != 1 || jobs[0].(map[string]any)["stream"] != "False" {
		t.Errorf("listed is %v", jobs)
	}
}

// TestTheListOfToolsIsShort bounds what the list costs a model, as docs/mcp.md has it: the default toolsets, and all of them. Fewer toolsets
// cost less. A token is counted as four characters. The backend has as many versions of Python as uv installs.
func TestTheListOfToolsIsShort(t *testing.T) {
	t.Parallel()
	can := fake.DefaultCapabilities()
	can.Sessions, can.MemorySamples, can.PythonVersions = true, true, []string{"3.11", "3.15", "3.14", "3.13", "3.12", "3.10", "3.9", "3.8"}
	can.Languages = []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell}
	var c *client
	for _, test := range []struct {
		toolsets []string
		most     int
	}{{Toolsets(), 3850}, {Default().Toolsets, 3500}} {
		c = serveTest(t, newService(t, fake.Options{Capabilities: &can}), func(c *Config) { c.Toolsets = test.toolsets })
		list, _ := c.request("tools/list", nil)
		if tokens := len(text(list)) / 4; tokens > test.most {
			t.Errorf("the list of tools of %q has %d tokens", test.toolsets, tokens)
		}
	}
	made, _ := c.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	for _, want := range []string{"Errors: ValueError", "FileNotFoundError", "OSError", `Examples: run_script_in_dir {"`, "resources/read", "40000 bytes", "stop_context", "pip"} {
		if instructions, _ := made["instructions"].(string); !strings.Contains(instructions, want) {
			t.Errorf("%q is not in the instructions %s", want, instructions)
		}
	}
}
