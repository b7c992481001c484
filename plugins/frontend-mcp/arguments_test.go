package mcpfrontend

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestWholeNumbersAreTakenAsJSONSchemaHasThem(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	for _, number := range []string{"300.0", "3e1"} {
		args := map[string]any{"script_content": json.RawMessage(`"print \ud83d\ude00"`), "timeout_seconds": json.RawMessage(number)}
		if a := c.call("run_script_with_dependencies", args); a.isError {
			t.Errorf("%s: %v", number, a)
		}
	}
	if a := c.call("execute", map[string]any{"command": "fake", "args": []string{"-c", "print hi"}, "timeout_ms": json.RawMessage("60000.0")}); a.isError {
		t.Error(a)
	}
}

func TestArgumentsThatAreNullAreNotGiven(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	// The fake has no sh and no such program. The second text tells which of the two was looked for.
	a := c.call("execute", map[string]any{"command": "print hi", "args": nil, "stdin": nil, "timeout_ms": nil})
	b := c.call("execute", map[string]any{"command": "print hi"})
	if direct := c.call("execute", map[string]any{"command": "print hi", "args": []string{}}); text(a.content) != text(b.content) || text(a.content) == text(direct.content) {
		t.Errorf("args: null is %v, without args it is %v", a, b)
	}
	a = c.call("run_script_with_dependencies", map[string]any{
		"script_content": "print hi", "script_path": nil, "python_version": "3.12", "dependencies": nil, "args": nil, "timeout_seconds": nil,
	})
	if a.isError || a.fields["stdout"] != "hi\n" {
		t.Errorf("%v", a)
	}
}

func TestCodeBesideAMainOfTheFolderIsAFileToo(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"main.py": "print main", "script_content_1.py": "print taken", "latin.py": "print h\xe9", "-c": "print dash"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.Directories = []string{dir} })
	long := "print " + strings.Repeat("x", 200_000) // more than an argument holds
	a := c.call("run_script_in_dir", map[string]any{"directory": dir, "script_content": "argv0\ncat script_content_1.py\n#" + long})
	if a.isError || a.fields["stdout"] != "script_content_2.py\nprint taken" {
		t.Errorf("%v", a)
	}
	// A file that is not UTF-8 is run unchanged, under its own name.
	a = c.call("run_script_with_dependencies", map[string]any{"script_path": dir + "/latin.py", "python_version": "3.12"})
	if a.isError || a.fields["stdout"] != "h\uFFFD\n" {
		t.Errorf("%v", a)
	}
	a = c.call("run_script_with_dependencies", map[string]any{"script_path": dir + "/-c", "python_version": "3.12"})
	if a.isError || a.fields["stdout"] != "dash\n" {
		t.Errorf("%v", a)
	}
}

func TestAScriptIsSentThoughItIsALinkOrLiesWhereNothingIsSent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "venv"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"real.py": "print real", "venv/tool.py": "print tool\nexists venv/other", "venv/other": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link.py": "real.py", "out.py": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c := serveTest(t, newService(t, fake.Options{}), func(c *Config) { c.Directories = []string{dir} })
	for path, want := range map[string]string{"link.py": "real\n", "venv/tool.py": "tool\nfalse\n", "real.py": "real\n"} {
		a := c.call("run_script_in_dir", map[string]any{"directory": dir, "script_path": path})
		if a.isError || a.fields["stdout"] != want {
			t.Errorf("%s: %v", path, a)
		}
	}
	if a := c.call("run_script_in_dir", map[string]any{"directory": dir, "script_path": "out.py"}); !strings.HasPrefix(a.text, "FileNotFoundError: script_path ") {
		t.Errorf("a link out of the roots: %v", a)
	}
}

