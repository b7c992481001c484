package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// mcpCaller speaks JSON-RPC with an MCP endpoint by hand.
type mcpCaller struct {
	t                   *testing.T
	url, token, session string
}

func newMCPCaller(t *testing.T, url, token string) *mcpCaller {
	t.Helper()
	c := &mcpCaller{t: t, url: url, token: token}
	if status, last, err := c.post(0, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"},
	}); err != nil || status != http.StatusOK || c.session == "" {
		t.Fatalf("initialize: %d %v %v", status, last, err)
	}
	return c
}

// post sends a request (id 0 and up) or a notification and returns the last message of the answer. An error is the
// connection's.
func (c *mcpCaller) post(id int, method string, params map[string]any) (status int, last map[string]any, err error) {
	message := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
	if id >= 0 {
		message["id"] = id
	}
	raw, err := json.Marshal(message)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		c.session = s
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, nil, err
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		i := bytes.LastIndex(body, []byte("data: "))
		if i < 0 {
			return resp.StatusCode, nil, io.ErrUnexpectedEOF
		}
		body = body[i+len("data: "):]
	}
	_ = json.Unmarshal(body, &last) // what is no JSON is shown by its status
	return resp.StatusCode, last, nil
}

// call calls a tool.
func (c *mcpCaller) call(tool string, args map[string]any) (fields map[string]any, text string, isError bool) {
	c.t.Helper()
	status, last, err := c.post(7, "tools/call", map[string]any{"name": tool, "arguments": args})
	result, ok := last["result"].(map[string]any)
	if err != nil || !ok {
		c.t.Fatalf("%s: %d %v %v", tool, status, last, err)
	}
	for _, part := range result["content"].([]any) {
		part, _ := part.(map[string]any)
		if s, ok := part["text"].(string); ok {
			text += s
		}
	}
	fields, _ = result["structuredContent"].(map[string]any)
	isError, _ = result["isError"].(bool)
	return fields, text, isError
}

// refused is the code of the error that reading uri is; 0: none.
func (c *mcpCaller) refused(uri string) float64 {
	c.t.Helper()
	_, last, err := c.post(8, "resources/read", map[string]any{"uri": uri})
	if err != nil {
		c.t.Fatal(err)
	}
	e, _ := last["error"].(map[string]any)
	code, _ := e["code"].(float64)
	return code
}

// mcpPluginPID is the process of the MCP frontend; 0: there is none.
func (s *server) mcpPluginPID() int {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range entries {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		raw, _ := os.ReadFile(path)
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if bytes.Contains(raw, []byte("\x00frontend-mcp\x00")) && bytes.Contains(stat, fmt.Appendf(nil, "\nPPid:\t%d\n", s.cmd.Process.Pid)) {
			return pid
		}
	}
	return 0
}

// running are the ids of the executions that run.
func (s *server) running() []string {
	var ids []string
	for _, x := range s.get("/api/v1/executions?status=running").json(s.t)["executions"].([]any) {
		ids = append(ids, x.(map[string]any)["execution_id"].(string))
	}
	return ids
}

