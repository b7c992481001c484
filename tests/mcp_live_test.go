package tests

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// notifications opens the stream of an MCP session, and returns its messages.
func (c *mcpCaller) notifications() <-chan string {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Mcp-Session-Id", c.session)
	r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("the stream of the session: %s", resp.Status)
	}
	messages := make(chan string, 100)
	go func() {
		defer close(messages)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				messages <- data
			}
		}
	}()
	return messages
}

// tools lists the names of the tools, sorted.
func (c *mcpCaller) tools() (names []string) {
	c.t.Helper()
	status, last, err := c.post(1, "tools/list", map[string]any{})
	result, _ := last["result"].(map[string]any)
	tools, _ := result["tools"].([]any)
	if err != nil || status != http.StatusOK || len(tools) == 0 {
		c.t.Fatalf("%d %v %v", status, last, err)
	}
	for _, tool := range tools {
		names = append(names, tool.(map[string]any)["name"].(string))
	}
	slices.Sort(names)
	return names
}

// TestMCPSessionsSeeTheBackendOfALiveSwitch has sessions open while the configuration goes to a backend without sessions, and back. They
// stay, idle ones are told, and a call that runs is answered by the former backend.
func TestMCPSessionsSeeTheBackendOfALiveSwitch(t *testing.T) {
	needtest.Long(t, "TestABackendIsSwitchedUnderLoad")
	plugin := examplePlugin(t, "go")
	raw, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(raw)
	uv := "backend: one\nbackends:\n" + uvSection("one", "200500-200549")
	other := fmt.Sprintf("backend: other\nbackends:\n  other: {path: %q, sha256: %s}\n", plugin, hex.EncodeToString(digest[:]))
	c := newLiveConfig(t, uv)
	s := startServer(t, nil, "--config", c.path())
	busy, idle := newMCPCaller(t, s.url+"/mcp", ""), newMCPCaller(t, s.url+"/mcp", "")
	heard := idle.notifications()
	before := idle.tools()
	if !slices.Contains(before, "run_code") || !slices.Contains(before, "execute") {
		t.Fatalf("the tools of uv: %v", before)
	}
	changed := func() {
		t.Helper()
		awaittest.Until(t, "the idle session is told that the tools have changed", func() bool {
			select {
			case m, open := <-heard:
				if !open {
					t.Fatal("the stream of the session has ended")
				}
				return strings.Contains(m, "notifications/tools/list_changed")
			default:
				return false
			}
		})
	}

	made, text, wrong := busy.call("create_context", map[string]any{"name": "kept"})
	if wrong {
		t.Fatal(text)
	}
	type answer struct {
		fields map[string]any
		text   string
	}
	pending := make(chan answer, 1)
	go func() {
		fields, text, _ := busy.call("run_code", map[string]any{
			"context_id": made["context_id"], "code": "import os, time\nx = 42\nwhile not os.path.exists('gate'): time.sleep(0.05)\nx",
		})
		pending <- answer{fields, text}
	}()
	awaittest.Until(t, "the call runs", func() bool { return len(s.running()) == 1 })

	c.replace(other)
	s.awaitBackends("other", "one")
	changed()
	if now := idle.tools(); slices.Contains(now, "run_code") || !slices.Contains(now, "run_script_with_dependencies") {
		t.Errorf("the tools of the other backend: %v", now)
	}
	third := newMCPCaller(t, s.url+"/mcp", "")
	if ran, text, _ := third.call("run_script_with_dependencies", map[string]any{"script_content": "print('on the other')"}); ran["stdout"] != "on the other\n" {
		t.Errorf("a call on the other backend: %v %s", ran, text)
	}
	if a := s.do(s.request(http.MethodPut, fmt.Sprintf("/api/v1/sessions/%s/files/gate", made["context_id"]), strings.NewReader("open"))); a.status != http.StatusOK {
		t.Fatalf("write into the context: %d %s", a.status, a.body)
	}
	if got := <-pending; got.fields["result"] != "42" {
		t.Errorf("the call that ran: %v %s", got.fields, got.text)
	}

	c.replace(uv)
	awaittest.Until(t, "the configuration is back", func() bool { names, _ := s.backends(); return names[0] == "one" })
	changed()
	for _, session := range []*mcpCaller{busy, idle, third} {
		if now := session.tools(); !slices.Equal(now, before) {
			t.Errorf("the tools of uv again: %v", now)
		}
	}
	if ran, text, _ := busy.call("run_code", map[string]any{"context_id": made["context_id"], "code": "x"}); ran["result"] != "42" {
		t.Errorf("the context: %v %s", ran, text)
	}
}
