package mcpfrontend

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// links returns the URIs of the resource links of a result, and the other content after the first text.
func links(t *testing.T, a answer) (uris []string, others []map[string]any) {
	t.Helper()
	if a.isError || len(a.content) == 0 {
		t.Fatalf("%v", a)
	}
	for _, part := range a.content[1:] {
		m, _ := part.(map[string]any)
		if m["type"] != "resource_link" {
			others = append(others, m)
			continue
		}
		if m["name"] == "" || m["mimeType"] == "" || m["size"] == nil {
			t.Errorf("a link without its name, type or size: %v", m)
		}
		uris = append(uris, m["uri"].(string))
	}
	return uris, others
}

// read returns the parts of a resource, or the code of the error.
func (c *client) read(uri string, headers map[string]string, meta map[string]any) (parts []map[string]any, code float64) {
	c.t.Helper()
	c.id++
	params := map[string]any{"uri": uri}
	if meta != nil {
		params["_meta"] = meta
	}
	_, messages, err := c.post(c.t.Context(), map[string]any{"jsonrpc": "2.0", "id": c.id, "method": "resources/read", "params": params}, headers)
	if err != nil || len(messages) != 1 {
		c.t.Fatalf("%s: %v, %v", uri, messages, err)
	}
	if e, ok := messages[0]["error"].(map[string]any); ok {
		if message, _ := e["message"].(string); !strings.Contains(message, "resource not found") && e["code"] != -32603.0 {
			c.t.Errorf("%s: %v", uri, e)
		}
		code, _ = e["code"].(float64)
		return nil, code
	}
	result, _ := messages[0]["result"].(map[string]any)
	contents, _ := result["contents"].([]any)
	for _, part := range contents {
		parts = append(parts, part.(map[string]any))
	}
	return parts, 0
}

// text returns the content of a resource, which must be one text.
func (c *client) text(uri string) string {
	c.t.Helper()
	parts, code := c.read(uri, nil, nil)
	if len(parts) != 1 || parts[0]["text"] == nil || parts[0]["uri"] != uri {
		c.t.Errorf("%s: %v, code %v", uri, parts, code)
		return ""
	}
	return parts[0]["text"].(string)
}

func twoOwners(c *Config) {
	for _, owner := range []string{"ann", "bob"} {
		sum := sha256.Sum256([]byte(owner + "-token"))
		c.HTTP.Tokens = append(c.HTTP.Tokens, auth.Token{Owner: owner, SHA256: hex.EncodeToString(sum[:])})
	}
}

// as returns another client, which has that token.
func (c *client) as(owner string) *client {
	other := &client{t: c.t, url: c.url, token: owner + "-token"}
	other.initialize()
	return other
}

func TestAnotherOwnersSessionIsNotListenedTo(t *testing.T) {
	server := serveTest(t, newService(t, fake.Options{}), twoOwners)
	ann := server.as("ann")
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		r, err := http.NewRequestWithContext(t.Context(), method, ann.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Mcp-Session-Id", ann.session)
		r.Header.Set("Authorization", "Bearer bob-token")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", method, resp.StatusCode)
		}
	}
	ann.call("list_contexts", nil) // it is still there
}

