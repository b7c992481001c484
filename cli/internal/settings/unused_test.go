package settings_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/settings"
)

func TestAVariableThatIsNoKeyIsNamed(t *testing.T) {
	for variable, want := range map[string]string{
		"PYEXEC_ENGINE_MAXQUEUED":   "PYEXEC_ENGINE_MAXQUEUED: unknown key (environment): did you mean PYEXEC_ENGINE_MAX_QUEUED?",
		"PYEXEC_LIMITS_DEFAULT_CPU": "PYEXEC_LIMITS_DEFAULT_CPU: unknown key (environment): did you mean PYEXEC_LIMITS_DEFAULT_CPU_SECONDS?",
		"PYEXEC_SCRIPTS_ALLOW":      "PYEXEC_SCRIPTS_ALLOW: unknown key (environment): did you mean PYEXEC_SCRIPTS_ALLOWED?",
		"PYEXEC_SESSIONS_TIMEOUT":   "PYEXEC_SESSIONS_TIMEOUT: unknown key (environment): did you mean PYEXEC_SESSIONS_IDLE_TIMEOUT_SECONDS?",
		"PYEXEC_HTTP_PORT":          "PYEXEC_HTTP_PORT: unknown key (environment): did you mean PYEXEC_HTTP_BIND?",
		"PYEXEC_HTTP_TLS_CERT":      "PYEXEC_HTTP_TLS_CERT: unknown key (environment): the server speaks plain HTTP: ",
		"PYEXEC_WORKER_TLS_CRT":     "PYEXEC_WORKER_TLS_CRT: unknown key (environment): did you mean PYEXEC_WORKER_TLS_CERT?",
		"PYEXEC_ENGINE_WHATEVER":    "PYEXEC_ENGINE_WHATEVER: unknown key (environment)",
		"PYEXEC_ENGINE_MAX_QUEUED":  `engine.max_queued: must be a whole number (got "x", in PYEXEC_ENGINE_MAX_QUEUED)`,
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "x")
			if _, err := settings.Load(settings.Options{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	for text, want := range map[string]string{"null": `(got "null", in `, "[1]": `(got "[1]", in `, "1.5": `(got "1.5", in `, "'5'": `(got "'5'", in `} {
		t.Setenv("PYEXEC_ENGINE_MAX_QUEUED", text)
		if _, err := settings.Load(settings.Options{}); err == nil || !strings.Contains(err.Error(), "engine.max_queued: must be a whole number "+want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	t.Setenv("PYEXEC_ENGINE_MAX_QUEUED", "")
	t.Run("a key of a token", func(t *testing.T) {
		t.Setenv("PYEXEC_HTTP_TOKENS", "[{owner: a, hash: b}]")
		if _, err := settings.Load(settings.Options{}); err == nil || !strings.Contains(err.Error(), "http.tokens[0].hash: unknown key (PYEXEC_HTTP_TOKENS)") {
			t.Errorf("got %v", err)
		}
	})
	t.Setenv("PYEXEC_TEST_REQUIRE", "root")
	t.Setenv("PYEXEC_SERVER", "http://x")
	t.Setenv("PYEXEC_BACKENDS_DOCKER_IMAGE", "x")
	if _, err := settings.Load(settings.Options{}); err != nil {
		t.Error(err)
	}
}

func TestAVariableThatMayBeMisspelledIsNamed(t *testing.T) {
	sections := map[string]json.RawMessage{"uv": json.RawMessage(`{"cache_dir":"","pool":{"min_idle":2}}`), "docker": json.RawMessage(`{"runtime":""}`)}
	from := settings.Options{Sections: sections, File: file(t, "backends: {uv: {}, my-uv: {type: uv}}\nbackend: uv")}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, settings.EnvPrefix) {
			t.Setenv(name, "")
		}
	}
	for variable, nearest := range map[string]string{
		"PYEXEC_BAKCEND": "PYEXEC_BACKEND", "PYEXEC_DATADIR": "PYEXEC_DATA_DIR", "PYEXEC_SEVER": "PYEXEC_SERVER", "PYEXEC_HTPP_BIND": "PYEXEC_HTTP_BIND",
		"PYEXEC_BACKENDS_DOKCER_RUNTIME": "PYEXEC_BACKENDS_DOCKER_RUNTIME", "PYEXEC_BACKEND_UV_POOL_MIN_IDLE": "PYEXEC_BACKENDS_UV_POOL_MIN_IDLE",
		"PYEXEC_PORT": "PYEXEC_HTTP_BIND", "PYEXEC_BIND": "PYEXEC_HTTP_BIND", "PYEXEC_MAX_CONCURRENT": "PYEXEC_ENGINE_MAX_CONCURRENT",
		"PYEXEC_SOMETHING_OF_MINE": "", "PYEXEC_": "",
	} {
		t.Run(variable, func(t *testing.T) {
			// Beside what is taken, what others take, and what is empty.
			for _, other := range []string{"PYEXEC_SERVER", "PYEXEC_TOKEN", "PYEXEC_CONFIG", "PYEXEC_BACKENDS_MY_UV_CACHE_DIR", "PYEXEC_BACKENDS_DOCKER_RUNTIME", "PYEXEC_TEST_REQUIRE", "PYEXECUTOR"} {
				t.Setenv(other, "x")
			}
			t.Setenv("PYEXEC_HTTP_BIND", "127.0.0.1:1")
			t.Setenv("PYEXEC_EMPTY", "")
			t.Setenv(variable, "x")
			c, err := settings.Load(from)
			if err != nil {
				t.Fatal(err)
			}
			unused := settings.UnusedVariables(from, c)
			if len(unused) != 1 || unused[0] != (settings.UnusedVariable{Variable: variable, Nearest: nearest}) {
				t.Fatalf("%v", unused)
			}
			if text := unused[0].String(); !strings.Contains(text, variable) || strings.Contains(text, "did you mean") != (nearest != "") {
				t.Error(text)
			}
		})
	}
	t.Setenv("PYEXEC_HTTP_BNID", "x") // refused
	c, err := settings.Load(from)
	if unused := settings.UnusedVariables(from, c); !settings.IsInvalid(err) || len(unused) != 0 {
		t.Errorf("%v, %v", unused, err)
	}
}

func TestAVariableOfASpecificationSufficesAlone(t *testing.T) {
	for _, c := range []struct {
		name      string
		variables map[string]string
		file      string
		listens   bool
		toolsets  string
		origins   map[string]string
	}{
		{"none", nil, "", false, "python,contexts,shell", nil},
		{"a listener", map[string]string{"MCP_HTTP_BIND": "127.0.0.1:9000"}, "", true, "python,contexts,shell", map[string]string{"mcp.http.enabled": "MCP_HTTP_BIND"}},
		{"a listener, where the file has none", map[string]string{"MCP_HTTP_BIND": "127.0.0.1:9000"}, "mcp: {http: {enabled: false}}\n", true, "python,contexts,shell", nil},
		{"a listener that is off", map[string]string{"MCP_HTTP_BIND": "127.0.0.1:9000", "PYEXEC_MCP_HTTP_ENABLED": "false"}, "", false, "python,contexts,shell", nil},
		{"our variable", map[string]string{"PYEXEC_MCP_HTTP_BIND": "127.0.0.1:9000"}, "", false, "python,contexts,shell", nil},
		{"scripts", map[string]string{"TSM_ALLOWED_SCRIPTS": "/a.sh"}, "", false, "python,contexts,shell,scripts", map[string]string{"mcp.toolsets": "TSM_ALLOWED_SCRIPTS"}},
		{"scripts besides those of the file", map[string]string{"TSM_ALLOWED_SCRIPTS": "/a.sh"}, "mcp: {toolsets: [shell]}\n", false, "shell,scripts", nil},
		{"scripts once", map[string]string{"TSM_ALLOWED_SCRIPTS": "/a.sh"}, "mcp: {toolsets: [scripts, shell]}\n", false, "scripts,shell", nil},
		{"scripts without MCP", map[string]string{"TSM_ALLOWED_SCRIPTS": "/a.sh"}, "mcp: {toolsets: []}\n", false, "", nil},
		{"toolsets that a variable names", map[string]string{"TSM_ALLOWED_SCRIPTS": "/a.sh", "PYEXEC_MCP_TOOLSETS": "python"}, "", false, "python", map[string]string{"mcp.toolsets": "PYEXEC_MCP_TOOLSETS"}},
		{"no scripts", map[string]string{"TSM_ALLOWED_SCRIPTS": ":"}, "", false, "python,contexts,shell", nil},
		{"scripts of a file only", nil, "scripts: {allowed: [/a.sh]}\n", false, "python,contexts,shell", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			o := settings.Options{}
			if c.file != "" {
				o.File = file(t, c.file)
			}
			got, err := settings.Load(o)
			if err != nil {
				t.Fatal(err)
			}
			if got.MCP.HTTP.Enabled != c.listens || strings.Join(got.MCP.Toolsets, ",") != c.toolsets {
				t.Errorf("listens %t with %v, want %t with %s", got.MCP.HTTP.Enabled, got.MCP.Toolsets, c.listens, c.toolsets)
			}
			origins, err := settings.Origins(o, got)
			if err != nil {
				t.Fatal(err)
			}
			for _, origin := range origins {
				if want := c.origins[origin.Key]; want != "" && origin.Origin != want {
					t.Errorf("%s comes from %s, want %s", origin.Key, origin.Origin, want)
				}
			}
		})
	}
}

func TestAVariableWithoutAnEffectIsSaid(t *testing.T) {
	scripts := "no script is allowed (scripts.allowed, TSM_ALLOWED_SCRIPTS)"
	for _, c := range []struct {
		variables string
		file      string
		stdio     bool
		want      string
	}{
		{variables: "MCP_HTTP_BIND=127.0.0.1:9000 MCP_HTTP_PATH=/m MCP_EXEC_MAX_OUTPUT_BYTES=5 MCP_EXEC_LOG_OUTPUT_BYTES=5 TSM_LOG_LEVEL=debug"},
		{variables: "TSM_ALLOWED_SCRIPTS=/a.sh TSM_ALLOWED_ARGS=--a TSM_LOG_DIR=logs TSM_TOKEN=x TSM_LOG_LEVEL=INFO"},
		{variables: "TSM_ALLOWED_ARGS=--a", file: "scripts: {allowed: [/a.sh]}\n"},
		{variables: "TSM_ALLOWED_ARGS=--a", want: "TSM_ALLOWED_ARGS has no effect: " + scripts},
		{variables: "TSM_TOKEN=x", want: "TSM_TOKEN has no effect: " + scripts},
		{variables: "PYEXEC_SCRIPTS_ROOT=/srv", want: "PYEXEC_SCRIPTS_ROOT has no effect: " + scripts},
		{variables: "TSM_ALLOWED_SCRIPT=/a.sh", want: "TSM_ALLOWED_SCRIPT sets nothing and is ignored: did you mean TSM_ALLOWED_SCRIPTS?"},
		{variables: "MCP_HTTP_BNID=x", want: "MCP_HTTP_BNID sets nothing and is ignored: did you mean MCP_HTTP_BIND?"},
		{variables: "PYEXEC_TLS_CERT=x", want: "PYEXEC_TLS_CERT has no effect: the server speaks plain HTTP: let a reverse proxy in front of it speak TLS, and keep http.bind on loopback"},
		{variables: "AGENTRUN_API_KEY=x", want: "AGENTRUN_API_KEY has no effect: code runs on the backends of this server, not in the AgentRun cloud"},
		{variables: "MCP_HTTP_BIND=127.0.0.1:9 PYEXEC_MCP_TOOLSETS=[]", want: "MCP_HTTP_BIND has no effect: mcp.toolsets is empty, so there is no MCP"},
		{variables: "TSM_LOG_LEVEL=TRACE", want: `TSM_LOG_LEVEL has no effect: it must be INFO or DEBUG (got "TRACE")`},
		{variables: "MCP_HTTP_PATH=/m PYEXEC_MCP_HTTP_PATH=/n", want: "MCP_HTTP_PATH has no effect: PYEXEC_MCP_HTTP_PATH overrides it"},
		{variables: "MCP_HTTP_BIND=127.0.0.1:9 PYEXEC_MCP_HTTP_ENABLED=false", want: "MCP_HTTP_BIND has no effect: mcp.http.enabled is false (PYEXEC_MCP_HTTP_ENABLED)"},
		{variables: "PYEXEC_MCP_HTTP_BIND=127.0.0.1:9", want: "PYEXEC_MCP_HTTP_BIND has no effect: mcp.http.enabled is false (default)"},
		{variables: "MCP_EXEC_MAX_OUTPUT_BYTES=5", file: "mcp: {toolsets: [python]}\n", want: "MCP_EXEC_MAX_OUTPUT_BYTES has no effect: mcp.toolsets has no shell"},
		{variables: "MCP_HTTP_PATH=/m", file: "mcp: {toolsets: []}\n", want: "MCP_HTTP_PATH has no effect: mcp.toolsets is empty, so there is no MCP"},
		{variables: "MCP_EXEC_LOG_FULL_OUTPUT=1 MCP_EXEC_LOG_OUTPUT_BYTES=5", want: "MCP_EXEC_LOG_OUTPUT_BYTES has no effect: mcp.shell.log_full_output logs all output"},
		{variables: "MCP_HTTP_BIND=127.0.0.1:9", stdio: true, want: "MCP_HTTP_BIND has no effect: mcp serves standard input and output; the command serve listens"},
		{variables: "PYEXEC_MCP_NETWORK_SHELL=on PYEXEC_MCP_TOOLSETS=python", want: "PYEXEC_MCP_NETWORK_SHELL has no effect: mcp.toolsets has no shell"},
	} {
		t.Run(c.variables, func(t *testing.T) {
			for pair := range strings.FieldsSeq(c.variables) {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			o := settings.Options{Stdio: c.stdio}
			if c.file != "" {
				o.File = file(t, c.file)
			}
			got, err := settings.Load(o)
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, v := range settings.UnusedVariables(o, got) {
				said = append(said, v.String())
			}
			if strings.Join(said, "\n") != c.want {
				t.Errorf("said is %q, want %q", said, c.want)
			}
		})
	}
}
