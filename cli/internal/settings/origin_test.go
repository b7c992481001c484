package settings

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/core/config"
)

// The layers of a key, from the weakest to the strongest, as a test gives them.
const (
	inFile = 1 << iota
	inAlias
	inVariable
	inFlag
	allLayers = 1<<iota - 1
)

func TestTheOriginIsWhatViperHasChosen(t *testing.T) {
	for _, path := range Keys() {
		k := key{path: path}
		section, name, nested := strings.Cut(path, ".")
		deep, last, deeper := strings.Cut(name, ".")
		line := fmt.Sprintf("%s: from-the-file", section)
		switch {
		case deeper:
			line = fmt.Sprintf("%s: {%s: {%s: from-the-file}}", section, deep, last)
		case nested:
			line = fmt.Sprintf("%s: {%s: from-the-file}", section, name)
		}
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte("\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for given := range allLayers + 1 {
			if given&inAlias != 0 && aliases[path] == "" {
				continue
			}
			t.Run(fmt.Sprintf("%s %04b", path, given), func(t *testing.T) {
				var o Options
				want, value := byDefault, ""
				if given&inFile != 0 {
					o.File = file
					want, value = file+":2", "from-the-file"
				}
				if given&inAlias != 0 {
					t.Setenv(aliases[path], "from-the-alias")
					want, value = aliases[path], "from-the-alias"
				}
				if given&inVariable != 0 {
					t.Setenv(k.variable(), "from-the-variable")
					want, value = k.variable(), "from-the-variable"
				}
				flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
				flags.String("a-flag", "from-the-default-of-the-flag", "")
				o.Flags = map[string]*pflag.Flag{path: flags.Lookup("a-flag")}
				if given&inFlag != 0 {
					if err := flags.Parse([]string{"--a-flag", "from-the-flag"}); err != nil {
						t.Fatal(err)
					}
					want, value = "--a-flag", "from-the-flag"
				}
				_, l, _ := load(o) // most values do not fit their keys, which are problems
				if got := l.origin(path); got != want {
					t.Errorf("origin %q, want %q", got, want)
				}
				if got := fmt.Sprint(l.viper.Get(path)); given != 0 && got != value {
					t.Errorf("viper chose %q, want %q", got, value)
				}
				if l.viper.IsSet(path) != true {
					t.Error("viper has no value")
				}
			})
		}
	}
}

