package mcpfrontend

import (
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/fake"
)

// TestTheSameCallAgainIsSafeWhereAToolSaysSo calls each tool with idempotentHint twice, and compares what can be seen after each call.
func TestTheSameCallAgainIsSafeWhereAToolSaysSo(t *testing.T) {
	t.Parallel()
	svc := newService(t, fake.Options{})
	c := serveTest(t, svc, nil)
	id, _ := c.call("create_context", map[string]any{"name": "p"}).fields["context_id"].(string)
	running, _ := c.call("run_script_with_dependencies_async", map[string]any{"script_content": "hang"}).fields["job_id"].(string)
	ended, _ := c.call("run_script_with_dependencies_async", map[string]any{"script_content": "print 1"}).fields["job_id"].(string)
	awaitEnd(t, svc, ended)
	type call struct {
		tool string
		args map[string]any
	}
	calls := []call{
		{"write_context_file", map[string]any{"context_id": id, "path": "a.txt", "content": "a"}},
		{"install_packages", map[string]any{"context_id": id, "packages": []string{"numpy"}}},
		{"interrupt_context", map[string]any{"context_id": id}},
		{"kill_job", map[string]any{"job_id": running}},
		{"job_cleanup", map[string]any{"job_id": ended}},
		{"stop_context", map[string]any{"context_id": id}},
	}
	state := func() string {
		jobs, _ := c.call("list_running_jobs", nil).fields["result"].([]any)
		var seen []string
		for _, j := range jobs {
			job, _ := j.(map[string]any)
			seen = append(seen, text([]any{job["job_id"], job["running"], job["exit_code"]}))
		}
		contexts, _ := c.call("list_contexts", nil).fields["contexts"].([]any)
		for _, x := range contexts {
			one, _ := x.(map[string]any)
			seen = append(seen, text([]any{one["context_id"], one["status"]}))
		}
		return strings.Join(append(seen, c.call("read_context_file", map[string]any{"context_id": id, "path": "a.txt"}).text), "\n")
	}
	tools, _ := listed(c)
	for name, tool := range tools {
		hints, _ := tool["annotations"].(map[string]any)
		tried := slices.ContainsFunc(calls, func(c call) bool { return c.tool == name })
		if hints["idempotentHint"] != map[bool]any{true: true}[tried] {
			t.Errorf("%s says %v, and the call is made twice here: %t", name, hints["idempotentHint"], tried)
		}
	}
	for _, made := range calls {
		if a := c.call(made.tool, made.args); a.isError {
			t.Errorf("%s: %v", made.tool, a)
		}
		once := state()
		c.call(made.tool, made.args) // it may be an error, because what it names is gone
		if twice := state(); twice != once {
			t.Errorf("%s: after one call\n%s\nafter two\n%s", made.tool, once, twice)
		}
	}
}
