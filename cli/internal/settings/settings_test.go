package settings_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, settings.EnvPrefix) {
			os.Unsetenv(name)
		}
	}
	leaktest.Main(m)
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := settings.Load(settings.Options{File: file(t, text), Sections: map[string]json.RawMessage{"uv": json.RawMessage(`{"run_as":"","cache_bytes":1,"image_map":{}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNothingGivenIsTheDefaults(t *testing.T) {
	c, err := settings.Load(settings.Options{})
	if err != nil || !reflect.DeepEqual(c, config.Default()) {
		t.Errorf("%v\n%+v", err, c)
	}
	for _, empty := range []string{"", "# nothing\n", "http:\nbackends:\nlimits:\n  max:\n"} {
		if c := load(t, empty); !reflect.DeepEqual(c, config.Default()) {
			t.Errorf("%q: %+v", empty, c)
		}
	}
}

func TestAFileIsRead(t *testing.T) {
	c := load(t, `
http: {bind: "127.0.0.1:9", tokens: [{owner: Alice, sha256: `+strings.Repeat("12", 32)+`, scopes: [exec, admin]}]}
data_dir: /Data
backend: mine
backends:
  uv: {run_as: "1-2", image_map: {"Reg/Image:3.12": "3.12", 3.11: "3.11"}}
  mine: {type: uv, allow_builds: true, cache_bytes: 123456789012}
  other:
limits: {default: {timeout_seconds: 0.5}, max: {memory_mb: 4096}}
sessions: {max: 5, idle_timeout_seconds: 1.5, preload: [numpy, "os.path"]}
`)
	if s := c.Sessions; s.Max != 5 || s.IdleTimeoutSeconds != 1.5 || s.MaxWaiting != 16 || !reflect.DeepEqual(s.Preload, []string{"numpy", "os.path"}) {
		t.Errorf("%+v", s)
	}
	if c.HTTP.Bind != "127.0.0.1:9" || c.DataDir != "/Data" || c.Backend != "mine" || c.Limits.Default.TimeoutSeconds != 0.5 ||
		c.Limits.Max.MemoryMB != 4096 || c.Limits.Default.MemoryMB != 1024 {
		t.Errorf("%+v", c)
	}
	if tokens := []config.Token{{Owner: "Alice", SHA256: strings.Repeat("12", 32), Scopes: []string{"exec", "admin"}}}; !reflect.DeepEqual(c.HTTP.Tokens, tokens) {
		t.Errorf("%+v", c.HTTP.Tokens)
	}
	for name, want := range map[string]string{
		"uv":    `{"image_map":{"3.11":"3.11","Reg/Image:3.12":"3.12"},"run_as":"1-2"}`,
		"mine":  `{"allow_builds":true,"cache_bytes":123456789012}`,
		"other": `{}`,
	} {
		if got := string(c.Backends[name].Options); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if len(c.Backends) != 3 || c.Backends["mine"].Type != "uv" {
		t.Errorf("%+v", c.Backends)
	}
}

func TestEveryKeyHasAVariable(t *testing.T) {
	for _, key := range settings.Keys() {
		variable := settings.EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
		value := "7"
		switch key {
		case "http.bind", "http.pprof_bind":
			value = "127.0.0.1:7"
		case "http.allow_unauthenticated":
			value = "true"
		case "http.tokens":
			value = `[{owner: o, sha256: "` + strings.Repeat("0a", 32) + `"}]`
		case "backend":
			value = "uv"
		case "sessions.preload":
			value = "[numpy, os.path]"
		case "mcp.toolsets":
			value = "[python]"
		case "mcp.contexts.requirements":
			value = "[numpy]"
		case "mcp.directories", "mcp.http.allowed_origins", "scripts.allowed":
			value = "[/srv]"
		case "scripts.root":
			value = "/srv"
		case "scripts.args", "scripts.default_args":
			value = "[--port]"
		case "scripts.env":
			value = "[PORT]"
		case "mcp.network.python", "mcp.network.contexts", "mcp.network.shell":
			value = "on"
		case "http.max_buffered_bytes":
			value = "70000000"
		case "mcp.max_result_bytes":
			value = "7000"
		case "mcp.http.enabled", "mcp.shell.log_full_output":
			value = "true"
		case "mcp.http.bind":
			value = "127.0.0.1:7"
		case "mcp.http.path":
			value = "/seven"
		case "worker.bind":
			value = "127.0.0.1:7"
		case "worker.silence_seconds":
			value = "70"
		}
		t.Run(variable, func(t *testing.T) {
			if strings.HasPrefix(key, "worker.tls.") { // none of the files goes without the others
				for _, file := range []string{"CA_CERT", "CERT", "KEY"} {
					t.Setenv(settings.EnvPrefix+"WORKER_TLS_"+file, "/6")
				}
				value = "/7"
			}
			before, err := settings.Load(settings.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv(variable, value)
			c, err := settings.Load(settings.Options{})
			if strings.HasPrefix(key, "limits.max.") { // below the default
				if free := key == "limits.max.kill_grace_seconds" || key == "limits.max.cpu_seconds"; !free && (err == nil || !strings.Contains(err.Error(), "must be <= "+key)) {
					t.Errorf("%s: %v", key, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if key != "backend" && reflect.DeepEqual(c, before) {
				t.Errorf("%s changed nothing", variable)
			}
		})
	}
}

func TestTheSpecificationsVariablesAreAliases(t *testing.T) {
	for name, value := range map[string]string{
		"MCP_HTTP_BIND": "127.0.0.1:9000", "MCP_HTTP_PATH": "/other", "MCP_EXEC_MAX_OUTPUT_BYTES": "500",
		"MCP_EXEC_LOG_FULL_OUTPUT": "1", "MCP_EXEC_LOG_OUTPUT_BYTES": "64",
	} {
		t.Setenv(name, value)
	}
	c, err := settings.Load(settings.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.MCP.HTTP.Bind != "127.0.0.1:9000" || c.MCP.HTTP.Path != "/other" {
		t.Errorf("%+v", c.MCP.HTTP)
	}
	if want := (config.MCPShell{MaxOutputBytes: 500, LogFullOutput: true, LogOutputBytes: 64}); c.MCP.Shell != want {
		t.Errorf("%+v", c.MCP.Shell)
	}
	t.Setenv("TSM_ALLOWED_SCRIPTS", "/srv/a.sh:/srv/b.sh; /srv/c.sh")
	t.Setenv("TSM_ALLOWED_ARGS", "--smoke, --port")
	t.Setenv("TSM_TIMEOUT_MS_DEFAULT", "500")
	t.Setenv("TSM_TOKEN", "secret")
	if c, err = settings.Load(settings.Options{}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Scripts.Allowed, []string{"/srv/a.sh", "/srv/b.sh", "/srv/c.sh"}) || !reflect.DeepEqual(c.Scripts.Args, []string{"--smoke", "--port"}) || c.Scripts.TimeoutMS != 500 {
		t.Errorf("%+v", c.Scripts)
	}
	sum := sha256.Sum256([]byte("secret"))
	if len(c.HTTP.Tokens) != 1 || c.HTTP.Tokens[0].Owner != "tsm" || c.HTTP.Tokens[0].SHA256 != hex.EncodeToString(sum[:]) || !reflect.DeepEqual(c.HTTP.Tokens[0].Scopes, []string{"scripts", "read"}) {
		t.Errorf("%+v", c.HTTP.Tokens)
	}
	t.Setenv("MCP_EXEC_LOG_FULL_OUTPUT", "0")
	both := "mcp: {shell: {log_full_output: true}}\nhttp: {tokens: [{owner: a, sha256: " + strings.Repeat("ab", 32) + "}]}\n"
	if c, err = settings.Load(settings.Options{File: file(t, both)}); err != nil || c.MCP.Shell.LogFullOutput || len(c.HTTP.Tokens) != 2 || c.HTTP.Tokens[0].Owner != "a" {
		t.Errorf("besides a file: %+v, %+v, %v", c.MCP.Shell, c.HTTP.Tokens, err)
	}
	t.Setenv("PYEXEC_MCP_HTTP_BIND", "127.0.0.1:9001")
	if c, err = settings.Load(settings.Options{}); err != nil || c.MCP.HTTP.Bind != "127.0.0.1:9001" {
		t.Errorf("ours does not win: %q, %v", c.MCP.HTTP.Bind, err)
	}
	t.Setenv("MCP_EXEC_MAX_OUTPUT_BYTES", "many")
	if _, err = settings.Load(settings.Options{}); err == nil || !strings.Contains(err.Error(), `mcp.shell.max_output_bytes: must be a whole number of bytes (got "many", in MCP_EXEC_MAX_OUTPUT_BYTES)`) {
		t.Errorf("got %v", err)
	}
}

func TestMCPIsNotAtARouteOfTheServer(t *testing.T) {
	raw, err := os.ReadFile(filepath.FromSlash("../../../frontends/http/openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var api struct{ Paths map[string]any }
	if err := json.Unmarshal(raw, &api); err != nil || len(api.Paths) < 10 {
		t.Fatal(err, len(api.Paths))
	}
	for route := range api.Paths {
		c := config.Default()
		c.MCP.HTTP.Path = strings.NewReplacer("{", "", "}", "").Replace(route)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "mcp.http.path: must not be or be below ") {
			t.Errorf("%s: %v", route, err)
		}
	}
}

func TestListsComeFromVariablesAndFlags(t *testing.T) {
	for text, want := range map[string][]string{
		"python": {"python"}, "python, shell": {"python", "shell"}, "[contexts]": {"contexts"}, `["python","scripts"]`: {"python", "scripts"},
	} {
		t.Setenv("PYEXEC_MCP_TOOLSETS", text)
		if c, err := settings.Load(settings.Options{}); err != nil || !reflect.DeepEqual(c.MCP.Toolsets, want) {
			t.Errorf("%q: %q, %v", text, c.MCP.Toolsets, err)
		}
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	flags.StringSlice("toolset", nil, "")
	o := settings.Options{Flags: map[string]*pflag.Flag{"mcp.toolsets": flags.Lookup("toolset")}}
	t.Setenv("PYEXEC_MCP_TOOLSETS", "python")
	if c, err := settings.Load(o); err != nil || !reflect.DeepEqual(c.MCP.Toolsets, []string{"python"}) {
		t.Errorf("a flag that was not given: %q, %v", c.MCP.Toolsets, err)
	}
	if err := flags.Parse([]string{"--toolset", "shell,scripts"}); err != nil {
		t.Fatal(err)
	}
	if c, err := settings.Load(o); err != nil || !reflect.DeepEqual(c.MCP.Toolsets, []string{"shell", "scripts"}) {
		t.Errorf("the flag: %q, %v", c.MCP.Toolsets, err)
	}
}

// With tokens one owner cannot take all; without, all is one owner's.
func TestTheShareOfAnOwnerFollowsFromTheTokens(t *testing.T) {
	const tokens = "http: {tokens: [{owner: a, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}]}\n"
	for _, test := range []struct {
		name, file           string
		executions, sessions int
	}{
		{"no tokens", "engine: {max_concurrent: 4, max_queued: 6}\n", 0, 0},
		{"tokens", tokens + "engine: {max_concurrent: 4, max_queued: 6}\n", 5, 50},
		{"an odd number", tokens + "engine: {max_concurrent: 4, max_queued: 7}\nsessions: {max: 5}\n", 5, 2},
		{"the least", tokens + "engine: {max_concurrent: 1, max_queued: 0}\nsessions: {max: 1}\n", 1, 1},
		{"an explicit bound", tokens + "engine: {max_concurrent: 4, max_queued: 6, max_per_owner: 9}\nsessions: {max_per_owner: 90}\n", 9, 90},
		{"an explicit 0", tokens + "engine: {max_concurrent: 4, max_queued: 6, max_per_owner: 0}\nsessions: {max_per_owner: 0}\n", 0, 0},
		{"an explicit bound without tokens", "engine: {max_per_owner: 3}\nsessions: {max_per_owner: 4}\n", 3, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := settings.Load(settings.Options{File: file(t, test.file)})
			if err != nil || c.Engine.MaxPerOwner != test.executions || c.Sessions.MaxPerOwner != test.sessions {
				t.Fatalf("an owner may have %d executions and %d sessions, want %d and %d; error %v",
					c.Engine.MaxPerOwner, c.Sessions.MaxPerOwner, test.executions, test.sessions, err)
			}
			shown, err := settings.YAML(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{fmt.Sprintf("max_per_owner: %d\n", test.executions), fmt.Sprintf("max_per_owner: %d\n", test.sessions)} {
				if !strings.Contains(string(shown), line) {
					t.Errorf("config show does not print %q", line)
				}
			}
			if again, err := settings.Load(settings.Options{File: file(t, string(shown))}); err != nil || again.Engine != c.Engine {
				t.Errorf("what config show prints means %+v, want %+v; error %v", again.Engine, c.Engine, err)
			}
		})
	}
	t.Run("a variable", func(t *testing.T) {
		t.Setenv("PYEXEC_ENGINE_MAX_PER_OWNER", "0")
		t.Setenv("PYEXEC_SESSIONS_MAX_PER_OWNER", "7")
		c, err := settings.Load(settings.Options{File: file(t, tokens)})
		if err != nil || c.Engine.MaxPerOwner != 0 || c.Sessions.MaxPerOwner != 7 {
			t.Errorf("an owner may have %d executions and %d sessions, want 0 and 7; error %v", c.Engine.MaxPerOwner, c.Sessions.MaxPerOwner, err)
		}
	})
	t.Run("the token of the scripts", func(t *testing.T) {
		t.Setenv("TSM_TOKEN", "secret")
		c, err := settings.Load(settings.Options{File: file(t, "engine: {max_concurrent: 4, max_queued: 6}\n")})
		if err != nil || len(c.HTTP.Tokens) != 1 || c.Engine.MaxPerOwner != 5 {
			t.Errorf("%d tokens, an owner may have %d executions, want 1 and 5; error %v", len(c.HTTP.Tokens), c.Engine.MaxPerOwner, err)
		}
	})
}

func TestFlagsWinOverVariablesOverFile(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.String("bind", "", "")
	flags.Bool("open", false, "")
	o := settings.Options{
		File:  file(t, "http: {bind: '127.0.0.1:1', allow_unauthenticated: true}\nengine: {max_queued: 1}\n"),
		Flags: map[string]*pflag.Flag{"http.bind": flags.Lookup("bind"), "http.allow_unauthenticated": flags.Lookup("open")},
	}
	want := func(bind string, open bool, queued int) {
		t.Helper()
		c, err := settings.Load(o)
		if err != nil || c.HTTP.Bind != bind || c.HTTP.AllowUnauthenticated != open || c.Engine.MaxQueued != queued {
			t.Errorf("%v: %+v %+v", err, c.HTTP, c.Engine)
		}
	}
	want("127.0.0.1:1", true, 1)
	t.Setenv("PYEXEC_HTTP_BIND", "127.0.0.1:2")
	t.Setenv("PYEXEC_ENGINE_MAX_QUEUED", "2")
	want("127.0.0.1:2", true, 2)
	if err := flags.Parse([]string{"--bind", "127.0.0.1:3", "--open=false"}); err != nil {
		t.Fatal(err)
	}
	want("127.0.0.1:3", false, 2)
}

func TestVariablesReachABackendsSection(t *testing.T) {
	t.Setenv("PYEXEC_BACKENDS_UV_RUN_AS", "1000")
	t.Setenv("PYEXEC_BACKENDS_UV_CACHE_BYTES", "5")
	t.Setenv("PYEXEC_BACKENDS_UV_IMAGE_MAP", `{"My/Image": "3.12"}`)
	t.Setenv("PYEXEC_BACKENDS_MY_UV_TYPE", "uv")
	c := load(t, "backends: {uv: {cache_bytes: 4, isolation: none}, my-uv: {}}\n")
	if got, want := string(c.Backends["uv"].Options), `{"cache_bytes":5,"image_map":{"My/Image":"3.12"},"isolation":"none","run_as":"1000"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if c.Backends["my-uv"].Type != "uv" {
		t.Errorf("%+v", c.Backends["my-uv"])
	}
}

func TestEveryProblemIsNamed(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"an unknown key", "limits: {max: {memory: 5}}", []string{"limits.max.memory: unknown key (", ":1)"}},
		{"an unknown section", "\nhttps: {}", []string{"https: unknown key", "c.yaml:2)"}},
		{"two problems", "a: 1\nb: 2", []string{"a: unknown key", "\nb: unknown key"}},
		{"one of words and one of meaning", "a: 1\nengine: {max_queued: -1}\nlimits: {max: {pids: many}}", []string{"a: unknown key", "\nengine.max_queued: must be >= 0", "\nlimits.max.pids: must be a whole"}},
		{"a key in capitals", "HTTP: {}", []string{"HTTP: unknown key"}},
		{"a key twice", "backend: a\nbackend: b", []string{"backend: duplicate key"}},
		{"a text for a number", "engine: {max_queued: many}", []string{`engine.max_queued: must be a whole number (got "many", in `}},
		{"a fraction for a whole number", "limits: {max: {memory_mb: 1.5}}", []string{`limits.max.memory_mb: must be a whole number of MB (got 1.5, in `}},
		{"a whole number that is written as a fraction", "limits: {max: {memory_mb: 512.0}}", []string{`limits.max.memory_mb: must be a whole number of MB (got 512.0, in `}},
		{"a number for a text", "data_dir: 5", []string{`data_dir: must be text (got 5, in `}},
		{"a quoted truth", "http: {allow_unauthenticated: 'true'}", []string{"http.allow_unauthenticated: must be true or false"}},
		{"a list for a section", "http: []", []string{"http: must be a section (got a list"}},
		{"a section for a number", "engine: {max_queued: {}}", []string{"engine.max_queued: must be a whole number (got a section"}},
		{"an unknown key of a token", "http: {tokens: [{owner: a, hash: b}]}", []string{"http.tokens[0].hash: unknown key"}},
		{"tokens that are no list", "http: {tokens: {}}", []string{"http.tokens: must be a list"}},
		{"modules that are no list", "sessions: {preload: numpy}", []string{`sessions.preload: must be a list (got "numpy"`}},
		{"a module that is a section", "sessions: {preload: [numpy, {}]}", []string{"sessions.preload[1]: must be text (got a section"}},
		{"a module that is none", "sessions: {preload: [import os]}", []string{`sessions.preload[0]: must be the name of a Python module`}},
		{"a session that waits for ever", "sessions: {idle_timeout_seconds: 0}", []string{"sessions.idle_timeout_seconds: must be > 0"}},
		{"no YAML", "a: [", []string{"c.yaml: yaml:"}},
		{"two documents", "a: 1\n---\nb: 2", []string{"must hold one document"}},
		{"backends that are no section", "backends: [uv]", []string{"backends: must be a section (got a list"}},
		{"a type that is no text", "backends: {uv: {type: 5}}", []string{"backends.uv.type: must be text (got 5, in ", "c.yaml:1)"}},
		{"a token that is no hash", "http:\n  tokens:\n  - {owner: a,\n    sha256: b}", []string{"http.tokens[0].sha256: must be 64 lower-case hex digits, the SHA-256 of the token (in ", "c.yaml:4)"}},
		{"a token without an owner", "http:\n  tokens:\n  - {sha256: b}", []string{"http.tokens[0].owner: must be set (in ", "c.yaml:3)"}},
		{"a plugin without its hash", "backends:\n  uv: {path: /p}", []string{"backends.uv: must have both path and sha256, or neither (in ", "c.yaml:2)"}},
		{"a meaning that is wrong", "limits: {max: {memory_mb: -1}}", []string{"limits.max.memory_mb: must be > 0 (got -1, in ", "c.yaml:1)"}},
		{"an open address", "http: {bind: '0.0.0.0:80'}", []string{"http.bind: must be a loopback address"}},
		{"an alias to itself", "backends: {uv: &a {x: *a}}", []string{"backends.uv"}},
		{"aliases that blow up", "backends: {uv: {a: &a [1,1,1,1,1,1,1,1,1], b: &b [*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b], d: &d [*c,*c,*c,*c,*c,*c,*c,*c], e: &e [*d,*d,*d,*d,*d,*d,*d,*d], f: &f [*e,*e,*e,*e,*e,*e,*e,*e], g: [*f,*f,*f,*f,*f,*f,*f,*f]}}", []string{"is too large"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := settings.Load(settings.Options{File: file(t, test.text)})
			if err == nil || !settings.IsInvalid(err) {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q", err, want)
				}
			}
		})
	}
	// What was not understood is said once: not also what would follow from its absence.
	for _, text := range []string{
		"backends: [uv]", "backends: {uv: []}", "http: {bind: '0.0.0.0:80', tokens: {}}", "http: {tokens: [{owner: a, sha256: [], hash: b}]}", "limits: {max: {pids: []}}",
		"{backend: other, backends: {uv: {}, other: []}}",
	} {
		_, err := settings.Load(settings.Options{File: file(t, text)})
		invalid, ok := errors.AsType[*executor.Error](err)
		if !ok {
			t.Fatal(err)
		}
		for _, f := range invalid.Fields {
			if !strings.Contains(f.Message, "c.yaml:1") {
				t.Errorf("%s: %s: %s", text, f.Field, f.Message)
			}
		}
	}
	if _, err := settings.Load(settings.Options{File: "/no/such/file"}); err == nil || settings.IsInvalid(err) || !strings.Contains(err.Error(), "/no/such/file") {
		t.Error(err)
	}
}

func TestWhatIsShownCanBeLoaded(t *testing.T) {
	c := load(t, `
backends: {uv: {index_url: "https://me:secret@index/simple", image_map: {"A:1": "3.12"}}, x: {path: /p, sha256: `+strings.Repeat("ab", 32)+`}}
http: {tokens: [{owner: "yes", sha256: `+strings.Repeat("0", 64)+`}]}
`)
	for name, write := range map[string]func(config.Config) ([]byte, error){"yaml": settings.YAML, "json": settings.JSON} {
		text, err := write(c)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "secret") {
			t.Errorf("%s shows a password: %s", name, text)
		}
		again := load(t, string(text))
		if !reflect.DeepEqual(again.HTTP.Tokens[0].Owner, "yes") || again.Backends["x"].SHA256 != strings.Repeat("ab", 32) {
			t.Errorf("%s: %+v", name, again)
		}
		again.Backends, again.HTTP.Tokens = c.Backends, c.HTTP.Tokens
		if !reflect.DeepEqual(again, c) {
			t.Errorf("%s: got %+v", name, again)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("http: {bind: x}\nbackends: {uv: &a {b: [*a]}}")
	f.Add("limits: {max: {memory_mb: 1e3}}")
	f.Add("? [a]\n: b\n<<: {x: y}")
	path := filepath.Join(f.TempDir(), "c.yaml") // of this worker alone
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = settings.Load(settings.Options{File: path})
	})
}
