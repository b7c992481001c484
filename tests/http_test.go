package tests

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// part is one part of a multipart body.
type part struct {
	name, filename, contentType string
	body                        []byte
}

func multipartBody(t *testing.T, parts ...part) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	for _, p := range parts {
		header := make(map[string][]string)
		disposition := `form-data; name="` + p.name + `"`
		if p.filename != "" {
			disposition += `; filename="` + p.filename + `"`
		}
		header["Content-Disposition"] = []string{disposition}
		if p.contentType != "" {
			header["Content-Type"] = []string{p.contentType}
		}
		pw, err := w.CreatePart(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pw.Write(p.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return body, w.FormDataContentType()
}

// file is one entry of a tar.
type file struct{ name, text string }

func tarOf(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (s *server) multipart(path string, parts ...part) answer {
	s.t.Helper()
	body, contentType := multipartBody(s.t, parts...)
	return s.do(s.request(http.MethodPost, path, body, "Content-Type", contentType))
}

// resultKeys are the fields of a result: all of them, always.
var resultKeys = []string{
	"execution_id", "status", "exit_code", "signal", "stdout", "stderr", "stdout_base64", "stderr_base64", "stdout_bytes", "stderr_bytes",
	"stdout_truncated", "stderr_truncated", "created_at", "started_at", "finished_at", "duration_seconds", "cpu_seconds",
	"peak_memory_bytes", "peak_resident_bytes", "phases", "backend", "python_version", "resolved_requirements", "artifacts", "error", "attempts",
}

func checkKeys(t *testing.T, result map[string]any) {
	t.Helper()
	for _, key := range resultKeys {
		if _, ok := result[key]; !ok {
			t.Errorf("result has no field %q", key)
		}
	}
}

func TestHTTPRunsPythonThroughAPluginProcess(t *testing.T) {
	s := startServer(t, nil)

	t.Run("the plugin is another process", func(t *testing.T) {
		var v struct {
			Backends []struct {
				Name    string            `json:"name"`
				Healthy bool              `json:"healthy"`
				Details map[string]string `json:"details"`
			} `json:"backends"`
		}
		a := s.get("/api/v1/backends")
		if err := json.Unmarshal(a.body, &v); err != nil || len(v.Backends) != 1 {
			t.Fatalf("%v: %s", err, a.body)
		}
		pid := v.Backends[0].Details["pid"]
		if pid == "" || pid == itoa(s.cmd.Process.Pid) {
			t.Fatalf("plugin pid %q, core pid %d", pid, s.cmd.Process.Pid)
		}
	})
	t.Run("code as JSON", func(t *testing.T) {
		a := s.post("/api/v1/exec/sync", `{"code":"import sys; print(1); print(sys.argv[0], file=sys.stderr)"}`)
		r := a.json(t)
		checkKeys(t, r)
		if a.status != 200 || r["status"] != "succeeded" || r["stdout"] != "1\n" || r["stderr"] != "main.py\n" || r["exit_code"] != 0.0 || r["signal"] != nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
	})
	t.Run("files as JSON", func(t *testing.T) {
		data := base64.StdEncoding.EncodeToString([]byte{0xff, 0x00, 0x01})
		a := s.post("/api/v1/exec/sync", `{"files":{"main.py":"print(len(open('d.bin','rb').read()))","d.bin":{"base64":"`+data+`"}}}`)
		if r := a.json(t); r["stdout"] != "3\n" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	})
	for name, order := range map[string][]int{"tar after metadata": {0, 1}, "tar before metadata": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			parts := []part{
				{name: "metadata", contentType: "application/json", body: []byte(`{"entrypoint":"app/run.py","args":["a b"],"env":{"K":"v"},"stdin":"in"}`)},
				{name: "tar", filename: "x.tar", body: tarOf(t, file{"app/run.py", "import sys,os;print(sys.argv,os.environ['K'],sys.stdin.read())"})},
			}
			a := s.multipart("/api/v1/exec/sync", parts[order[0]], parts[order[1]])
			if r := a.json(t); a.status != 200 || r["stdout"] != "['app/run.py', 'a b'] v in\n" {
				t.Fatalf("%d %s", a.status, a.body)
			}
		})
	}
	t.Run("stdin as a third part of bytes", func(t *testing.T) {
		a := s.multipart("/api/v1/exec/sync",
			part{name: "metadata", body: []byte(`{}`)},
			part{name: "tar", filename: "x.tar", body: tarOf(t, file{"main.py", "import sys;print(len(sys.stdin.buffer.read()))"})},
			part{name: "stdin", filename: "s", body: bytes.Repeat([]byte{0xfe}, 3<<20)})
		if r := a.json(t); r["stdout"] != "3145728\n" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	})
	t.Run("a failing program is a 200", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"code":"raise SystemExit(7)"}`).json(t)
		if r["status"] != "failed" || r["exit_code"] != 7.0 {
			t.Fatal(r)
		}
		r = s.post("/api/v1/exec/sync", `{"code":"import os; os.kill(os.getpid(), 11)"}`).json(t)
		if r["status"] != "failed" || r["exit_code"] != nil || r["signal"] != "SIGSEGV" {
			t.Fatal(r)
		}
	})
	t.Run("output that is not UTF-8", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"code":"import sys; sys.stdout.buffer.write(b'a\\xff\\xc3')"}`).json(t)
		if r["stdout"] != "a\ufffd\ufffd" || r["stdout_base64"] != base64.StdEncoding.EncodeToString([]byte("a\xff\xc3")) {
			t.Fatal(r)
		}
	})
	t.Run("a time limit", func(t *testing.T) {
		var r map[string]any
		for _, seconds := range []int{1, 30} { // on a busy machine an interpreter may need more than a second to start
			r = s.post("/api/v1/exec/sync", fmt.Sprintf(`{"code":"import time; print('x'); time.sleep(600)","config":{"timeout_seconds":%d}}`, seconds)).json(t)
			if r["status"] == "timed_out" && r["stdout"] == "x\n" {
				return
			}
		}
		t.Error(r)
	})
	t.Run("artifacts", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"code":"import os; os.makedirs('o/p'); open('o/p/f.txt','w').write('hi'); os.symlink('/etc/passwd','o/l.txt')","outputs":["o/**/*.txt"]}`).json(t)
		artifacts, _ := r["artifacts"].([]any)
		if len(artifacts) != 1 || artifacts[0].(map[string]any)["path"] != "o/p/f.txt" {
			t.Fatal(r)
		}
		id := r["execution_id"].(string)
		if a := s.get("/api/v1/executions/" + id + "/artifacts/o/p/f.txt"); a.status != 200 || string(a.body) != "hi" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if a := s.get("/api/v1/executions/" + id + "/artifacts/etc/passwd"); a.status != 404 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		tr := tar.NewReader(bytes.NewReader(s.get("/api/v1/executions/" + id + "/artifacts").body))
		if h, err := tr.Next(); err != nil || h.Name != "o/p/f.txt" {
			t.Fatal(h, err)
		}
	})
	t.Run("a hostile tar is a 422 with the id", func(t *testing.T) {
		a := s.multipart("/api/v1/exec/sync", part{name: "metadata", body: []byte(`{}`)},
			part{name: "tar", filename: "x.tar", body: tarOf(t, file{"main.py", "print(1)"}, file{"../../evil", "x"})})
		v := a.json(t)
		if a.status != 422 || v["code"] != "invalid" || v["execution_id"] == nil || !strings.Contains(string(a.body), "evil") {
			t.Fatalf("%d %s", a.status, a.body)
		}
	})
	t.Run("a hostile tar sent async is accepted and fails in prepare", func(t *testing.T) {
		a := s.multipart("/api/v1/exec/async", part{name: "metadata", body: []byte(`{}`)},
			part{name: "tar", filename: "x.tar", body: []byte("this is no tar at all")})
		if a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		r := s.wait(a.json(t)["execution_id"].(string), "failed")
		e, _ := r["error"].(map[string]any)
		if e["phase"] != "prepare" || e["code"] != "invalid" {
			t.Fatal(r)
		}
	})
	t.Run("a truncated output says so", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"code":"import sys; sys.stdout.write('x'*100000); print('end', file=sys.stderr)","config":{"output_bytes":1000}}`).json(t)
		if len(r["stdout"].(string)) != 1000 || r["stdout_bytes"] != 100000.0 || r["stdout_truncated"] != true || r["stderr"] != "end\n" || r["stderr_truncated"] != false {
			t.Fatal(r)
		}
	})
	t.Run("the environment is exact", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"code":"import os,json; print(json.dumps(dict(os.environ))); print(os.getcwd())"}`).json(t)
		lines := strings.Split(r["stdout"].(string), "\n")
		var env map[string]string
		if err := json.Unmarshal([]byte(lines[0]), &env); err != nil {
			t.Fatal(err, r)
		}
		// Where nothing can be mounted, TMPDIR is a folder beside the work folder.
		temporary := env["TMPDIR"] == "/tmp" || env["TMPDIR"] == env["HOME"]+"t"
		if env["HOME"] != lines[1] || !temporary || env["LANG"] != "C.UTF-8" || env["PYTHONUNBUFFERED"] != "1" {
			t.Fatal(env)
		}
		for key := range env {
			if !strings.Contains(" PATH HOME TMPDIR LANG PYTHONUNBUFFERED LC_CTYPE ", " "+key+" ") { // CPython may add LC_CTYPE itself
				t.Errorf("unexpected variable %s", key)
			}
		}
	})
	t.Run("a command that is not Python", func(t *testing.T) {
		r := s.post("/api/v1/exec/sync", `{"command":["sh","-c","echo $0 $1; exit 127","zero"],"args":["one"]}`).json(t)
		if r["stdout"] != "zero one\n" || r["exit_code"] != 127.0 || r["error"] != nil {
			t.Fatal(r)
		}
		r = s.post("/api/v1/exec/sync", `{"command":["/no/such/program"]}`).json(t)
		e, _ := r["error"].(map[string]any)
		if r["status"] != "failed" || r["exit_code"] != nil || e["code"] != "not_found" || e["phase"] != "start" {
			t.Fatal(r)
		}
	})
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestHTTPFollowsTheLog(t *testing.T) {
	s := startServer(t, nil)
	id := s.async(`{"code":"import time\nfor i in range(3):\n  print(i); time.sleep(0.1)"}`)

	stream := s.get("/api/v1/executions/" + id + "/events")
	text := string(stream.body)
	if ct := stream.header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		t.Fatal(ct)
	}
	for _, want := range []string{"id: 1\n", "event: queued\n", "event: started\n", "event: output\n", "event: finished\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	resumed := s.get("/api/v1/executions/"+id+"/events", "Last-Event-ID", "2")
	if strings.Contains(string(resumed.body), "id: 2\n") || !strings.Contains(string(resumed.body), "id: 3\n") {
		t.Errorf("resumed: %s", resumed.body)
	}
	if a := s.get("/api/v1/executions/" + id + "/logs?stream=stdout&follow=true"); string(a.body) != "0\n1\n2\n" {
		t.Errorf("logs: %q", a.body)
	}
	if a := s.get("/api/v1/executions/exe_nosuch/events"); a.status != 404 || a.json(t)["code"] != "not_found" {
		t.Errorf("%d %s", a.status, a.body)
	}

	running := s.async(`{"code":"import time; print('here'); time.sleep(600)"}`)
	s.wait(running, "running")
	awaittest.Until(t, "the output so far is visible", func() bool {
		return s.get("/api/v1/executions/" + running).json(t)["stdout"] == "here\n"
	})
	checkKeys(t, s.get("/api/v1/executions/"+running).json(t))
	if a := s.do(s.request(http.MethodDelete, "/api/v1/executions/"+running, nil)); a.status != 200 || a.json(t)["status"] != "killed" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.do(s.request(http.MethodDelete, "/api/v1/executions/"+id, nil)); a.status != 200 || a.json(t)["status"] != "succeeded" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	list := s.get("/api/v1/executions?limit=1").json(t)
	if items := list["executions"].([]any); len(items) != 1 || items[0].(map[string]any)["execution_id"] != running || list["next"] == nil {
		t.Fatal(list)
	}
}

func TestHTTPErrorsNameWhatIsWrong(t *testing.T) {
	needtest.Long(t, "the tests of frontends/http")
	s := startServer(t, []string{"PYEXEC_HTTP_MAX_BODY_BYTES=1048576"})
	gz := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3}
	tests := []struct {
		name   string
		send   func() answer
		status int
		code   string
		has    string
	}{
		{"unknown field", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","nonsense":1,"conf":2}`) }, 422, "invalid", "nonsense"},
		{"wrong type", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","config":{"memory_mb":"lots"}}`) }, 422, "invalid", "memory_mb"},
		{"above the maximum", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","config":{"memory_mb":65537}}`) }, 422, "invalid", "memory_mb"},
		{"negative", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","config":{"timeout_seconds":-1}}`) }, 422, "invalid", "timeout_seconds"},
		{"nothing to run", func() answer { return s.post("/api/v1/exec/sync", `{}`) }, 422, "invalid", ""},
		{"code and command", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","command":["true"]}`) }, 422, "invalid", "command"},
		{"not JSON", func() answer { return s.post("/api/v1/exec/sync", `{"code":`) }, 400, "invalid", ""},
		{"metadata not JSON", func() answer {
			return s.multipart("/api/v1/exec/sync", part{name: "metadata", body: []byte("no")}, part{name: "tar", body: tarOf(t, file{"main.py", ""})})
		}, 400, "invalid", "metadata"},
		{"no metadata part", func() answer {
			return s.multipart("/api/v1/exec/sync", part{name: "tar", body: tarOf(t, file{"main.py", ""})})
		}, 400, "invalid", "metadata"},
		{"malformed multipart", func() answer {
			return s.do(s.request(http.MethodPost, "/api/v1/exec/sync", strings.NewReader("garbage"), "Content-Type", "multipart/form-data; boundary=x"))
		}, 400, "invalid", ""},
		{"another content type", func() answer {
			return s.do(s.request(http.MethodPost, "/api/v1/exec/sync", strings.NewReader("x"), "Content-Type", "text/plain"))
		}, 415, "invalid", ""},
		{"a compressed tar", func() answer {
			return s.multipart("/api/v1/exec/sync", part{name: "metadata", body: []byte("{}")}, part{name: "tar", filename: "x.tgz", body: gz})
		}, 415, "invalid", ""},
		{"too large", func() answer {
			return s.multipart("/api/v1/exec/sync", part{name: "metadata", body: []byte("{}")}, part{name: "tar", body: make([]byte, 2<<20)})
		}, 413, "exhausted", ""},
		{"an image of another backend", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","docker_image":"alpine:3"}`) }, 501, "unimplemented", "docker_image"},
		{"image against version", func() answer {
			return s.post("/api/v1/exec/sync", `{"code":"1","docker_image":"python:3.12-slim","python_version":"3.11"}`)
		}, 422, "invalid", "docker_image"},
		{"a host folder", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","host_directory":"/tmp"}`) }, 403, "denied", "host_directory"},
		{"code beside main.py", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","files":{"main.py":"2"}}`) }, 422, "invalid", ""},
		{"code beside a folder main.py", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1","files":{"main.py/x":"2"}}`) }, 422, "invalid", "files.main.py"},
		{"code beside a tar with main.py", func() answer {
			return s.multipart("/api/v1/exec/sync", part{name: "metadata", body: []byte(`{"code":"1"}`)}, part{name: "tar", body: tarOf(t, file{"main.py", ""})})
		}, 422, "invalid", `"metadata.code"`},
		{"an entrypoint that the tar has not", func() answer {
			return s.multipart("/api/v1/exec/sync", part{name: "metadata", body: []byte(`{"entrypoint":"x.py"}`)}, part{name: "tar", body: tarOf(t, file{"main.py", ""})})
		}, 422, "invalid", `"metadata.entrypoint"`},
		{"more files than the disk holds", func() answer {
			var files strings.Builder
			for i := range 400 { // each takes a page
				fmt.Fprintf(&files, `,"x%d":"x"`, i)
			}
			return s.post("/api/v1/exec/sync", `{"config":{"disk_mb":1},"files":{"main.py":"1"`+files.String()+`}}`)
		}, 422, "invalid", `"body.files"`},
		{"a name that is too long", func() answer {
			return s.post("/api/v1/exec/sync", `{"files":{"main.py":"1","`+strings.Repeat("x", 256)+`":"2"}}`)
		}, 422, "invalid", "files.xxx"},
		{"unknown id", func() answer { return s.get("/api/v1/executions/exe_zzz") }, 404, "not_found", ""},
		{"a foreign origin", func() answer { return s.post("/api/v1/exec/sync", `{"code":"1"}`, "Origin", "http://evil.example") }, 403, "denied", ""},
		{"unknown path", func() answer { return s.get("/api/v1/nowhere") }, 404, "not_found", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := test.send()
			if a.status != test.status {
				t.Fatalf("status %d, want %d: %s", a.status, test.status, a.body)
			}
			if ct := a.header.Get("Content-Type"); !strings.HasPrefix(ct, "application/problem+json") {
				t.Errorf("content type %q", ct)
			}
			if code := a.json(t)["code"]; code != test.code {
				t.Errorf("code %v, want %s", code, test.code)
			}
			if !strings.Contains(string(a.body), test.has) {
				t.Errorf("does not name %s: %s", test.has, a.body)
			}
		})
	}
	t.Run("a foreign host", func(t *testing.T) {
		req := s.request(http.MethodGet, "/api/v1/executions", nil)
		req.Host = "evil.example"
		if a := s.do(req); a.status != 403 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	})
}

func TestHTTPTokensAndOwners(t *testing.T) {
	dir := t.TempDir()
	config := dir + "/c.yaml"
	// sha256 of "alice-token" and "bob-token".
	text := "http:\n  tokens:\n" +
		"    - {owner: alice, sha256: " + sha("alice-token") + ", scopes: [exec, read]}\n" +
		"    - {owner: bob, sha256: " + sha("bob-token") + ", scopes: [read]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, nil, "--config", config)
	if a := s.post("/api/v1/exec/sync", `{"code":"1"}`); a.status != 401 || a.header.Get("WWW-Authenticate") == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.post("/api/v1/exec/sync", `{"code":"1"}`, "Authorization", "Bearer wrong"); a.status != 401 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.post("/api/v1/exec/sync", `{"code":"1"}`, "Authorization", "Bearer bob-token"); a.status != 403 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := s.post("/api/v1/exec/sync", `{"code":"print(1)"}`, "Authorization", "Bearer alice-token")
	id, _ := a.json(t)["execution_id"].(string)
	if a.status != 200 || id == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.get("/api/v1/executions/"+id, "Authorization", "Bearer bob-token"); a.status != 404 {
		t.Fatalf("another owner's id: %d %s", a.status, a.body)
	}
	if a := s.get("/api/v1/executions/"+id, "Authorization", "Bearer alice-token"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if strings.Contains(s.log.String(), "alice-token") {
		t.Error("the log holds a token")
	}
}

func TestHTTPIdempotencyAndBackPressure(t *testing.T) {
	s := startServer(t, []string{"PYEXEC_ENGINE_MAX_CONCURRENT=1", "PYEXEC_ENGINE_MAX_QUEUED=1"})
	body := `{"code":"import time; time.sleep(600)","idempotency_key":"k"}`
	first := s.async(body)
	if again := s.async(body); again != first {
		t.Errorf("the same key gave %s and %s", first, again)
	}
	if a := s.post("/api/v1/exec/async", `{"code":"print(2)","idempotency_key":"k"}`); a.status != 409 || a.json(t)["code"] != "conflict" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.wait(first, "running")
	s.async(`{"code":"print(1)"}`)
	if a := s.post("/api/v1/exec/async", `{"code":"print(1)"}`); a.status != 429 || a.header.Get("Retry-After") == "" || a.json(t)["code"] != "exhausted" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.do(s.request(http.MethodDelete, "/api/v1/executions/"+first, nil))
}

func TestHTTPOtherPages(t *testing.T) {
	s := startServer(t, nil)
	if v := s.get("/healthz").json(t); v["ok"] != true || v["name"] != "python-executor" || v["version"] == nil {
		t.Error(v)
	}
	if a := s.get("/metrics"); a.status != 200 || !strings.Contains(string(a.body), "python_executor_") {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	v := s.get("/openapi.json").json(t)
	if !strings.HasPrefix(v["openapi"].(string), "3.1") {
		t.Error(v["openapi"])
	}
	docs := s.get("/docs")
	if docs.status != 200 || strings.Contains(string(docs.body), "https://") {
		t.Errorf("%d %s", docs.status, docs.body)
	}
}

func TestHTTPDisconnectKillsASyncExecution(t *testing.T) {
	s := startServer(t, nil)
	req := s.request(http.MethodPost, "/api/v1/exec/sync", strings.NewReader(`{"code":"import time; time.sleep(600)"}`), "Content-Type", "application/json")
	ctx, cancel := contextWithCancel(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.DefaultClient.Do(req.WithContext(ctx))
		if err == nil {
			resp.Body.Close()
		}
	}()
	var id string
	awaittest.Until(t, "the execution runs", func() bool {
		items, _ := s.get("/api/v1/executions?status=running").json(t)["executions"].([]any)
		if len(items) == 1 {
			id = items[0].(map[string]any)["execution_id"].(string)
		}
		return id != ""
	})
	cancel(nil)
	<-done
	s.wait(id, "killed")
}
