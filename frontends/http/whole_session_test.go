package httpfrontend_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	httpfrontend "github.com/python-executor/python-executor/frontends/http"
)

// tokens of two owners, one that may only look, one that may only execute.
func tokens(t *testing.T) *auth.Authenticator {
	t.Helper()
	token := func(owner, secret string, scopes ...executor.Scope) auth.Token {
		sum := sha256.Sum256([]byte(secret))
		return auth.Token{Owner: owner, SHA256: hex.EncodeToString(sum[:]), Scopes: scopes}
	}
	a, err := auth.New([]auth.Token{
		token("ann", "ann"), token("bob", "bob"), token("ann", "ann-reads", executor.ScopeRead), token("ann", "ann-runs", executor.ScopeExec), token("root", "root", executor.ScopeAdmin),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// withSessions is the frontend over a real engine and a fake with sessions, with tokens.
func withSessions(t *testing.T, change func(*config.Sessions)) *whole {
	t.Helper()
	return newWhole(t, func(eo *engine.Options, fo *httpfrontend.Options) {
		caps := fake.DefaultCapabilities()
		caps.Sessions = true
		eo.Backends = map[string]executor.Backend{"fake": fake.New(fake.Options{Capabilities: &caps})}
		eo.Sessions = config.Default().Sessions
		if change != nil {
			change(&eo.Sessions)
		}
		fo.Auth, fo.MaxFileBytes = tokens(t), eo.Sessions.MaxFileBytes
	})
}

// as sends a request with a token.
func (w *whole) as(token, method, path, body string) (int, map[string]any, *http.Response) {
	w.t.Helper()
	contentType := ""
	if body != "" {
		contentType = "application/json"
	}
	return w.call(method, path, contentType, strings.NewReader(body), "Authorization", "Bearer "+token)
}

// open opens a session of ann's.
func (w *whole) open() string {
	w.t.Helper()
	status, s, _ := w.as("ann", "POST", "/api/v1/sessions", `{"name":"one"}`)
	id, _ := s["session_id"].(string)
	if status != 201 || id == "" {
		w.t.Fatalf("%d %v", status, s)
	}
	return id
}

func TestStateLivesBetweenExecutions(t *testing.T) {
	w := withSessions(t, nil)
	id := w.open()
	run := func(code string) map[string]any {
		t.Helper()
		body, err := json.Marshal(map[string]any{"session_id": id, "code": code})
		if err != nil {
			t.Fatal(err)
		}
		status, r, _ := w.as("ann", "POST", "/api/v1/exec/sync", string(body))
		if status != 200 || r["session_id"] != id {
			t.Fatalf("%d %v", status, r)
		}
		return r
	}
	run("set x 100")
	if r := run("add x 1\nvalue x"); fmt.Sprint(r["displays"]) != "[map[data:101 display:0 mime:text/plain value:true]]" || r["session_state"] != "kept" {
		t.Errorf("%v", r)
	}
	// A plot comes back as an event, and as base64 in the result.
	r := run("display image/png \"\\x89PNG\"\ndisplay text/html <b>")
	if fmt.Sprint(r["displays"]) != "[map[base64:iVBORw== display:0 mime:image/png value:false] map[data:<b> display:1 mime:text/html value:false]]" {
		t.Errorf("%v", r["displays"])
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v1/executions/"+r["execution_id"].(string)+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ann")
	res, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var shown []string
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: {\"data\":"); ok {
			shown = append(shown, data)
		}
	}
	if got := strings.Join(shown, "|"); got != `{"image/png":{"base64":"iVBORw=="}},"value":false}|{"text/html":"\u003cb\u003e"},"value":false}` {
		t.Errorf("%s", got)
	}
	// By multipart, too.
	form := "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n" + `{"session_id":"` + id + `","code":"get x"}` + "\r\n--b--\r\n"
	if status, r, _ := w.call("POST", "/api/v1/exec/sync", "multipart/form-data; boundary=b", strings.NewReader(form), "Authorization", "Bearer ann"); status != 200 || r["stdout"] != "101\n" {
		t.Errorf("%d %v", status, r)
	}
	if status, v, _ := w.as("ann", "GET", "/api/v1/sessions/"+id+"/variables", ""); status != 200 || !strings.Contains(fmt.Sprint(v), "name:x") {
		t.Errorf("%d %v", status, v)
	}
	if status, s, _ := w.as("ann", "POST", "/api/v1/sessions/"+id+"/restart", `{"wipe":true}`); status != 200 || s["restarts"] != 1.0 {
		t.Errorf("%d %v", status, s)
	}
	if r := run("get x"); r["status"] == "succeeded" && r["stdout"] == "101\n" {
		t.Errorf("%v", r)
	}
}

func TestWhatIsFixedForASessionIsRefusedInIt(t *testing.T) {
	w := withSessions(t, nil)
	id := w.open()
	for field, value := range map[string]string{"python_version": `"3.12"`, "requirements_txt": `"idna"`, "env": `{"A":"b"}`, "backend": `"fake"`, "docker_image": `"python:3.12"`, "config": `{"memory_mb":5}`, "language": `"python"`} {
		status, p, _ := w.as("ann", "POST", "/api/v1/exec/sync", `{"session_id":"`+id+`","code":"print 1","`+field+`":`+value+`}`)
		if status != 422 || !strings.Contains(fmt.Sprint(p["errors"]), "field:"+field) {
			t.Errorf("%s: %d %v", field, status, p)
		}
	}
	for body, field := range map[string]string{`"files":{"main.py":"print 1"}`: "files", `"files":{}`: "files", `"entrypoint":"main.py","command":["x"]`: "entrypoint"} {
		if status, p, _ := w.as("ann", "POST", "/api/v1/exec/sync", `{"session_id":"`+id+`",`+body+`}`); status != 422 || !strings.Contains(fmt.Sprint(p["errors"]), "field:"+field) {
			t.Errorf("%s: %d %v", body, status, p)
		}
	}
}

func TestASessionIsItsOwnersAndAScopesMatter(t *testing.T) {
	w := withSessions(t, nil)
	id := w.open()
	one := "/api/v1/sessions/" + id
	put := func(token, path string) int {
		status, _, _ := w.call("PUT", path, "application/octet-stream", strings.NewReader("x"), "Authorization", "Bearer "+token)
		return status
	}
	if got := put("ann", one+"/files/f"); got != 200 {
		t.Fatalf("%d", got)
	}
	looking := []string{"GET " + one, "GET " + one + "/files", "GET " + one + "/files/f"}
	doing := []string{"POST " + one + "/interrupt", "POST " + one + "/restart", "POST " + one + "/requirements", "DELETE " + one + "/files/none", "PUT " + one + "/files/f", "DELETE " + one}
	send := func(token, what string) (int, any) {
		method, path, _ := strings.Cut(what, " ")
		if method == "PUT" {
			return put(token, path), nil
		}
		body := map[bool]string{true: `{"requirements_txt":"idna"}`}[strings.HasSuffix(path, "/requirements")]
		if strings.HasSuffix(path, "/sessions") {
			body = "{}"
		}
		status, v, _ := w.as(token, method, path, body)
		return status, v
	}
	for _, what := range append(append([]string{}, looking...), doing...) {
		if status, v := send("bob", what); status != 404 {
			t.Errorf("bob: %s is %d %v", what, status, v)
		}
	}
	if status, list, _ := w.as("bob", "GET", "/api/v1/sessions", ""); status != 200 || len(list["sessions"].([]any)) != 0 {
		t.Errorf("bob sees %d %v", status, list)
	}
	if status, p, _ := w.as("bob", "POST", "/api/v1/exec/sync", `{"session_id":"`+id+`","code":"print 1"}`); status != 404 {
		t.Errorf("bob runs: %d %v", status, p)
	}
	for _, what := range looking {
		if status, v := send("ann-reads", what); status != 200 {
			t.Errorf("who reads: %s is %d %v", what, status, v)
		}
		if status, v := send("ann-runs", what); status != 403 {
			t.Errorf("who runs: %s is %d %v", what, status, v)
		}
		if status, v := send("root", what); status != 200 {
			t.Errorf("root: %s is %d %v", what, status, v)
		}
	}
	for _, what := range append(doing, "POST /api/v1/sessions") {
		status, _ := send("ann-reads", what)
		if status != 403 {
			t.Errorf("who reads: %s is %d", what, status)
		}
	}
	if status, r, _ := w.as("ann-runs", "POST", "/api/v1/exec/sync", `{"session_id":"`+id+`","code":"print 1"}`); status != 200 || r["stdout"] != "1\n" {
		t.Errorf("who runs: %d %v", status, r)
	}
}

func TestSessionsHaveTheirBounds(t *testing.T) {
	w := withSessions(t, func(s *config.Sessions) { s.Max, s.MaxFileBytes, s.EvictIdleSeconds = 1, 10, 3600 })
	id := w.open()
	if status, p, res := w.as("ann", "POST", "/api/v1/sessions", "{}"); status != 429 || p["code"] != "exhausted" || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %v", status, p, res.Header)
	}
	for body, want := range map[string]int{"0123456789": 200, "0123456789a": 413} {
		for _, r := range []io.Reader{strings.NewReader(body), io.MultiReader(strings.NewReader(body))} { // with its length and without
			if status, p, _ := w.call("PUT", "/api/v1/sessions/"+id+"/files/f", "", r, "Authorization", "Bearer ann"); status != want {
				t.Errorf("%d bytes: %d %v", len(body), status, p)
			}
		}
	}
	if status, p, _ := w.as("ann", "POST", "/api/v1/sessions/"+id+"/requirements", `{"requirements_txt":"no-such-package"}`); status != 200 && (status != 422 || !strings.Contains(fmt.Sprint(p["errors"]), "requirements_txt")) {
		t.Errorf("%d %v", status, p)
	}
	if status, s, _ := w.as("ann", "DELETE", "/api/v1/sessions/"+id, ""); status != 200 || s["status"] != "closed" {
		t.Errorf("%d %v", status, s)
	}
	for _, what := range []string{"GET /files", "GET /variables", "POST /restart"} {
		method, path, _ := strings.Cut(what, " ")
		if status, p, _ := w.as("ann", method, "/api/v1/sessions/"+id+path, ""); status != 409 || p["code"] != "conflict" {
			t.Errorf("%s of a closed one: %d %v", what, status, p)
		}
	}
	if status, p, _ := w.as("ann", "POST", "/api/v1/exec/async", `{"session_id":"`+id+`","code":"print 1"}`); status != 409 || !strings.Contains(fmt.Sprint(p["errors"]), "field:session_id") {
		t.Errorf("%d %v", status, p)
	}
	if status, s, _ := w.as("ann", "GET", "/api/v1/sessions/"+id, ""); status != 200 || s["status"] != "closed" || s["reason"] == nil {
		t.Errorf("%d %v", status, s)
	}
}

func TestABackendWithoutSessionsIs501(t *testing.T) {
	w := newWhole(t, nil)
	if status, p, _ := w.call("POST", "/api/v1/sessions", "application/json", strings.NewReader("{}")); status != 501 || p["code"] != "unimplemented" {
		t.Errorf("%d %v", status, p)
	}
	if status, list, _ := w.call("GET", "/api/v1/sessions", "", nil); status != 200 || len(list["sessions"].([]any)) != 0 {
		t.Errorf("%d %v", status, list)
	}
}