func TestOriginsNameEveryKeyAndOption(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "http:\n  tokens:\n    - {owner: a, sha256: " + strings.Repeat("ab", 32) + "}\nbackends:\n  uv:\n    index_url: https://me:secret@index/simple\n    Case: {X: 1}\n  other: {type: uv}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYEXEC_BACKENDS_UV_RUN_AS", "1000")
	t.Setenv("MCP_HTTP_PATH", "/other")
	t.Setenv("TSM_TOKEN", "secret")
	o := Options{File: file, Sections: map[string]json.RawMessage{"uv": json.RawMessage(`{"run_as":""}`)}}
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	origins, err := Origins(o, c)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Origin{}
	for _, o := range origins {
		got[o.Key] = o
		if strings.Contains(string(o.Value), "secret") {
			t.Errorf("%s shows a password: %s", o.Key, o.Value)
		}
	}
	for key, want := range map[string][2]string{
		"http.bind":                  {`"127.0.0.1:8080"`, "default"},
		"mcp.http.path":              {`"/other"`, "MCP_HTTP_PATH"},
		"backends.uv.run_as":         {`"1000"`, "PYEXEC_BACKENDS_UV_RUN_AS"},
		"backends.uv.index_url":      {`"https://me:xxxxx@index/simple"`, file + ":6"},
		"backends.uv.Case.X":         {`1`, file + ":7"},
		"backends.other.type":        {`"uv"`, file + ":8"},
		"limits.default.memory_mb":   {`1024`, "default"},
		"mcp.http.max_body_bytes":    {`16777216`, "default"},
		"sessions.preload":           {`[]`, "default"},
		"http.allow_unauthenticated": {`false`, "default"},
	} {
		if got[key].Origin != want[1] || string(got[key].Value) != want[0] {
			t.Errorf("%s: %s from %s, want %v", key, got[key].Value, got[key].Origin, want)
		}
	}
	if tokens := got["http.tokens"]; tokens.Origin != file+":2" || strings.Count(string(tokens.Value), "owner") != 2 {
		t.Errorf("http.tokens: %s from %s", tokens.Value, tokens.Origin)
	}
	for _, key := range Keys() {
		if _, ok := got[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
}

func TestTheOriginIsThatOfTheValueItself(t *testing.T) {
	sections := map[string]json.RawMessage{"uv": json.RawMessage(`{"image_map":{},"preimport":[],"pool":{"n":1,"m":1}}`)}
	for _, c := range []struct {
		name, text, variable string
		want                 map[string]string // a line of the file, or a variable
	}{
		{"c.yaml", "backends:\n  uv:\n    pool: {n: 2, m: 3}\n    image_map: {b: '3.11'}\n", `PYEXEC_BACKENDS_UV_IMAGE_MAP={"a.b:1":"3.12"}`, map[string]string{
			"backends.uv.image_map.a.b:1": "PYEXEC_BACKENDS_UV_IMAGE_MAP", "backends.uv.pool.n": ":3",
		}},
		{"c.yaml", "backends:\n  uv:\n    pool: {n: 2, m: 3}\n", "PYEXEC_BACKENDS_UV_POOL_N=5", map[string]string{
			"backends.uv.pool.n": "PYEXEC_BACKENDS_UV_POOL_N", "backends.uv.pool.m": ":3",
		}},
		{"c.yaml", "backends:\n  uv:\n    image_map:\n      a.io/x: '3.12'\n      a[1]: '3.11'\n      a:1.5: '3.11'\n", "PYEXEC_HTTP_BIND=127.0.0.1:5", map[string]string{
			"http.bind": "PYEXEC_HTTP_BIND", "backends.uv.image_map.a.io/x": ":4", "backends.uv.image_map.a[1]": ":5", "backends.uv.image_map.a:1.5": ":6",
		}},
		{"c.toml", "\n[http]\nbind = '127.0.0.1:1'\n\n[[http.tokens]]\nowner = 'a'\n[backends.uv.image_map]\n'a.b:1' = '3.12'\n", "", map[string]string{
			"http.tokens": ":5", "http.tokens[0]": ":5", "http.tokens[0].owner": ":6", "backends.uv.image_map.a.b:1": ":8",
		}},
		{"c.toml", "[mcp]\ntoolsets = [\n 'python',\n 5, 1.5,\n true,\n 2020-01-02,\n ['a',\n 'b'],\n {a = 1}]\n", "", map[string]string{
			"mcp.toolsets": ":2", "mcp.toolsets[0]": ":3", "mcp.toolsets[1]": ":4", "mcp.toolsets[2]": ":4", "mcp.toolsets[3]": ":5", "mcp.toolsets[4]": ":6",
			"mcp.toolsets[5][1]": ":8", "mcp.toolsets[6]": ":9",
		}},
		{"c.json", "{\"mcp\": {\n\"toolsets\": [\n\"python\",\n5]}}\n", "", map[string]string{"mcp.toolsets": ":2", "mcp.toolsets[1]": ":4"}},
	} {
		t.Run(c.text, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.name)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if variable, value, ok := strings.Cut(c.variable, "="); ok {
				t.Setenv(variable, value)
			}
			_, l, _ := load(Options{File: path, Sections: sections}) // some values are wrong
			for key, want := range c.want {
				if got := strings.TrimPrefix(l.origin(key), path); got != want {
					t.Errorf("%s: %s, want %s", key, got, want)
				}
			}
		})
	}
}

func TestATOMLFileIsAYAMLFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) Options {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Options{File: path}
	}
	hash := strings.Repeat("ab", 32)
	inTOML := write("c.TOML", `
backend = "My_uv"
[http]
bind = "127.0.0.1:9"
[[http.tokens]]
owner = "a"
sha256 = "`+hash+`"
scopes = ["exec"]
[limits.max]
memory_mb = 4096
timeout_seconds = 5e2
[limits.default]
timeout_seconds = 7
[sessions]
preload = ["numpy"]
[backends.My_uv]
type = "uv"
since = 2020-01-02
image_map = {"Reg/Image:3.12" = "3.12"}
[backends.x]
`)
	inYAML := write("c.yaml", `
backend: My_uv
http: {bind: "127.0.0.1:9", tokens: [{owner: a, sha256: `+hash+`, scopes: [exec]}]}
limits: {max: {memory_mb: 4096, timeout_seconds: 500}, default: {timeout_seconds: 7}}
sessions: {preload: [numpy]}
backends: {My_uv: {type: uv, since: 2020-01-02, image_map: {"Reg/Image:3.12": "3.12"}}, x: }
`)
	a, errA := Load(inTOML)
	b, errB := Load(inYAML)
	without := func(err error, at string) string { return strings.ReplaceAll(fmt.Sprint(err), " (in "+at+")", "") }
	if without(errA, inTOML.File+":16") != without(errB, inYAML.File+":6") || !reflect.DeepEqual(a, b) || a.Limits.Max.MemoryMB != 4096 || a.Limits.Default.TimeoutSeconds != 7 {
		t.Errorf("%+v, %v\n%+v, %v", a, errA, b, errB)
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"what is no TOML":      {"a = [", []string{"c.toml: line 1: toml"}},
		"a key twice":          {"backend = 'a'\nbackend = 'b'", []string{"c.toml: toml: key backend is already defined"}},
		"unknown keys":         {"\nlimts = 1\n[http]\nbind = '127.0.0.1:1'\n\nbnid = 2\n[limits.max]\nmemory = 1\n", []string{"limts: unknown key (", "c.toml:2): did you mean limits?", "http.bnid: unknown key (", "c.toml:6): did you mean http.bind?", "limits.max.memory: unknown key (", "c.toml:8): did you mean limits.max.memory_mb?"}},
		"mismatches":           {"[engine]\nmax_queued = 'many'\nmax_concurrent = 1.5\n[sessions]\npreload = ['numpy', 5]\n", []string{`engine.max_queued: must be a whole number (got "many", in `, "c.toml:2)", `engine.max_concurrent: must be a whole number (got 1.5, in `, "c.toml:3)", `sessions.preload[1]: must be text (got 5, in `, "c.toml:5)"}},
		"a mismatch in a list": {"[[http.tokens]]\nowner = 'a'\nsha256 = '" + hash + "'\n[[http.tokens]]\nowner = 'b'\n\nsha256 = 5\nhash = 1\n", []string{`http.tokens[1].sha256: must be text (got 5, in `, "c.toml:7)", "http.tokens[1].hash: unknown key (", "c.toml:8)"}},
		"a list inline":        {"[http]\ntokens = [\n {owner = 'a'},\n {owner = 5}]\n", []string{`http.tokens[1].owner: must be text (got 5, in `, "c.toml:4)"}},
		"no section":           {"http = 5\n", []string{`http: must be a section (got 5, in `, "c.toml:1)"}},
	} {
		_, err := Load(write("c.toml", c.text))
		for _, want := range c.want {
			if err == nil || !IsInvalid(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", name, err, want)
			}
		}
	}
}