func TestCodeInPlaceImportsWhatLiesInTheFolder(t *testing.T) {
	dir, path, code := t.TempDir(), "a.py", "import neighbour"
	if err := os.WriteFile(filepath.Join(dir, path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &python{tools: &tools{config: testConfig(func(c *Config) { c.Stdio = true })}}
	p.offered.info.Capabilities.HostDirectories = true
	s, err := p.dirScript(dirArgs{Directory: dir, ScriptContent: &code})
	if err != nil || s.spec.HostDirectory != dir || s.spec.Env["PYTHONPATH"] != dir {
		t.Errorf("code: %+v, %v", s, err)
	}
	s, err = p.dirScript(dirArgs{Directory: dir, ScriptPath: &path})
	if err != nil || len(s.spec.Env) != 0 {
		t.Errorf("a file has its own folder on its path: %+v, %v", s, err)
	}
}

func TestWhetherAFolderOfTheHostMayBeUsedIsForTheEngineToSay(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	can := fake.DefaultCapabilities()
	can.HostDirectories = true
	for _, open := range []bool{true, false} {
		svc := newService(t, fake.Options{Capabilities: &can}, func(o *engine.Options) {
			if open {
				o.HostDirectories = []string{dir}
			}
		})
		c := serveTest(t, svc, func(c *Config) { c.Directories = []string{dir} })
		a := c.call("run_script_in_dir", map[string]any{"directory": dir, "script_content": "print 1", "use_uv": false})
		if a.isError == open || !open && !strings.Contains(a.text, "trusted") {
			t.Errorf("the engine allows it: %t, the tool answers %v", open, a)
		}
	}
}

func TestANotebookBesideTheFolderIsRefusedInPlace(t *testing.T) {
	dir, beside := t.TempDir(), t.TempDir()
	p := &python{tools: &tools{config: testConfig(func(c *Config) { c.Stdio = true })}}
	p.offered.info.Capabilities.HostDirectories = true
	for name, problem := range map[string]string{"a.py": "", "book.ipynb": "nbconvert", "notes.txt": "name the .py file"} {
		path := filepath.Join(beside, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := p.dirScript(dirArgs{Directory: dir, ScriptPath: &path})
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), "script_path: must be a program") || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSuffixStandsAtTheEndOfStderrOnly(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	a := c.outrun("flood stderr 60KB\nhang", 60<<10)
	job, stderr := a.fields["job_id"], a.fields["stderr"].(string)
	if !strings.HasSuffix(stderr, "\n[TIMEOUT]") {
		t.Errorf("%v", a)
	}
	piece := func(offset any) (string, any) {
		t.Helper()
		a := c.call("get_job_output", map[string]any{"job_id": job, "stderr_offset": offset})
		return a.fields["stderr"].(string), a.fields["next_stderr_offset"]
	}
	whole, _ := piece(nil)
	first, next := piece(0)
	last, _ := piece(next)
	if whole != strings.Replace(stderr, "get_job_output(job_id=\""+job.(string)+"\", …_offset) reads them", "read them with stdout_offset and stderr_offset", 1) ||
		strings.Contains(first, "[TIMEOUT]") || !strings.HasSuffix(last, "\n[TIMEOUT]") {
		t.Errorf("whole …%q, first …%q, last …%q", whole[len(whole)-20:], first[len(first)-20:], last[len(last)-20:])
	}
}

func TestALimitThatWasHitIsTold(t *testing.T) {
	t.Parallel()
	one := 1
	limit := func(field string) *executor.Failure {
		return &executor.Failure{Code: executor.Exhausted, Phase: executor.PhaseRun, Field: field, Message: field + ": full"}
	}
	for name, test := range map[string]struct {
		r            executor.Result
		ran          bool
		suffix, note string
	}{
		"memory":                 {executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL", Failure: limit("config.memory_mb")}, true, "[OUT OF MEMORY]", "The memory limit was reached (config.memory_mb: full): use less"},
		"CPU time":               {executor.Result{Status: executor.StatusTimedOut, Signal: "SIGKILL", Failure: limit(executor.FieldCPUTime)}, true, "[TIMEOUT]", "The CPU time limit was reached (cpu_seconds: full): raise cpu_seconds, or do less"},
		"time, unnamed":          {executor.Result{Status: executor.StatusTimedOut, Signal: "SIGKILL", Wall: 1500 * time.Millisecond}, true, "[TIMEOUT]", "The time limit was reached (timeout_ms: the program ran for 1.5 s): raise timeout_ms"},
		"memory, unnamed":        {executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL"}, true, "[OUT OF MEMORY]", "needed more memory"},
		"memory of a child":      {executor.Result{Status: executor.StatusFailed, ExitCode: &one, Failure: limit("config.memory_mb")}, true, "[OUT OF MEMORY]", "config.memory_mb: full"},
		"disk":                   {executor.Result{Status: executor.StatusFailed, ExitCode: &one, Failure: limit("config.disk_mb")}, true, "[DISK FULL]", "config.disk_mb: full"},
		"none":                   {executor.Result{Status: executor.StatusFailed, ExitCode: &one, StderrBytes: 1}, true, "", ""},
		"a bound of preparation": {executor.Result{Status: executor.StatusFailed, Failure: limit("config.disk_mb")}, false, "", ""},
	} {
		if got := ran(test.r); got != test.ran {
			t.Errorf("%s: ran is %v", name, got)
		}
		if got := suffix(test.r); got != test.suffix {
			t.Errorf("%s: the suffix is %q", name, got)
		}
		if got := note(runCodeArgs{ContextID: "ctx-1"}, test.r); !strings.Contains(got, test.note) || test.note == "" && got != "" {
			t.Errorf("%s: the note is %q", name, got)
		}
	}
}

func TestAFailureIsToldInTheWordsOfTheTool(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failure executor.Failure
		field   string
		message string
	}{
		"named":                     {executor.Failure{Field: "script", Message: "script: /x is not there"}, "script", "path: /x is not there"},
		"of a server elsewhere":     {executor.Failure{Message: "script: /x is not there"}, "script", "path: /x is not there"},
		"of a field that has ours":  {executor.Failure{Field: "env.A", Message: "env.A: is not on the list"}, "env.A", "env.A: is not on the list"},
		"of no field":               {executor.Failure{Message: "error: no such thing"}, "", "error: no such thing"},
		"a message without a field": {executor.Failure{Field: "script", Message: "gone"}, "script", "gone"},
	} {
		if field, message := failure(&test.failure, hostScriptNames); field != test.field || message != test.message {
			t.Errorf("%s: %q %q", name, field, message)
		}
	}
}

// manyBackends is a Service with the given backends.
type manyBackends struct {
	executor.Service
	list []executor.Info
}

func (s manyBackends) Backends(context.Context) ([]executor.Info, error) { return s.list, nil }

func TestToolsAreThoseOfTheBackendThatRunsThem(t *testing.T) {
	t.Parallel()
	scripts := executor.Info{Name: "scripts", Capabilities: executor.Capabilities{Scripts: true}}
	docker, uv := executor.Info{Name: "docker"}, executor.Info{Name: "uv"}
	for name, test := range map[string]struct {
		list []executor.Info
		name string
		want string // empty: an error
	}{
		"the default is the first":            {[]executor.Info{uv, docker, scripts}, "", "uv"},
		"host scripts are no backend of ours": {[]executor.Info{scripts, uv}, "", "uv"},
		"but where there is nothing else":     {[]executor.Info{scripts}, "", "scripts"},
		"the one that is configured":          {[]executor.Info{uv, docker}, "docker", "docker"},
		"one that is not there":               {[]executor.Info{uv}, "docker", ""},
		"none":                                {nil, "", ""},
	} {
		got, err := chooseBackend(t.Context(), manyBackends{list: test.list}, test.name)
		if got.Name != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: %q, %v", name, got.Name, err)
		}
	}
}

func TestAScriptsErrorsHaveTheSpecificationsCodes(t *testing.T) {
	t.Parallel()
	s := hostScripts{&tools{log: testLog(t)}}
	for _, test := range []struct {
		code  executor.Code
		field string
		want  string
	}{
		{executor.Denied, "script", scriptForbidden}, {executor.NotFound, "script", scriptPolicy}, {executor.Invalid, "args", scriptBadArg},
		{executor.Internal, "", scriptExec}, {executor.Unavailable, "", scriptExec},
	} {
		said := text(s.hostScriptError(test.code, test.field, errors.New("secret")))
		if !strings.Contains(said, test.want) || strings.Contains(said, "secret") == (test.code == executor.Internal) {
			t.Errorf("%s about %q: %s", test.code, test.field, said)
		}
	}
}

func TestAScriptsOutputIsBoundedByItsOwnSettingOnly(t *testing.T) {
	zero := 0
	for _, stream := range []executor.Stream{executor.Stdout, executor.Stderr} {
		for _, cutByTheBackend := range []bool{false, true} {
			end := executor.Result{Status: executor.StatusSucceeded, ExitCode: &zero, StdoutTruncated: cutByTheBackend}
			c := serveTest(t, ending{
				newService(t, fake.Options{}), executor.Output{Stream: stream, Data: []byte(strings.Repeat("x", 262_144))}, end,
			}, func(c *Config) { c.MaxResultBytes = 1000 })
			a := c.call("run_script", map[string]any{"path": "/srv/x"})
			if text, _ := a.fields[string(stream)].(string); a.isError || a.fields["truncated"] != cutByTheBackend || len(text) != 262_144 {
				t.Errorf("of 262144 bytes on %s %d arrive, truncated %v", stream, len(text), a.fields["truncated"])
			}
		}
	}
}

func TestAScriptsErrorHasStructuredContentOfItsSchema(t *testing.T) {
	t.Parallel()
	ended := executor.Result{Status: executor.StatusTimedOut, Signal: "SIGKILL", Wall: 1500 * time.Millisecond, LogPath: "/logs/1"}
	ended.Failure = ended.TimedOut(executor.FieldTimeout, executor.Limits{Timeout: time.Second})
	c := serveTest(t, ending{newService(t, fake.Options{}), executor.Output{Stream: executor.Stdout, Data: []byte("begun\n")}, ended}, nil)
	for name, test := range map[string]struct {
		tool string
		args map[string]any
		want map[string]any
	}{
		"a timeout":      {"run_script", map[string]any{"path": "/srv/x"}, map[string]any{"exitCode": -9.0, "duration_ms": 1500.0, "stdout": "begun\n", "stderr": "", "truncated": false, "logPath": "/logs/1"}},
		"no path":        {"run_script", map[string]any{}, map[string]any{"exitCode": -1.0, "duration_ms": 0.0, "stdout": "", "stderr": "", "truncated": false}},
		"a wrong type":   {"run_script", map[string]any{"path": 7}, map[string]any{"exitCode": -1.0, "duration_ms": 0.0, "stdout": "", "stderr": "", "truncated": false}},
		"no such member": {"list_allowed", map[string]any{"all": true}, map[string]any{"scripts": []any{}}},
	} {
		a := c.call(test.tool, test.args)
		problem, _ := a.fields["error"].(map[string]any)
		delete(a.fields, "error")
		if !a.isError || !reflect.DeepEqual(a.fields, test.want) {
			t.Errorf("%s: error %t with %v, want %v", name, a.isError, a.fields, test.want)
		}
		if code, _ := problem["code"].(string); code == "" || !strings.Contains(a.text, code) || problem["message"] == "" {
			t.Errorf("%s: the error is %v, and the text %s", name, problem, a.text)
		}
	}
}

func TestAPlaceInTheQueueIsTold(t *testing.T) {
	t.Parallel()
	var said []string
	ctx := withNotifier(t.Context(), func(m []byte) error { said = append(said, string(m)); return nil })
	var request mcp.CallToolRequest
	request.Params.Meta = &mcp.Meta{ProgressToken: "p"}
	o := &outcome{}
	for _, position := range []int{0, 2} {
		o.take(executor.Event{Body: executor.Queued{Position: position}}, newProgress(ctx, request))
	}
	if len(said) != 1 || !strings.Contains(said[0], "waiting, 2 before it") {
		t.Errorf("%q", said)
	}
}
