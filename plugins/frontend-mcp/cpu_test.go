package mcpfrontend

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// watched is a Service that keeps the limits of the last Spec.
type watched struct {
	executor.Service
	limits *executor.Limits
}

func (s watched) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	*s.limits = spec.Limits
	return s.Service.Submit(ctx, spec, in)
}

// programs are calls of the tools that run a program, and the timeouts that they have without an argument. $dir is a folder that may be
// used, and $py is a context.
var programs = []struct {
	name, tool, args string
	timeout          time.Duration
}{
	{"a command", "execute", `{"command":"fake","args":["-c","print 1"]}`, 0},
	{"code", "run_code", `{"code":"print 1"}`, 0},
	{"code in a context", "run_code", `{"code":"print 1","context_id":"$py"}`, 0},
	{"a script", "run_script_in_dir", `{"directory":"$dir","script_content":"print 1"}`, defaultTimeoutSeconds * time.Second},
	{"a script with packages", "run_script_with_dependencies", `{"script_content":"print 1"}`, defaultTimeoutSeconds * time.Second},
	{"a benchmark", "benchmark_script", `{"script_content":"print 1"}`, defaultTimeoutSeconds * time.Second},
	{"a job", "run_script_in_dir_async", `{"directory":"$dir","script_content":"print 1"}`, executor.TimeoutMaximum},
	{"a job with packages", "run_script_with_dependencies_async", `{"script_content":"print 1"}`, executor.TimeoutMaximum},
	{"a script of the host", "run_script", `{"path":"/srv/x"}`, 0},
}

func TestEveryToolThatRunsAProgramTakesALimitOfCPUTime(t *testing.T) {
	t.Parallel()
	can := fake.DefaultCapabilities()
	can.Sessions, can.MemorySamples, can.CPUTime = true, true, true
	can.Languages = []executor.Language{executor.LanguagePython, executor.LanguageShell}
	dir, last := t.TempDir(), executor.Limits{}
	c := serveTest(t, watched{newService(t, fake.Options{Capabilities: &can}), &last}, func(c *Config) { c.Directories = []string{dir} })
	id, _ := c.call("create_context", map[string]any{"name": "p"}).fields["context_id"].(string)
	for _, p := range programs {
		args := map[string]any{}
		if err := json.Unmarshal([]byte(strings.NewReplacer("$dir", dir, "$py", id).Replace(p.args)), &args); err != nil {
			t.Fatal(err)
		}
		call := func(seconds any) answer {
			with := maps.Clone(args)
			with["cpu_seconds"] = seconds
			last = executor.Limits{}
			return c.call(p.tool, with)
		}
		timed := p.timeout == defaultTimeoutSeconds*time.Second
		for _, test := range []struct {
			seconds any
			want    executor.Limits
		}{
			{nil, executor.Limits{Timeout: p.timeout}},
			{0.25, executor.Limits{Timeout: p.timeout, CPUTime: 250 * time.Millisecond}},
			{0.29, executor.Limits{Timeout: p.timeout, CPUTime: 290 * time.Millisecond}},
			{1e-12, executor.Limits{Timeout: p.timeout, CPUTime: 1}},
			{30, executor.Limits{Timeout: p.timeout, CPUTime: 30 * time.Second}},
			{31, executor.Limits{Timeout: map[bool]time.Duration{false: p.timeout}[timed], CPUTime: 31 * time.Second}}, // the engine leaves it time
		} {
			if a := call(test.seconds); a.isError && p.tool != "run_script" || last != test.want { // the fake has no scripts of the host
				t.Errorf("%s, cpu_seconds %v: %+v, want %+v; %v", p.name, test.seconds, last, test.want, a)
			}
		}
		for _, test := range []struct {
			seconds any
			says    string
		}{
			{0, "cpu_seconds: must be > 0 (got 0): leave it out for the server's default"},
			{-1.5, "cpu_seconds: must be > 0 (got -1.5)"},
			{"5", "cpu_seconds: must be a number, not a string"},
			{90000, "cpu_seconds: must be at most 86400 s (got 90000 s)"},
			{1e300, "cpu_seconds: must be at most 86400 s"},
		} {
			if a := call(test.seconds); !a.isError || !strings.Contains(a.text, test.says) {
				t.Errorf("%s, cpu_seconds %v: %v lacks %q", p.name, test.seconds, a, test.says)
			}
		}
		if timed {
			args["timeout_seconds"] = 5
			if call(31); last.Timeout != 5*time.Second {
				t.Errorf("%s: the timeout is %s, and 5 s were asked for", p.name, last.Timeout)
			}
		}
	}
}

func TestALimitOfCPUTimeThatTheBackendHasNotIsRefused(t *testing.T) {
	t.Parallel()
	can := fake.DefaultCapabilities()
	can.Sessions, can.CPUTime = true, false
	c := serveTest(t, newService(t, fake.Options{Capabilities: &can}), nil)
	for tool, args := range map[string]map[string]any{
		"execute": {"command": "fake", "args": []string{"-c", "print 1"}}, "run_code": {"code": "print 1"}, "benchmark_script": {"script_content": "print 1"},
	} {
		args["cpu_seconds"] = 1
		if a := c.call(tool, args); !a.isError || !strings.Contains(a.text, "cpu_seconds: ") || strings.Contains(a.text, "config.cpu_seconds") {
			t.Errorf("%s: %v", tool, a)
		}
	}
}

// A tool's default timeout is no more than the server allows, and a timeout that a call asks for is refused.
func TestADefaultTimeoutIsWithinTheServersMaximum(t *testing.T) {
	t.Parallel()
	short := func(o *engine.Options) { o.Limits.Default.TimeoutSeconds, o.Limits.Max.TimeoutSeconds = 20, 60 }
	dir := t.TempDir()
	c := serveTest(t, newService(t, fake.Options{}, short), func(c *Config) { c.Directories = []string{dir} })
	for _, p := range programs {
		if p.timeout <= 0 {
			continue
		}
		args := map[string]any{}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(p.args, "$dir", dir)), &args); err != nil {
			t.Fatal(err)
		}
		if a := c.call(p.tool, args); a.isError {
			t.Errorf("%s: %v", p.name, a)
		}
		args["timeout_seconds"] = 61
		if a := c.call(p.tool, args); !a.isError || !strings.Contains(a.text, "timeout_seconds") || !strings.Contains(a.text, "60") {
			t.Errorf("%s with a timeout above the maximum: %v", p.name, a)
		}
	}
}