func TestANameWithADotIsUnknown(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, text, want string }{
		{"c.yaml", "limits.default.memory_mb: 5\nscripts.allowed: [/a]\n", "limits.default.memory_mb:1 scripts.allowed:2"},
		{"c.yaml", "\nlimits.default.memory_mb: 5\nlimits: {default: {memory_mb: 6}}\n", "limits.default.memory_mb:2"},
		{"c.yaml", "limits:\n  default.memory_mb: many\n", "limits.default.memory_mb:2"},
		{"c.yaml", "limits: {default: {.memory_mb: 5, memory_mb.: 5}}\n", "limits.default..memory_mb:1 limits.default.memory_mb.:1"},
		{"c.yaml", "backends.uv.run_as: a\nbackends.uv: {run_as: a}\nbackends: {uv: {run_as: a}}\n", "backends.uv:2 backends.uv.run_as:1"},
		{"c.yaml", "mcp: {http.enabled: true}\nhttp.tokens: [{owner: a}]\n", "http.tokens:2 mcp.http.enabled:1"},
		{"c.json", `{"limits.default": {"memory_mb": 5}}`, "limits.default:1"},
		{"c.toml", "\n\"http.bind\" = '127.0.0.1:5'\n[limits.\"default.memory_mb\"]\n[limits.default]\nmemory_mb = 7\n[http]\nbind = '127.0.0.1:7'\n", "http.bind:2 limits.default.memory_mb:3"},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(Options{File: path})
		var said []string
		for line := range strings.Lines(fmt.Sprint(err)) {
			key, line, ok := strings.Cut(strings.TrimSpace(line), ": unknown key ("+path)
			said = append(said, key+strings.TrimSuffix(line, "): write it as sections, because a name has no dots"))
			if !ok {
				t.Errorf("%s: %s", c.text, key)
			}
		}
		if strings.Join(said, " ") != c.want {
			t.Errorf("%s: got %q, want %q", c.text, said, c.want)
		}
		if got.Limits.Default.MemoryMB == 5 || len(got.Scripts.Allowed) > 0 || got.HTTP.Bind == "127.0.0.1:5" || got.MCP.HTTP.Enabled {
			t.Errorf("%s: took effect: %+v", c.text, got)
		}
	}
	for name, text := range map[string]string{
		"c.toml": "http.bind = '127.0.0.1:5'\n[backends.uv.image_map]\n\"reg.io/a:1.2\" = '3.12'\n",
		"c.yaml": "http: {bind: '127.0.0.1:5'}\nbackends: {uv: {image_map: {reg.io/a:1.2: '3.12'}}}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Options{File: path})
		if err != nil || c.HTTP.Bind != "127.0.0.1:5" || string(c.Backends["uv"].Options) != `{"image_map":{"reg.io/a:1.2":"3.12"}}` {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
}

func TestASyntaxErrorOfJSONIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	for text, want := range map[string]string{
		"{\n\"http\": [}\n":                  path + ": line 2: invalid character '}'",
		"{\"backend\": \"uv\"\n\"http\": 5}": path + ": line 2: invalid character '\"'",
		"{":                                  path + ": line 1: unexpected end",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(Options{File: path}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestAnUnknownKeySaysWhatWasMeant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	sections := map[string]json.RawMessage{"uv": json.RawMessage("{}"), "docker": json.RawMessage("{}"), "nomad": json.RawMessage("{}")}
	for text, want := range map[string]string{
		"limts: {}":                        "limts: unknown key (" + path + ":1): did you mean limits?",
		"bind: x":                          "bind: unknown key (" + path + ":1): did you mean http.bind?",
		"port: 8080":                       "port: unknown key (" + path + ":1): did you mean http.bind?",
		"http: {host: x}":                  "http.host: unknown key (" + path + ":1): did you mean http.bind?",
		"tls: {cert: x}":                   "tls: unknown key (" + path + ":1): the server speaks plain HTTP: let a reverse proxy",
		"limits: {default: {memory: 1}}":   "limits.default.memory: unknown key (" + path + ":1): did you mean limits.default.memory_mb?",
		"memory_mb: 1":                     "memory_mb: unknown key (" + path + ":1): did you mean limits.default.memory_mb?",
		"backend: dokcer":                  `backend: must name an entry of backends or a type: docker, nomad, uv (got "dokcer", in ` + path + ":1): did you mean docker?",
		"backend: x\nbackends: {mine: {}}": `backend: must name an entry of backends or a type: docker, mine, nomad, uv (got "x", in ` + path + ":1)",
		"scripts: {allow: []}":             "scripts.allow: unknown key (" + path + ":1): did you mean scripts.allowed?",
		"http: {allow: true}":              "http.allow: unknown key (" + path + ":1): did you mean http.allow_unauthenticated?",
		"limits: {default: {cpus: 1}}":     "limits.default.cpus: unknown key (" + path + ":1): did you mean limits.default.cpu_seconds?",
		"limits: {max: {cpu: 1}}":          "limits.max.cpu: unknown key (" + path + ":1): did you mean limits.max.cpu_seconds?",
		"limits: {memory_mb: 1}":           "limits.memory_mb: unknown key (" + path + ":1): did you mean limits.default.memory_mb?",
		"sessions: {timeout: 1}":           "sessions.timeout: unknown key (" + path + ":1): did you mean sessions.idle_timeout_seconds?",
		"sessions: {evict: 1}":             "sessions.evict: unknown key (" + path + ":1): did you mean sessions.evict_idle_seconds?",
		"timeout: 1":                       "timeout: unknown key (" + path + ":1): did you mean limits.default.timeout_seconds?",
		"http: {prt: 80}":                  "http.prt: unknown key (" + path + ":1): did you mean http.bind?",
		"http: {bnid: x}":                  "http.bnid: unknown key (" + path + ":1): did you mean http.bind?",
		"http: {tls_cert: x}":              "http.tls_cert: unknown key (" + path + ":1): the server speaks plain HTTP: let a reverse proxy",
		"mcp: {path: x}":                   "mcp.path: unknown key (" + path + ":1): did you mean mcp.http.path?",
		"worker: {cert: x}":                "worker.cert: unknown key (" + path + ":1): did you mean worker.tls.cert?",
		"frobnicate: 1":                    "frobnicate: unknown key (" + path + ":1)",
		"http: {tokens: [{Owner: a}]}":     "http.tokens[0].Owner: unknown key (" + path + ":1)",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Options{File: path, Sections: sections})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if strings.HasPrefix(text, "frob") && strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%s: %v", text, err)
		}
	}
	t.Setenv("PYEXEC_BACKEND", "ux")
	if _, err := Load(Options{Sections: sections}); err == nil || !strings.Contains(err.Error(), `backend: must name an entry of backends or a type: docker, nomad, uv (got "ux", in PYEXEC_BACKEND): did you mean uv?`) {
		t.Error(err)
	}
}

func TestTheDefaultsAreGivenToViper(t *testing.T) {
	_, l, err := load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	for _, k := range keysOf(reflect.ValueOf(&c).Elem()) {
		if got := l.viper.Get(k.path); !reflect.DeepEqual(got, k.value.Interface()) {
			t.Errorf("%s: %v, want %v", k.path, got, k.value.Interface())
		}
	}
}
