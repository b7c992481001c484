package mcpfrontend

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestJobs(t *testing.T) {
	t.Run("of the engine", func(t *testing.T) { testJobs(t, newService(t, fake.Options{})) })
	t.Run("of a server elsewhere", func(t *testing.T) { testJobs(t, elsewhere{newService(t, fake.Options{})}) })
}

func testJobs(t *testing.T, svc executor.Service) {
	c := serveTest(t, svc, nil)
	start := func(code string) string {
		t.Helper()
		a := c.call("run_script_with_dependencies_async", map[string]any{"script_content": code, "python_version": "3.12", "dependencies": []string{"probe==1.2.3"}, "stream": true})
		id, _ := a.fields["job_id"].(string)
		if a.isError || a.fields["status"] != "started" || len(a.fields["resolved_dependencies"].([]any)) != 1 || id == "" {
			t.Fatalf("%v", a)
		}
		return id
	}
	id := start("print one\nprint-err two\nprint three\nhang")
	for out := ""; out != "one\nthree\n"; {
		out, _ = c.call("get_job_output", map[string]any{"job_id": id}).fields["stdout"].(string)
	}
	a := c.call("get_job_output", map[string]any{"job_id": id, "stdout_offset": 4, "stderr_offset": 0})
	if a.fields["status"] != "running" || a.fields["stdout"] != "three\n" || a.fields["stderr"] != "two\n" || a.fields["exit_code"] != "None" ||
		a.fields["next_stdout_offset"] != 10.0 || a.fields["next_stderr_offset"] != 4.0 {
		t.Errorf("%v", a.fields)
	}
	if a = c.call("get_job_output", map[string]any{"job_id": id, "stdout_offset": 10}); a.fields["stdout"] != "" || a.fields["next_stdout_offset"] != 10.0 {
		t.Errorf("beyond the end: %v", a.fields)
	}
	read := func(uri string) string {
		t.Helper()
		result, _ := c.request("resources/read", map[string]any{"uri": uri})
		contents := result["contents"].([]any)
		return contents[0].(map[string]any)["text"].(string)
	}
	if text := read("job-stream://" + id); text != "---STDOUT---\none\nthree\n\n---STDERR---\ntwo\n" {
		t.Errorf("resource: %q", text)
	}
	text := read("job-stream://" + id + "?offset=0")
	_, offset, ok := strings.Cut(text, "---OFFSET---\n")
	if n, err := strconv.Atoi(offset); !ok || err != nil || n < 4 {
		t.Errorf("resource with an offset: %q", text)
	}
	if text := read("job-stream://" + id + "?offset=" + offset); text != "---STDOUT---\n\n---STDERR---\n\n---OFFSET---\n"+offset {
		t.Errorf("nothing new: %q", text)
	}
	var j map[string]any
	awaittest.Until(t, "the second piece of output", func() bool { // the list counts by following the log
		jobs := c.call("list_running_jobs", nil).fields["result"].([]any)
		if len(jobs) != 1 {
			t.Fatalf("%v", jobs)
		}
		j = jobs[0].(map[string]any)
		return j["stdout_chunks"] == "2"
	})
	if j["job_id"] != id || j["running"] != "True" || j["exit_code"] != "None" || j["stream"] != "True" || j["stderr_chunks"] != "1" {
		t.Errorf("%v", j)
	}
	for key, value := range j {
		if _, ok := value.(string); !ok {
			t.Errorf("%s is no text: %v", key, value)
		}
	}
	if a := c.call("kill_job", map[string]any{"job_id": id}); a.fields["status"] != "killed" || a.fields["exit_code"] != "-15" {
		t.Errorf("%v", a)
	}
	if a := c.call("get_job_output", map[string]any{"job_id": id}); a.fields["status"] != "finished" || a.fields["exit_code"] != "-15" {
		t.Errorf("%v", a.fields)
	}
	done := start("exit 4")
	awaitEnd(t, svc, done)
	if a := c.call("kill_job", map[string]any{"job_id": done}); a.fields["status"] != "finished" || a.fields["exit_code"] != "4" || a.fields["message"] != "the job had ended before it could be killed: failed" {
		t.Errorf("killed when it had ended: %v", a)
	}
	running := start("hang")
	for removed := 0; removed < 2; { // the list learns of an end by following the log
		a = c.call("job_cleanup", nil)
		removed += len(a.fields["removed"].([]any))
	}
	if left := a.fields["running"].([]any); len(left) != 1 || left[0] != running {
		t.Errorf("%v", a.fields)
	}
	c.call("kill_job", map[string]any{"job_id": running})
	failed := c.call("run_script_with_dependencies_async", map[string]any{"script_content": "print 1", "python_version": "3.12", "dependencies": []string{"no-such-package"}})
	if failed.isError || failed.fields["status"] != "started" || failed.fields["python_version_used"] != "3.12" {
		t.Fatalf("a preparation that will fail: %v", failed)
	}
	id, _ = failed.fields["job_id"].(string)
	awaitEnd(t, svc, id)
	if a := c.call("get_job_output", map[string]any{"job_id": id}); a.fields["status"] != "finished" || !strings.HasPrefix(a.fields["error"].(string), "ValueError: prepare: ") {
		t.Errorf("a preparation that failed: %v", a)
	}
}