func TestKillingTheMCPPluginEndsItsCallsAndNothingElse(t *testing.T) {
	needtest.Long(t, "the tests of core/host and plugins/frontend-mcp")
	address := freeAddress(t)
	s := startServer(t, []string{"PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=" + address})
	endpoints := []string{"http://" + address + "/mcp", s.url + "/mcp"}
	minor := minorOf(t, nil)
	script := func(code string) map[string]any {
		return map[string]any{"script_content": code, "python_version": minor}
	}
	c := newMCPCaller(t, endpoints[0], "")
	made, text, _ := c.call("create_context", map[string]any{"name": "stays"})
	id, _ := made["context_id"].(string)
	if _, _, wrong := c.call("run_code", map[string]any{"context_id": id, "code": "x = 41"}); wrong || id == "" {
		t.Fatal(text)
	}
	mark := fmt.Sprintf("4321.%09d", os.Getpid())
	if _, text, wrong := c.call("execute", map[string]any{"command": "echo up"}); wrong {
		t.Fatal(text)
	}
	start := func(code string) string {
		t.Helper()
		fields, text, wrong := c.call("run_script_with_dependencies_async", script(code))
		if wrong {
			t.Fatal(text)
		}
		return fields["job_id"].(string)
	}
	lasting, ending := start("import time; time.sleep(600)"), start("import time; time.sleep(2); print('its end')")

	// One call through each endpoint is waiting when the plugin is killed.
	ends := make(chan error, len(endpoints))
	for _, endpoint := range endpoints {
		waiting := newMCPCaller(t, endpoint, "")
		go func() {
			status, last, err := waiting.post(1, "tools/call", map[string]any{
				"name": "run_script_with_dependencies", "arguments": script("import subprocess, time\nsubprocess.Popen(['sleep', '" + mark + "'], start_new_session=True)\ntime.sleep(600)"),
			})
			if err == nil && status == http.StatusOK {
				err = fmt.Errorf("a call of a killed plugin has an answer: %v", last)
			} else {
				err = nil
			}
			ends <- err
		}()
	}
	waited := func() (ids []string) {
		return slices.DeleteFunc(s.running(), func(id string) bool { return id == lasting || id == ending })
	}
	var calls []string
	awaittest.Until(t, "both calls run, and what they have started", func() bool {
		calls = waited()
		return len(calls) == len(endpoints) && len(started(mark)) == len(endpoints)
	})
	pid := s.mcpPluginPID()
	if pid == 0 {
		t.Fatal("there is no plugin")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range endpoints {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	for _, id := range calls {
		s.wait(id, "killed")
	}
	for _, endpoint := range endpoints {
		awaittest.Until(t, endpoint+" answers again", func() bool {
			again := &mcpCaller{t: t, url: endpoint}
			status, _, err := again.post(0, "initialize", map[string]any{
				"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"},
			})
			if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
				t.Fatalf("%s: status %d", endpoint, status)
			}
			return err == nil && status == http.StatusOK
		})
	}
	if status, _, err := c.post(1, "tools/list", nil); err != nil || status != http.StatusNotFound {
		t.Errorf("an MCP session of the killed process: status %d, %v", status, err)
	}
	next := newMCPCaller(t, endpoints[1], "")
	if fields, text, _ := next.call("run_code", map[string]any{"context_id": id, "code": "x + 1"}); fields["result"] != "42" {
		t.Errorf("a context: %s", text)
	}
	if x := s.wait(ending, "succeeded"); x["exit_code"] != 0.0 {
		t.Errorf("%v", x)
	}
	if fields, text, _ := next.call("get_job_output", map[string]any{"job_id": ending}); fields["stdout"] != "its end\n" || fields["status"] != "finished" {
		t.Errorf("a job that has ended: %s", text)
	}
	if fields, text, _ := next.call("kill_job", map[string]any{"job_id": lasting}); fields["status"] != "killed" {
		t.Errorf("a job that went on: %s", text)
	}
	next.call("stop_context", map[string]any{"context_id": id})
	// The sandbox of the killed process's MCP session is closed, too.
	awaittest.Until(t, "no session is left", func() bool {
		for _, x := range s.get("/api/v1/sessions").json(t)["sessions"].([]any) {
			if x.(map[string]any)["status"] != "closed" {
				return false
			}
		}
		return len(s.running()) == 0
	})
	awaittest.Until(t, "nothing runs of what was started", func() bool { return len(started(mark)) == 0 })
}

// started are the processes whose command line has text in it.
func started(text string) (pids []string) {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range entries {
		if raw, _ := os.ReadFile(path); strings.Contains(string(raw), text) {
			pids = append(pids, path)
		}
	}
	return pids
}