func TestFilesOfAScriptAreLinkedAndReadByTheirOwner(t *testing.T) {
	server := serveTest(t, newService(t, fake.Options{}), twoOwners)
	ann, bob := server.as("ann"), server.as("bob")
	script := "write-file data.csv 1,2\nwrite-file sub/a.txt deep\nwrite-file .cache kept\nprint done"
	a := ann.call("run_script_with_dependencies", map[string]any{"script_content": script, "python_version": "3.12"})
	uris, others := links(t, a)
	root := "execution-file://" + a.fields["job_id"].(string) + "/"
	if len(uris) != 2 || uris[0] != root+"data.csv" || uris[1] != root+"sub/a.txt" || len(others) != 0 || strings.Contains(a.text, "data.csv") {
		t.Fatalf("%q %v %s", uris, others, a.text)
	}
	if got := ann.text(uris[0]) + ann.text(uris[1]) + ann.text(root+".cache"); got != "1,2deepkept" {
		t.Errorf("%q", got)
	}
	if got := ann.text(root + "data.csv?offset=2"); got != "2" {
		t.Errorf("from the third byte on: %q", got)
	}
	if got := ann.text(root + "data.csv?offset=3"); got != "" {
		t.Errorf("from the end on: %q", got)
	}
	for _, uri := range []string{root + "nothing", root, root + "sub", "execution-file://" + "exe_unknown/data.csv", "job-stream://abc123", "context-file://ctx-unknown/a"} {
		if _, code := ann.read(uri, nil, nil); code != -32002 {
			t.Errorf("%s: code %v", uri, code)
		}
	}
	for _, uri := range []string{uris[0], root + "data.csv?offset=2", "job-stream://" + a.fields["job_id"].(string)} {
		if _, code := bob.read(uri, nil, nil); code != -32002 {
			t.Errorf("another owner's %s: code %v", uri, code)
		}
	}
	for _, uri := range []string{root + "data.csv?offset=4", root + "data.csv?offset=-1", root + "data.csv?offset=x"} {
		if _, code := ann.read(uri, nil, nil); code != -32603 {
			t.Errorf("%s: code %v", uri, code)
		}
	}
	// The current revision has another code for a missing resource.
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "t", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	modern := map[string]string{"Mcp-Session-Id": "", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "resources/read", "Mcp-Name": "job-stream://abc123"}
	if _, code := ann.read("job-stream://abc123", modern, meta); code != -32602 {
		t.Errorf("code %v", code)
	}
	job := ann.call("run_script_with_dependencies_async", map[string]any{"script_content": script, "python_version": "3.12"}).fields["job_id"]
	ann.call("kill_job", map[string]any{"job_id": job}) // waits for its end
	for a = ann.call("get_job_output", map[string]any{"job_id": job}); a.fields["status"] != "finished"; {
		a = ann.call("get_job_output", map[string]any{"job_id": job})
	}
	for _, uri := range func() []string { uris, _ := links(t, a); return uris }() {
		if !strings.HasPrefix(uri, "execution-file://"+job.(string)+"/") {
			t.Errorf("a job's %s", uri)
		}
	}
}

func TestFilesOfAContextAreLinkedWhenACallHasMadeThem(t *testing.T) {
	server := serveTest(t, newService(t, fake.Options{}), twoOwners)
	ann, bob := server.as("ann"), server.as("bob")
	id := ann.call("create_context", map[string]any{"name": "n"}).fields["context_id"].(string)
	run := func(code string) []string {
		t.Helper()
		uris, _ := links(t, ann.call("run_code", map[string]any{"code": code, "context_id": id}))
		return uris
	}
	root := "context-file://" + id + "/"
	if uris := run("write-file a.txt one\nwrite-file .b x"); len(uris) != 1 || uris[0] != root+"a.txt" {
		t.Fatalf("%q", uris)
	}
	if uris := run("print nothing"); len(uris) != 0 {
		t.Errorf("linked once more: %q", uris)
	}
	if uris := run("write-file a.txt another\nwrite-file c.png x"); len(uris) != 2 || uris[0] != root+"a.txt" || uris[1] != root+"c.png" {
		t.Errorf("%q", uris)
	}
	if got := ann.text(root + "a.txt"); got != "another" {
		t.Errorf("%q", got)
	}
	for _, uri := range []string{root + "nothing", root + "..%2Fx", root} {
		if _, code := ann.read(uri, nil, nil); code != -32002 {
			t.Errorf("%s: code %v", uri, code)
		}
	}
	if _, code := bob.read(root+"a.txt", nil, nil); code != -32002 {
		t.Errorf("another owner's: code %v", code)
	}
	ann.call("stop_context", map[string]any{"context_id": id})
	if _, code := ann.read(root+"a.txt", nil, nil); code != -32002 {
		t.Errorf("of a stopped context: code %v", code)
	}
	uris, _ := links(t, ann.call("execute", map[string]any{"command": "fake", "args": []string{"-c", "write-file made.txt x"}}))
	if len(uris) != 1 || !strings.HasPrefix(uris[0], "context-file://ctx-") || ann.text(uris[0]) != "x" {
		t.Errorf("of the shell: %q", uris)
	}
}

// readers is a Service that counts the files that are opened and closed.
type readers struct {
	executor.Service
	opened, closed atomic.Int32
}