func TestAnAsyncStartReturnsWhilePackagesAreInstalled(t *testing.T) {
	t.Parallel()
	c := serveTest(t, newService(t, fake.Options{}), nil)
	args := map[string]any{"script_content": "print 1", "python_version": "3.12", "dependencies": []string{"slow-package"}}
	a := c.call("run_script_with_dependencies_async", args)
	if deps, _ := a.fields["resolved_dependencies"].([]any); a.isError || a.fields["status"] != "started" || len(deps) != 1 || deps[0] != "slow-package" {
		t.Fatalf("%v", a)
	}
	id := a.fields["job_id"]
	if a := c.call("get_job_output", map[string]any{"job_id": id}); a.fields["status"] != "running" {
		t.Errorf("while its packages are installed: %v", a)
	}
	if a := c.call("kill_job", map[string]any{"job_id": id}); a.fields["status"] != "killed" {
		t.Errorf("%v", a)
	}
	args["dependencies"] = []string{"probe==1.2.3"}
	id = c.call("run_script_with_dependencies_async", args).fields["job_id"]
	awaittest.Until(t, "the end of the job", func() bool {
		a = c.call("get_job_output", map[string]any{"job_id": id})
		return a.fields["status"] == "finished"
	})
	if deps, _ := a.fields["resolved_dependencies"].([]any); len(deps) == 0 || !strings.HasPrefix(a.fields["python_version_used"].(string), "3.12.") {
		t.Errorf("the packages of a job that has run: %v", a)
	}
}

func TestJobsAreListedAfterAChangedConfiguration(t *testing.T) {
	t.Parallel()
	svc, log := newService(t, fake.Options{}), &journal{}
	before := serveLogged(t, svc, slog.New(log), nil)
	args := map[string]any{"script_content": "print one\nhang", "python_version": "3.12"}
	id := before.call("run_script_with_dependencies_async", args).fields["job_id"].(string)
	before.call("run_script_with_dependencies", map[string]any{"script_content": "print two", "python_version": "3.12"})
	after := serveTest(t, svc, nil)
	var jobs []any
	awaittest.Until(t, "the job's output in the list", func() bool {
		jobs, _ = after.call("list_running_jobs", nil).fields["result"].([]any)
		return len(jobs) == 1 && jobs[0].(map[string]any)["stdout_chunks"] == "1"
	})
	if j := jobs[0].(map[string]any); j["job_id"] != id || j["running"] != "True" {
		t.Errorf("another process lists %v", jobs)
	}
	before.call("kill_job", map[string]any{"job_id": id})
	awaittest.Until(t, "the end in the log", func() bool { return slices.Contains(log.said(), "job finalized") })
	for _, want := range []string{"async job started", "job killed"} {
		if !slices.Contains(log.said(), want) {
			t.Errorf("%q is not in the log: %q", want, log.said())
		}
	}
	ended := before.call("run_script_with_dependencies_async", map[string]any{"script_content": "exit 4", "python_version": "3.12"}).fields["job_id"].(string)
	awaitEnd(t, svc, ended)
	for _, job := range []string{id, ended} {
		before.call("kill_job", map[string]any{"job_id": job})
	}
	if n := len(slices.DeleteFunc(log.said(), func(m string) bool { return m != "job killed" })); n != 1 {
		t.Errorf("one job was killed, and the log has %d", n)
	}
}

func TestJobsBelongToTheirOwnerAndOutliveTheirCaller(t *testing.T) {
	svc := newService(t, fake.Options{})
	server := serveTest(t, svc, twoOwners)
	ann, bob := server.as("ann"), server.as("bob")
	start := func(c *client) string {
		t.Helper()
		a := c.call("run_script_with_dependencies_async", map[string]any{"script_content": "print one", "python_version": "3.12"})
		id, _ := a.fields["job_id"].(string)
		if a.isError || id == "" {
			t.Fatalf("%v", a)
		}
		return id
	}
	anns, bobs := start(ann), start(bob)
	for c, id := range map[*client]string{ann: anns, bob: bobs} {
		awaittest.Until(t, "the end of "+id+" in the list", func() bool {
			jobs := c.call("list_running_jobs", nil).fields["result"].([]any)
			if len(jobs) != 1 || jobs[0].(map[string]any)["job_id"] != id {
				t.Fatalf("listed %v, want %s only", jobs, id)
			}
			return jobs[0].(map[string]any)["running"] == "False"
		})
	}
	x, err := svc.Get(executor.WithPrincipal(t.Context(), executor.Principal{Owner: "ann", Scopes: []executor.Scope{executor.ScopeRead}}), anns)
	if err != nil || !x.Spec.Durable {
		t.Errorf("a job must survive a restart of the server: %+v, %v", x.Spec, err)
	}
	if a := bob.call("job_cleanup", map[string]any{"job_id": anns}); !a.isError {
		t.Errorf("bob forgets ann's job: %v", a)
	}
	if a := bob.call("job_cleanup", nil); len(a.fields["removed"].([]any)) != 1 || a.fields["removed"].([]any)[0] != bobs {
		t.Errorf("bob's clean-up: %v", a)
	}
	if jobs := ann.call("list_running_jobs", nil).fields["result"].([]any); len(jobs) != 1 {
		t.Errorf("then ann has %v", jobs)
	}
}
