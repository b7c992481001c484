package mcpfrontend

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestUnescapeHTML(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"<b>&amp;</b>", `\u003c`, `\\u003c<`, `a\`, "\u2028é\x01\"", `<\>`} {
		escaped, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		plain := unescapeHTML(escaped)
		var back string
		if err := json.Unmarshal(plain, &back); err != nil || back != text || strings.Contains(text, "<") && !strings.Contains(string(plain), "<") {
			t.Errorf("%q: %s, %q, %v", text, plain, back, err)
		}
		if want, err := plainJSON(text); err != nil || string(want) != string(plain) {
			t.Errorf("%q: %s and %s, %v", text, plain, want, err)
		}
	}
	if got := string(unescapeHTML([]byte(`x\`))); got != `x\` {
		t.Errorf("%q", got)
	}
}

func TestTextIsNotEscapedForHTML(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_script_with_dependencies","arguments":{"script_content":"print <b>&","python_version":"3.12"}}}`
	svc := newService(t, fake.Options{})
	check := func(how, raw string) {
		t.Helper()
		if strings.Contains(raw, `u003c`) || strings.Contains(raw, `u003e`) || strings.Contains(raw, `u0026`) || !strings.Contains(raw, "<b>&") {
			t.Errorf("%s: %s", how, raw)
		}
	}
	c := serveTest(t, svc, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader(call))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Mcp-Session-Id", c.session)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	check("HTTP", string(raw))
	p := serveStdioTest(t, svc, nil)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	p.receive()
	p.send(call + "\n")
	line, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	check("stdio", line)
}

func TestTheResultOfAToolAlwaysSaysWhetherItIsAnError(t *testing.T) {
	t.Parallel()
	const begin = `{"jsonrpc":"2.0","id":"a\",\"result\":{\"content\":[","result":`
	for raw, want := range map[string]string{
		begin + `{"content":[{"type":"text","text":"x"}],"structuredContent":{}}}`: begin + `{"isError":false,"content":[{"type":"text","text":"x"}],"structuredContent":{}}}`,
		begin + `{"content":[],"isError":true,"structuredContent":{}}}`:            begin + `{"content":[],"isError":true,"structuredContent":{}}}`,
		begin + `{"content":[{"type":"text","text":"],\"isError\":true"}]}}`:       begin + `{"isError":false,"content":[{"type":"text","text":"],\"isError\":true"}]}}`,
		begin + `{"contents":[]}}`:                begin + `{"contents":[]}}`,
		begin + `{"isError":false,"content":[]}}`: begin + `{"isError":false,"content":[]}}`,
	} {
		if got := string(withIsError([]byte(raw))); got != want {
			t.Errorf("%s\nbecomes %s", raw, got)
		}
	}
	c := serveTest(t, newService(t, fake.Options{}), nil)
	for tool, want := range map[string]bool{"list_contexts": false, "stop_context": true} {
		result, _ := c.request("tools/call", map[string]any{"name": tool, "arguments": map[string]any{}})
		if got, said := result["isError"].(bool); !said || got != want {
			t.Errorf("%s: isError is %v", tool, result["isError"])
		}
	}
}