func (r *readers) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	f, content, err := r.Service.ReadFile(ctx, id, path)
	return f, r.count(content, err), err
}

func (r *readers) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	content, err := r.Service.Artifacts(ctx, id)
	return r.count(content, err), err
}

func (r *readers) count(content io.ReadCloser, err error) io.ReadCloser {
	if err != nil {
		return content
	}
	r.opened.Add(1)
	return struct {
		io.Reader
		io.Closer
	}{content, closerFunc(func() error { r.closed.Add(1); return content.Close() })}
}

// counts returns how many contents were opened since the last call, and how many of them were closed. The core closes a content
// behind its last byte, which the plugin does not wait for: counts waits for it.
func (r *readers) counts(t *testing.T) (opened, closed int32) {
	t.Helper()
	awaittest.Until(t, "the end of all contents", func() bool { return r.closed.Load() >= r.opened.Load() })
	return r.opened.Swap(0), r.closed.Swap(0)
}

type closerFunc func() error

func (c closerFunc) Close() error { return c() }

func TestAFileIsOpenedOnceAndClosed(t *testing.T) {
	svc := &readers{Service: newService(t, fake.Options{})}
	c := serveTest(t, svc, nil)
	id := c.call("create_context", map[string]any{"name": "n"}).fields["context_id"].(string)
	c.call("run_code", map[string]any{"code": "write-file a.txt one", "context_id": id})
	job := c.call("run_script_with_dependencies", map[string]any{"script_content": "write-file a.txt one", "python_version": "3.12"}).fields["job_id"].(string)
	for uri, code := range map[string]float64{
		"context-file://" + id + "/a.txt": 0, "context-file://" + id + "/a.txt?offset=x": -32603, "context-file://" + id + "/a.txt?offset=9": -32603,
		"context-file://" + id + "/b.txt":    -32002,
		"execution-file://" + job + "/a.txt": 0, "execution-file://" + job + "/a.txt?offset=9": -32603, "execution-file://" + job + "/b.txt": -32002,
	} {
		for _, meta := range []map[string]any{nil, {openedKey: "a client's own"}} {
			if _, got := c.read(uri, nil, meta); got != code {
				t.Errorf("%s: code %v, want %v", uri, got, code)
			}
		}
		if opened, closed := svc.counts(t); opened > 2 || closed != opened || code == 0 && opened != 2 {
			t.Errorf("%s: read twice, opened %d times, closed %d times", uri, opened, closed)
		}
	}
	// A URI that matches no template.
	tools, err := newTools(t.Context(), testConfig(nil), svc, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tools.close(t.Context())
	var request mcp.ReadResourceRequest
	request.Params.URI = "execution-file://" + job + "/a.txt"
	tools.missing(t.Context(), 1, &request)
	tools.unread(t.Context(), 1, mcp.MethodResourcesRead, &request, nil)
	if opened, closed := svc.counts(t); opened != 1 || closed != 1 {
		t.Errorf("opened %d times, closed %d times", opened, closed)
	}
}

func TestManyFilesAreCountedAndLargeOnesAreReadInPieces(t *testing.T) {
	c := serveTest(t, newService(t, fake.Options{}), nil)
	script := "fill-file zeros.bin 1200KB\n"
	for i := range 24 {
		script += fmt.Sprintf("write-file f%02d.txt x\n", i)
	}
	a := c.call("run_script_with_dependencies", map[string]any{"script_content": script, "python_version": "3.12"})
	uris, others := links(t, a)
	if len(uris) != maxFileLinks || len(others) != 1 || !strings.HasPrefix(others[0]["text"].(string), "19 more files were made, among them f06.txt.") {
		t.Fatalf("%q %v", uris, others)
	}
	var size int
	root := "execution-file://" + a.fields["job_id"].(string) + "/"
	next := root + "zeros.bin"
	for pieces := 0; next != ""; pieces++ {
		parts, code := c.read(next, nil, nil)
		if len(parts) == 0 || code != 0 || pieces > 5 {
			t.Fatalf("%s: %v, code %v", next, parts, code)
		}
		data, err := base64.StdEncoding.DecodeString(parts[0]["blob"].(string))
		if err != nil || len(data) > maxPiece || parts[0]["mimeType"] != "application/octet-stream" {
			t.Errorf("%d bytes, %v, %v", len(data), parts[0]["mimeType"], err)
		}
		size += len(data)
		next = ""
		if len(parts) == 2 {
			next = parts[1]["uri"].(string)
			if want := fmt.Sprintf("of %d; read %s for the rest]", 1200<<10, next); !strings.Contains(parts[1]["text"].(string), want) {
				t.Errorf("%v", parts[1])
			}
		}
	}
	if size != 1200<<10 {
		t.Errorf("%d bytes in all", size)
	}
	listed, _ := c.request("resources/templates/list", map[string]any{})
	if raw, err := json.Marshal(listed); err != nil || !strings.Contains(string(raw), "execution-file://{execution_id}/{+path}{?offset}") ||
		!strings.Contains(string(raw), "context-file://{context_id}/{+path}{?offset}") {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestLinksAreBoundedAndTheRestIsCounted(t *testing.T) {
	t.Parallel()
	files := []executor.Artifact{{Path: "sub/.cache/a"}, {Path: ".b"}}
	for i := range maxFileLinks {
		files = append(files, executor.Artifact{Path: fmt.Sprintf("f%d", i)})
	}
	for name, test := range map[string]struct {
		files   []executor.Artifact
		omitted int64
		more    string
	}{
		"all have a link":               {files, 0, ""},
		"one has none":                  {append(slices.Clone(files), executor.Artifact{Path: "g"}), 0, "1 more files were made, among them g."},
		"some are not even in the list": {append(slices.Clone(files), executor.Artifact{Path: "g"}), 3, "4 more files were made, among them g."},
	} {
		list := fileLinks(executionFiles, "exe_1", test.files, test.omitted)
		if len(list) < maxFileLinks {
			t.Fatalf("%s: %v", name, list)
		}
		if rest := text(list[maxFileLinks:]); (rest == "[]") != (test.more == "") || !strings.Contains(rest, test.more) {
			t.Errorf("%s: %s", name, rest)
		}
	}
}

// purging is a Service whose executions have been purged.
type purging struct{ executor.Service }

func (purging) Artifacts(context.Context, string) (io.ReadCloser, error) {
	return nil, executor.Errorf(executor.Purged, "it was too long ago")
}

func TestAFileThatWasPurgedDoesNotExist(t *testing.T) {
	c := serveTest(t, purging{newService(t, fake.Options{})}, nil)
	if _, code := c.read("execution-file://exe_1/a.txt", nil, nil); code != -32002 {
		t.Errorf("code %v", code)
	}
}

func TestAPieceOfAFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data  string
		whole bool
		text  bool
		taken int
	}{
		"text":             {"héllo\n", true, true, 7},
		"an empty file":    {"", true, true, 0},
		"half a character": {"h\xc3", false, true, 1},
		"half a character at the end of the file": {"h\xc3", true, false, 2},
		"zeros":                   {"a\x00", true, false, 2},
		"no text":                 {"\xff\xfe", false, false, 2},
		"text that grows as JSON": {strings.Repeat("<", maxPiece), false, true, maxPiece / 8},
	} {
		parts, taken := piece("u", "x", []byte(test.data), test.whole)
		_, isText := parts[0].(mcp.TextResourceContents)
		if raw, _ := json.Marshal(parts); isText != test.text || taken != test.taken || len(raw) > 1<<20-10_000 {
			t.Errorf("%s: text %v, %d bytes taken, %d of JSON", name, isText, taken, len(raw))
		}
	}
	for name, want := range map[string]string{"a b/ü?#%.csv": "execution-file://exe_1/a%20b/%C3%BC%3F%23%25.csv", "a.txt": "execution-file://exe_1/a.txt"} {
		uri := fileURI(executionFiles, "exe_1", name)
		template := mcp.NewResourceTemplate(executionFiles+"{execution_id}/{+path}{?offset}", "x").URITemplate
		if uri != want || !template.Regexp().MatchString(uri) || !template.Regexp().MatchString(uri+"?offset=5") || template.Regexp().MatchString(uri+" ") {
			t.Errorf("%q is %q", name, uri)
		}
	}
}