func TestTwoOwnersOverMCP(t *testing.T) {
	address := freeAddress(t)
	s := startServer(t, []string{
		"PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=" + address,
		"PYEXEC_HTTP_TOKENS=" + fmt.Sprintf(`[{"owner":"ann","sha256":%q},{"owner":"bob","sha256":%q}]`, sha("ann-token"), sha("bob-token")),
	})
	minor := minorOf(t, nil)
	for _, endpoint := range []string{"http://" + address + "/mcp", s.url + "/mcp"} {
		t.Run(endpoint, func(t *testing.T) {
			ann, bob := newMCPCaller(t, endpoint, "ann-token"), newMCPCaller(t, endpoint, "bob-token")
			made, text, _ := ann.call("create_context", map[string]any{"name": "ann's"})
			id, _ := made["context_id"].(string)
			if _, _, wrong := ann.call("run_code", map[string]any{"context_id": id, "code": "_ = open('f', 'w').write('x')"}); wrong || id == "" {
				t.Fatal(text)
			}
			done, text, _ := ann.call("run_script_with_dependencies", map[string]any{"script_content": "open('f', 'w').write('x'); print('ann')", "python_version": minor})
			file, _ := done["job_id"].(string)
			begun, text2, _ := ann.call("run_script_with_dependencies_async", map[string]any{"script_content": "import time; time.sleep(600)", "python_version": minor})
			job, _ := begun["job_id"].(string)
			if file == "" || job == "" {
				t.Fatal(text, text2)
			}
			for tool, args := range map[string]map[string]any{
				"get_job_output": {"job_id": job}, "kill_job": {"job_id": job}, "job_cleanup": {"job_id": job},
				"run_code": {"context_id": id, "code": "1"}, "stop_context": {"context_id": id},
			} {
				if _, text, wrong := bob.call(tool, args); !wrong || !strings.Contains(text, "not found") {
					t.Errorf("%s on another owner's: %s", tool, text)
				}
			}
			for _, uri := range []string{"job-stream://" + job, "job-stream://" + file, "execution-file://" + file + "/f", "context-file://" + id + "/f"} {
				if code := bob.refused(uri); code != -32002 {
					t.Errorf("another owner's %s: code %v", uri, code)
				}
				if code := ann.refused(uri); code != 0 {
					t.Errorf("her own %s: code %v", uri, code)
				}
			}
			if fields, _, _ := bob.call("list_running_jobs", nil); len(fields["result"].([]any)) != 0 {
				t.Errorf("another owner's jobs are listed: %v", fields)
			}
			if fields, _, _ := bob.call("list_contexts", nil); fields["total"] != 0.0 {
				t.Errorf("another owner's contexts are listed: %v", fields)
			}
			// Another's session id, with one's own token.
			thief := &mcpCaller{t: t, url: endpoint, token: "bob-token", session: ann.session}
			if status, _, err := thief.post(1, "tools/list", nil); err != nil || status != http.StatusNotFound {
				t.Errorf("another owner's MCP session: status %d, %v", status, err)
			}
			// A call of hers that waits is not cancelled by its id: neither from his session, nor with hers, nor with none.
			result := make(chan map[string]any, 1)
			go func() {
				_, last, err := ann.post(99, "tools/call", map[string]any{"name": "run_code", "arguments": map[string]any{
					"context_id": id, "code": "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.02)\n'went on'",
				}})
				if err != nil {
					last = map[string]any{"error": err.Error()}
				}
				result <- last
			}()
			other := newMCPCaller(t, endpoint, "ann-token") // the same owner, another client
			awaittest.Until(t, "her call runs", func() bool { return other.refused("context-file://"+id+"/begun") == 0 })
			for _, foreign := range []*mcpCaller{bob, thief, {t: t, url: endpoint, token: "bob-token"}, other} {
				if _, _, err := foreign.post(-1, "notifications/cancelled", map[string]any{"requestId": 99}); err != nil {
					t.Error(err)
				}
			}
			if r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url+"/api/v1/sessions/"+id+"/files/go", strings.NewReader("")); err != nil {
				t.Fatal(err)
			} else {
				r.Header.Set("Authorization", "Bearer ann-token")
				if a := s.do(r); a.status != http.StatusOK {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			if last := <-result; !strings.Contains(fmt.Sprint(last), "went on") {
				t.Errorf("her call was cancelled: %v", last)
			}
			ann.call("kill_job", map[string]any{"job_id": job})
			ann.call("stop_context", map[string]any{"context_id": id})
			ann.call("job_cleanup", nil)
		})
	}
}
