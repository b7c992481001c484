package httpfrontend

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// TestWrongUses holds the whole answer to requests that people get wrong: it names the thing, the reason and the remedy. hostile_test.go has
// bodies that no person sends. A request is a method, a path, and the type of its body. FIELDS are the names that a JSON body may have,
// LIMITS those of its config.
func TestWrongUses(t *testing.T) {
	t.Parallel()
	const (
		sync, batch = "POST /api/v1/exec/sync", "POST /api/v1/exec/batch"
		asJSON      = " application/json"
		parts       = " multipart/form-data; boundary=b"
		allowed     = "the Content-Type must be application/json (UTF-8) or multipart/form-data"
		below       = "no such path: the API is below /api/v1, and its description is at /openapi.json "
		session     = "POST /api/v1/sessions"
	)
	form := func(name, content string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + content + "\r\n--b--\r\n"
	}
	h, known := handlerOf(t, hello().service()), handlerOf(t, hello().service(), withTokens(t))
	names := func(of shape) string { return strings.Join(slices.Sorted(maps.Keys(of)), ", ") }
	lists := strings.NewReplacer("FIELDS", names(h.shapes.exec), "LIMITS", names(h.shapes.exec["config"].fields))
	for _, use := range []struct {
		request, body string
		status        int
		detail        string
	}{
		// Paths and methods.
		{"POST /", "", 405, "method: must be one of GET, HEAD (got POST)"},
		{"GET /api/v1", "", 404, below + "(got /api/v1)"},
		{"GET /api/v1/nothing", "", 404, below + "(got /api/v1/nothing)"},
		{"GET /index.html", "", 404, below + "(got /index.html)"},
		{"POST /api/v1/exec", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /api/v1/exec)"},
		{"POST /api/v1/execute", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /api/v1/execute)"},
		{"POST /run", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /run)"},
		{"POST /api/v1/exec/snyc", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /api/v1/exec/snyc)"},
		{"POST /api/v1/exec/sync/", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /api/v1/exec/sync/)"},
		{"POST /exec/sync", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /exec/sync)"},
		{"POST /v1/exec/sync", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /v1/exec/sync)"},
		{"POST /api/v2/exec/sync", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /api/v2/exec/sync)"},
		{"POST /api/v1/api/v1/exec/sync", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /api/v1/api/v1/exec/sync)"},
		{"POST /mount/api/v1/exec/sync", "{}", 404, "no such path: did you mean /api/v1/exec/sync? (got /mount/api/v1/exec/sync)"},
		{"GET /API/V1/Executions", "", 404, "no such path: did you mean /api/v1/executions? (got /API/V1/Executions)"},
		{"GET /api/v1//executions", "", 404, "no such path: did you mean /api/v1/executions? (got /api/v1//executions)"},
		{"GET /api/v1/execution/exe_1/log", "", 404, "no such path: did you mean /api/v1/executions/exe_1/logs? (got /api/v1/execution/exe_1/log)"},
		{"GET /api/v1/session", "", 404, "no such path: did you mean /api/v1/sessions? (got /api/v1/session)"},
		{"GET /api/v1/healthz", "", 404, "no such path: did you mean /healthz? (got /api/v1/healthz)"},
		{"GET /docs/healthz", "", 404, "no such path: did you mean /healthz? (got /docs/healthz)"},
		{"GET /healthz/", "", 404, "no such path: did you mean /healthz? (got /healthz/)"},
		{"GET /health", "", 404, "no such path: did you mean /healthz? (got /health)"},
		{"GET /api/v1/exec/sync", "", 405, "method: must be one of POST (got GET)"},
		{"OPTIONS /api/v1/executions", "", 405, "method: must be one of GET, HEAD (got OPTIONS)"},
		{"PUT /api/v1/sessions/ctx-1/files", "x", 405, "method: must be one of GET, HEAD (got PUT)"},
		// Types of bodies.
		{sync, "", 415, allowed + " (none was given)"},
		{sync + " application/x-www-form-urlencoded", `{"code":"1"}`, 415, allowed + `: with curl, -H 'Content-Type: application/json' (got "application/x-www-form-urlencoded")`},
		{sync + " text/plain", "print(1)", 415, allowed + `: the text of a program is the field code, {"code": "print(1)"} (got "text/plain")`},
		{sync + " text/x-python", "print(1)", 415, allowed + `: the text of a program is the field code, {"code": "print(1)"} (got "text/x-python")`},
		{sync + " text/json", "{}", 415, allowed + ` (got "text/json")`},
		{sync + " application/json; charset=latin1", "{}", 415, allowed + ` (got "application/json; charset=latin1")`},
		{sync + " application/x-tar", "x", 415, allowed + `: a tar is the part tar of a multipart body, and is not compressed (got "application/x-tar")`},
		{sync + " application/zip", "x", 415, allowed + `: a tar is the part tar of a multipart body, and is not compressed (got "application/zip")`},
		{session, "{}", 415, "the Content-Type must be application/json (UTF-8) (none was given)"},
		{session + " application/x-www-form-urlencoded", "name=x", 415,
			`the Content-Type must be application/json (UTF-8): with curl, -H 'Content-Type: application/json' (got "application/x-www-form-urlencoded")`},
		{sync + " multipart/form-data", "{}", 400, "the Content-Type of a multipart body must have a boundary"},
		// JSON.
		{sync + asJSON, "", 400, `the body is not JSON: it is empty, and must be an object, {"name": value}`},
		{sync + asJSON, "{'code': '1'}", 400, `the body is not JSON: invalid character '\'' looking for beginning of object key string at byte 2: names and strings have double quotes`},
		{sync + asJSON, "{\"code\": \"1\n2\"}", 400, `the body is not JSON: invalid character '\n' in string literal at byte 12: a line end in a string is written \n`},
		{sync + asJSON, `{"code": "1"`, 400, "the body is not JSON: unexpected end of JSON input at byte 12: it was cut, or a quote or a bracket is missing"},
		{sync + asJSON, `{"detect": True}`, 400, "the body is not JSON: invalid character 'T' looking for beginning of value at byte 12: the words of JSON are true, false and null"},
		{sync + asJSON, "\ufeff{}", 400, "the body is not JSON: it must not begin with a byte order mark"},
		{sync + asJSON, `[{"code": "1"}]`, 422, "body: must be an object (got an array)"},
		{sync + asJSON, `"print(1)"`, 422, "body: must be an object (got a string)"},
		// Fields.
		{sync + asJSON, "{}", 422, "code: must be given, or command or files"},
		{sync + asJSON, `{"source": "1"}`, 422, "source: unknown field: did you mean code?"},
		{sync + asJSON, `{"code": "1", "timeout": 5}`, 422, "timeout: unknown field: did you mean config.timeout_seconds?"},
		{sync + asJSON, `{"code": "1", "timeout_ms": 5}`, 422, "timeout_ms: unknown field: did you mean config.timeout_seconds?"},
		{sync + asJSON, `{"code": "1", "memory": 5}`, 422, "memory: unknown field: did you mean config.memory_mb?"},
		{sync + asJSON, `{"code": "1", "network": true}`, 422, "network: unknown field: did you mean config.network_disabled?"},
		{sync + asJSON, `{"code": "1", "requirements": ["six"]}`, 422, "requirements: unknown field: did you mean requirements_txt?"},
		{sync + asJSON, `{"code": "1", "packages": ["six"]}`, 422, "packages: unknown field: did you mean requirements_txt?"},
		{sync + asJSON, `{"code": "1", "session": "ctx-1"}`, 422, "session: unknown field: did you mean session_id?"},
		{sync + asJSON, `{"code": "1", "zzz": 1, "yyy": 2}`, 422, "zzz: unknown field: must be one of FIELDS; yyy: unknown field"},
		{sync + asJSON, `{"entry": 1, "CODE": 1, "arg": 1, "sessionid": 1, "image": 1, "memory_mb": 1, "config": {"memroy_mb": 1, "code": 1}, "en": 1}`, 422,
			"entry: unknown field: did you mean entrypoint?; CODE: unknown field: did you mean code?; arg: unknown field: did you mean args?; " +
				"sessionid: unknown field: did you mean session_id?; image: unknown field: did you mean docker_image?; " +
				"memory_mb: unknown field: did you mean config.memory_mb?; config.memroy_mb: unknown field: did you mean config.memory_mb?; " +
				"config.code: unknown field: must be one of LIMITS; en: unknown field: must be one of FIELDS"},
		{sync + asJSON, `{"code": "1", "language": "js"}`, 422, `language: must be one of python, javascript, shell (got "js")`},
		{sync + asJSON, `{"code": "1", "python_version": 3.12}`, 422, `python_version: must be a string (got a number)`},
		{sync + asJSON, `{"command": "ls -l"}`, 422, "command: must be an array of strings (got a string)"},
		{sync + asJSON, `{"code": "1", "env": ["A=b"]}`, 422, "env: must be an object (got an array)"},
		{sync + asJSON, `{"files": {"main.py": {"content": "1"}}}`, 422, `files.main.py: must be a string or {"base64": "…"} (got an object with content)`},
		{sync + asJSON, `{"files": [{"name": "main.py"}]}`, 422, `files: must be an object of names and contents, {"main.py": "print(1)"} (got an array)`},
		{batch + asJSON, `{"code": "1"}`, 422, "cases: must be given"},
		{batch + asJSON, `{"code": "1", "cases": ["1"]}`, 422, "cases[0]: must be an object (got a string)"},
		{batch + asJSON, `{"code": "1", "cases": [{"expected": "1"}]}`, 422, "cases[0].expected: unknown field: did you mean cases[0].expect?"},
		{batch + asJSON, `{"code": "1", "cases": [{"expect": {"output": "1"}}]}`, 422, "cases[0].expect.output: unknown field: did you mean cases[0].expect.stdout?"},
		{session + asJSON, `{"timeout_seconds": 5}`, 422, "timeout_seconds: unknown field: did you mean config.timeout_seconds?"},
		// Parts.
		{sync + parts, form("code", "print(1)"), 422, "code: unknown part: code is a field of the part metadata"},
		{sync + parts, form("file", "print(1)"), 422, "file: unknown part: must be metadata, tar or stdin; the tar has the files"},
		{sync + parts, form("stdin", "1"), 400, `metadata: missing part: must be JSON, {"entrypoint": "main.py"}`},
		{sync + parts, form("metadata", "entrypoint=main.py"), 400, "metadata: is not JSON: invalid character 'e' looking for beginning of value at byte 1"},
		// Queries.
		{sync + "?timeout=5" + asJSON, `{"code": "1"}`, 422, "timeout: unknown parameter: there is none here"},
		{"GET /api/v1/executions?limits=1", "", 422, "limits: unknown parameter: did you mean limit?"},
		{"GET /api/v1/executions?page=2", "", 422, "page: unknown parameter: must be one of after, limit, status"},
		{"GET /api/v1/executions?limit=x", "", 422, `limit: must be a whole number (got "x")`},
		{"GET /api/v1/executions?status=done", "", 422, `status: must be one of queued, running, succeeded, failed, timed_out, out_of_memory, killed, lost (got "done")`},
		{"GET " + one + "/events?from=1", "", 422, "from: unknown parameter: must be after"},
		{"GET " + one + "/logs?folow=true", "", 422, "folow: unknown parameter: did you mean follow?"},
		{"DELETE " + one + "?force=%zz", "", 422, `the query cannot be read: invalid URL escape "%zz"`},
		// Tokens.
		{"GET " + one + " without a token", "", 401, `Authorization: must be "Bearer TOKEN", with a token of this server; its clients take it from PYEXEC_TOKEN`},
		{"GET " + one + " with a token", "", 401, "Authorization: the bearer token is unknown: it must be one of this server's tokens, whole and without quotes"},
	} {
		method, rest, _ := strings.Cut(use.request, " ")
		path, mediaType, _ := strings.Cut(rest, " ")
		var header []string
		server := http.Handler(h)
		switch {
		case strings.HasSuffix(mediaType, " a token"):
			server = known
			if strings.HasPrefix(mediaType, "with ") {
				header = []string{"Authorization", `Bearer "ann-token"`}
			}
		case mediaType != "":
			header = []string{"Content-Type", mediaType}
		}
		w := do(t, server, method, path, strings.NewReader(use.body), header...)
		if p := decode(t, w.Body.Bytes()); w.Code != use.status || p["detail"] != lists.Replace(use.detail) {
			t.Errorf("%s %s\n got %d %v\nwant %d %s", use.request, use.body, w.Code, p["detail"], use.status, use.detail)
		}
		if (w.Code == http.StatusMethodNotAllowed) != (w.Header().Get("Allow") != "") {
			t.Errorf("%s: Allow %q", use.request, w.Header().Get("Allow"))
		}
	}
}

