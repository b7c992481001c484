package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// The pinned tools of the OpenAPI tests, installed once into the cache.
const (
	schemathesis     = "schemathesis==4.32.5"
	openapiValidator = "openapi-spec-validator==0.9.0"
)

// pythonTools returns the bin folder of a venv that has the tools.
func pythonTools(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(cache, "python-executor", "openapi-venv-4.32.5-0.9.0")
	bin := filepath.Join(venv, "bin")
	if _, err := os.Stat(filepath.Join(venv, "complete")); err == nil {
		return bin
	}
	if out, err := exec.Command("python3", "-m", "venv", "--clear", venv).CombinedOutput(); err != nil {
		t.Fatalf("venv: %v: %s", err, out)
	}
	if out, err := exec.Command(filepath.Join(bin, "pip"), "install", "-q", schemathesis, openapiValidator).CombinedOutput(); err != nil {
		t.Logf("pip: %v: %s", err, out)
		skipWithout(t, "index", false)
	}
	if err := os.WriteFile(filepath.Join(venv, "complete"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestOpenAPIDocumentIsValidAndTrue(t *testing.T) {
	needtest.Long(t, "the tests of frontends/http")
	t.Parallel() // beside the other that takes long and needs no quiet
	bin := pythonTools(t)
	document, err := filepath.Abs("../frontends/http/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(bin, "openapi-spec-validator"), "--schema", "3.1", document).CombinedOutput(); err != nil {
		t.Fatalf("not valid OpenAPI 3.1: %v\n%s", err, out)
	}
	// Short limits keep the generated programs from holding their places; a full queue is a documented 429.
	s := startServer(t, []string{"PYEXEC_LIMITS_MAX_TIMEOUT_SECONDS=2", "PYEXEC_LIMITS_DEFAULT_TIMEOUT_SECONDS=2"})
	base, err := os.ReadFile("testdata/schemathesis.toml")
	if err != nil {
		t.Fatal(err)
	}
	generate := func(config string, args ...string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "schemathesis.toml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(bin, "schemathesis"), append([]string{"--config-file", path, "run", s.url + "/openapi.json",
			"--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--generation-deterministic", "--workers", "1",
			"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance",
			"--suppress-health-check", "all", "--request-timeout", "30", "--continue-on-failure", "--no-color"}, args...)...)
		cmd.Env = append(os.Environ(), "HYPOTHESIS_STORAGE_DIRECTORY="+t.TempDir())
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("generated requests found undocumented answers: %v\n%s", err, tail(out, 20000))
		}
		t.Logf("%s", tail(out, 600))
	}
	generate(string(base))
	// Once more with an id that exists, so that the operations on one execution get past their 404.
	a := s.post("/api/v1/exec/sync", `{"code":"open('f','w').write('x'); print(1)","outputs":["f"]}`)
	id, _ := a.json(t)["execution_id"].(string)
	generate("[parameters]\n\"path.id\" = \""+id+"\"\n\n"+string(base), "--include-path-regex", "executions/.id.")
	// And with a session that exists; what closes it would leave nothing to ask.
	a = s.post("/api/v1/sessions", `{"name":"generated"}`)
	if id, _ = a.json(t)["session_id"].(string); id == "" {
		t.Fatalf("no session: %s", a.body)
	}
	generate("[parameters]\n\"path.id\" = \""+id+"\"\n\n"+string(base), "--include-path-regex", "sessions/.id.", "--exclude-operation-id", "close-session")
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}
