package tests

import (
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// TestMCPAfternoon does an agent's work with the official Python client: packages in the first call, a plot, a wrong import, an endless
// loop, files in and out. All answers together have less than 3,000 tokens.
func TestMCPAfternoon(t *testing.T) {
	python := mcpPython(t)
	env := []string{"PYEXEC_BACKENDS_UV_CACHE_DIR=" + cacheDir}
	args := []string{"testdata/mcp/afternoon.py", "--python", minorOf(t, env)}
	for name, how := range map[string]func(t *testing.T) []string{
		"stdio": func(*testing.T) []string { return []string{"--", binary, "mcp"} },
		"http":  func(t *testing.T) []string { t.Helper(); return []string{"--url", startServer(t, env).url + "/mcp"} },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := awaittest.Context(t)
			cmd := exec.CommandContext(ctx, python, slices.Concat(args, how(t))...)
			cmd.Env = environ(env...)
			cmd.WaitDelay = 10 * time.Second
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, tail(out, 8000))
			}
			t.Logf("%s", out)
		})
	}
}

// TestAnMCPClientNeedsOnlyTheServersURL sends the first request as soon as the server has printed its address.
func TestAnMCPClientNeedsOnlyTheServersURL(t *testing.T) {
	s := startServer(t, nil)
	for range 5 {
		s.stop()
		s.launch()
		c := newMCPCaller(t, s.url+"/mcp", "")
		status, last, err := c.post(1, "tools/list", map[string]any{})
		result, _ := last["result"].(map[string]any)
		if tools, _ := result["tools"].([]any); err != nil || status != http.StatusOK || len(tools) == 0 {
			t.Fatalf("%d %v %v", status, last, err)
		}
		made, text, wrong := c.call("create_context", map[string]any{"name": "first"})
		if wrong {
			t.Fatal(text)
		}
		if ran, text, _ := c.call("run_code", map[string]any{"context_id": made["context_id"], "code": "6 * 7"}); ran["result"] != "42" {
			t.Fatal(text)
		}
	}
}

// TestMCPAtTheServersPort has the tokens and the rules of the HTTP API, and no listener of its own.
func TestMCPAtTheServersPort(t *testing.T) {
	s := startServer(t, []string{`PYEXEC_HTTP_TOKENS=[{"owner": "ann", "sha256": "` + sha("secret") + `"}]`})
	for name, test := range map[string]struct {
		headers map[string]string
		status  int
	}{
		"no token":         {nil, http.StatusUnauthorized},
		"another token":    {map[string]string{"Authorization": "Bearer other"}, http.StatusUnauthorized},
		"a foreign origin": {map[string]string{"Authorization": "Bearer secret", "Origin": "http://evil.example"}, http.StatusForbidden},
		"the token":        {map[string]string{"Authorization": "Bearer secret"}, http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for key, value := range test.headers {
			r.Header.Set(key, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.status {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, test.status)
		}
	}
	if log := s.log.String(); strings.Contains(log, "listening for MCP") {
		t.Error("MCP has a listener of its own")
	}
	without := startServer(t, []string{"PYEXEC_MCP_TOOLSETS=[]"})
	if got := without.get("/mcp").status; got != http.StatusNotFound {
		t.Errorf("without toolsets: %d", got)
	}
}

func TestMCPContextsHaveTheConfiguredPackages(t *testing.T) {
	needtest.Long(t, "the tests of plugins/frontend-mcp")
	mcpPython(t) // there is an index
	s := startServer(t, []string{"PYEXEC_MCP_CONTEXTS_REQUIREMENTS=[idna==3.10]"})
	awaittest.Until(t, "the environment is prepared", func() bool { return strings.Contains(s.log.String(), "mcp.contexts.requirements: prepared") })
	c := newMCPCaller(t, s.url+"/mcp", "")
	made, text, wrong := c.call("create_context", map[string]any{"name": "n"})
	if wrong {
		t.Fatal(text)
	}
	if ran, text, _ := c.call("run_code", map[string]any{"context_id": made["context_id"], "code": "import idna; idna.__version__"}); ran["result"] != "'3.10'" {
		t.Error(text)
	}
}