func TestTheRootLeadsOn(t *testing.T) {
	t.Parallel()
	get := func(method, accept string) *httptest.ResponseRecorder {
		return do(t, handlerOf(t, hello().service(), withTokens(t)), method, "/", nil, "Accept", accept)
	}
	if w := get(http.MethodGet, "text/html,application/xhtml+xml,*/*;q=0.8"); w.Code != http.StatusFound || w.Header().Get("Location") != "docs" {
		t.Errorf("a browser gets %d %v", w.Code, w.Header())
	}
	if p := decode(t, get(http.MethodGet, "*/*").Body.Bytes()); p["name"] != programName || p["api"] != apiRoot || p["docs"] != "/docs" {
		t.Errorf("a program gets %v", p)
	}
	if w := get(http.MethodHead, "*/*"); w.Code != http.StatusOK {
		t.Errorf("HEAD gets %d", w.Code)
	}
}

// TestUnknownQueryParametersAreRefused in all operations of the API, so that no limit in a query is ignored. Probes and pages take any.
func TestUnknownQueryParametersAreRefused(t *testing.T) {
	t.Parallel()
	h := handlerOf(t, hello().service())
	w := do(t, h, http.MethodPost, "/api/v1/exec/sync?timeout_seconds=1&b=2", strings.NewReader(`{"code":"1"}`), "Content-Type", "application/json")
	p := wantProblem(t, w, 422, executor.Invalid, "b", "timeout_seconds")
	if at := p["errors"].([]any)[0].(map[string]any)["location"]; at != "query.b" {
		t.Errorf("location %v", at)
	}
	for _, path := range []string{"/healthz?x=1", "/readyz?x=1", "/openapi.json?v=2"} {
		if w := do(t, h, http.MethodGet, path, nil); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
