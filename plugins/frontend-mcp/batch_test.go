package mcpfrontend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

const initializeOf = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// raw posts a body unchanged and returns the status, media type and body of the answer.
func (c *client) raw(body string) (int, string, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), strings.TrimSpace(string(all))
}

// facts maps the ids of answers to the code of their error or to the stdout of their result.
func facts(t *testing.T, raw string) string {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(raw), &list); err != nil {
		t.Fatalf("%v: %q", err, raw)
	}
	var said []string
	for _, m := range list {
		what := "ok"
		if e, ok := m["error"].(map[string]any); ok {
			what = fmt.Sprint(e["code"])
		} else if result, ok := m["result"].(map[string]any); ok && result["structuredContent"] != nil {
			what = fmt.Sprint(result["structuredContent"].(map[string]any)["stdout"])
		}
		said = append(said, fmt.Sprintf("%v=%s", m["id"], what))
	}
	slices.Sort(said)
	return strings.Join(said, " ")
}

func callOf(id, code, meta string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"run_script_with_dependencies","arguments":{"script_content":"` + code +
		`","python_version":"3.12"}` + meta + `}}`
}

// batches maps bodies to the facts of their answers.
var batches = map[string]struct{ body, want string }{
	"requests and a notification": {`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},` + callOf(`"two"`, "write hi", "") + `]`, "1=ok two=hi"},
	"one":                         {" [ " + callOf("1.0", "write x", "") + "\n]", "1=x"},
	"what is no message":          {`[1,null,"x",{"jsonrpc":"2.0","id":7,"method":"ping"}]`, "7=ok <nil>=-32600 <nil>=-32600 <nil>=-32600"},
	"an unknown method":           {`[{"jsonrpc":"2.0","id":1,"method":"no/such"}]`, "1=-32601"},
	"initialize is no part":       {`[` + fmt.Sprintf(initializeOf, batchVersion) + `]`, "i=-32600"},
}

func TestBatchesAreTakenInTheRevisionThatHasThem(t *testing.T) {
	svc := newService(t, fake.Options{})
	c := serveTest(t, svc, nil)
	one := `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`
	if status, _, body := c.raw(one); status != 400 || !strings.Contains(body, "revision 2025-03-26 only") {
		t.Errorf("of a client of another revision: %d %s", status, body)
	}
	c.session = ""
	if status, _, body := c.raw(one); status != 400 || !strings.Contains(body, "revision 2025-03-26 only") {
		t.Errorf("of a client of no session: %d %s", status, body)
	}
	if status, _, body := c.raw(fmt.Sprintf(initializeOf, batchVersion)); status != 200 || !strings.Contains(body, `"protocolVersion":"2025-03-26"`) {
		t.Fatalf("%d %s", status, body)
	}
	for name, test := range batches {
		status, mediaType, body := c.raw(test.body)
		if got := facts(t, body); status != 200 || mediaType != "application/json" || !sameFacts(got, test.want) {
			t.Errorf("%s: %d %s %s", name, status, mediaType, got)
		}
	}
	for body, want := range map[string]int{
		`[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":9,"result":{}}]`: 202, `[]`: 400, `[{]`: 400,
		"[" + strings.Repeat("1,", maxBatch) + "1]": 400,
	} {
		if status, _, body := c.raw(body); status != want || want == 202 && body != "" {
			t.Errorf("%d, not %d: %s", status, want, body)
		}
	}
	if _, _, body := c.raw(`[{"jsonrpc":"2.0","id":1,`); !strings.Contains(body, `"code":-32700`) {
		t.Errorf("a batch that breaks off: %s", body)
	}
	// The progress of a message comes before the answers.
	status, mediaType, body := c.raw(`[` + callOf("1", "print x", `,"_meta":{"progressToken":"p"}`) + `,{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
	list := messagesOf(t, mediaType, []byte(body))
	if status != 200 || mediaType != "text/event-stream" || len(list) < 3 || list[0]["method"] != "notifications/progress" || list[len(list)-1]["id"] == nil || list[len(list)-2]["id"] == nil {
		t.Errorf("%d %s %v", status, mediaType, list)
	}
}

// sameFacts compares facts in any order.
func sameFacts(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func TestBatchesOverStdio(t *testing.T) {
	p := serveStdioTest(t, newService(t, fake.Options{}), nil)
	line := func() string {
		t.Helper()
		line, err := p.lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	for version, taken := range map[string]bool{"2025-06-18": false, batchVersion: true} {
		p.send(fmt.Sprintf(initializeOf, version) + "\n")
		if answer := line(); !strings.Contains(answer, `"protocolVersion":"`+version+`"`) {
			t.Fatal(answer)
		}
		for name, test := range batches {
			p.send(strings.ReplaceAll(test.body, "\n", " ") + "\n")
			switch answer := line(); {
			case !taken && !strings.Contains(answer, "revision 2025-03-26 only"):
				t.Errorf("%s, of another revision: %s", name, answer)
			case taken && !sameFacts(facts(t, answer), test.want):
				t.Errorf("%s: %s", name, answer)
			}
		}
		p.send("[]\n")
		if answer := line(); !strings.Contains(answer, `"code":-32600`) || answer[0] != '{' {
			t.Errorf("an empty batch: %s", answer)
		}
		p.send(`[{"jsonrpc":"2.0","id":1,` + "\n")
		if answer := line(); !strings.Contains(answer, `"code":-32700`) || answer[0] != '{' {
			t.Errorf("a batch that breaks off: %s", answer)
		}
	}
	// Requests are still answered after the end of standard input.
	p.send(fmt.Sprintf(initializeOf, batchVersion) + "\n")
	line()
	p.send(`[` + callOf("1", "sleep 50ms\\nwrite late", "") + `,{"jsonrpc":"2.0","method":"notifications/initialized"}]`)
	p.in.Close()
	if answer := line(); facts(t, answer) != "1=late" {
		t.Error(answer)
	}
}

// mcp-go cannot find a call that is cancelled before it has begun.
func TestACancelThatOvertakesItsCallIsNotLost(t *testing.T) {
	c := newStdioClient(strings.NewReader(""), io.Discard)
	hooks := &server.Hooks{}
	hooks.AddBeforeCallTool(begun)
	s := server.NewMCPServer("t", "1", server.WithHooks(hooks))
	s.AddTool(mcp.NewTool("wait"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	ctx := executor.WithPrincipal(context.WithValue(t.Context(), stdioKey{}, c), executor.Principal{Owner: executor.LocalOwner})
	call := []byte(`{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"wait"}}`)
	if line := c.take(call); string(line) != string(call)+"\n" {
		t.Fatalf("%q", line)
	}
	cancel := []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if line := c.take(cancel); line != nil {
		t.Fatalf("it is passed on before the call has begun: %q", line)
	}
	if _, ok := s.HandleMessage(ctx, call).(mcp.JSONRPCError); !ok { // or it would wait for ever
		t.Error("it was not cancelled")
	}
	if line := c.take(cancel); string(line) != string(cancel)+"\n" {
		t.Errorf("behind the beginning it is mcp-go's: %q", line)
	}
}
