package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

// with returns the defaults with the value at a key, as a file would have it.
func with(t *testing.T, key string, value any) config.Config {
	t.Helper()
	raw, err := json.Marshal(config.Default())
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	at := tree
	path := strings.Split(key, ".")
	for _, name := range path[:len(path)-1] {
		at, _ = at[name].(map[string]any)
	}
	last := path[len(path)-1]
	if _, ok := at[last]; !ok {
		t.Fatalf("there is no key %s", key)
	}
	at[last] = value
	if raw, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	var c config.Config
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func problemsOf(c config.Config) []string {
	invalid, ok := errors.AsType[*executor.Error](c.Validate())
	if !ok {
		return nil
	}
	var fields []string
	for _, f := range invalid.Fields {
		fields = append(fields, f.Field)
	}
	return fields
}

func TestEveryKeyHasItsBounds(t *testing.T) {
	t.Parallel()
	type list = []any
	for _, test := range []struct {
		key        string
		good, bad  list
		badElement string // what the problem of a list adds to the key
	}{
		{"engine.max_concurrent", list{1, 10000}, list{0, -1}, ""},
		{"engine.max_queued", list{0, 1}, list{-1}, ""},
		{"engine.max_per_owner", list{0, 1}, list{-1}, ""},
		{"engine.max_running_per_owner", list{0, 1}, list{-1}, ""},
		{"engine.max_artifact_bytes", list{0, 1}, list{-1}, ""},
		{"engine.max_spool_bytes", list{0, 1}, list{-1}, ""},
		{"engine.max_spool_bytes_per_owner", list{0, 1}, list{-1}, ""},
		{"engine.drain_timeout_seconds", list{0, 1e9}, list{-0.1, 1.1e9}, ""},
		{"retention.max_age_seconds", list{0, 0.5, 1e9}, list{-0.1, 1.1e9}, ""},
		{"retention.max_executions", list{0, 1}, list{-1}, ""},
		{"retention.max_bytes", list{0, 1}, list{-1}, ""},
		{"http.max_body_bytes", list{1}, list{0, -1}, ""},
		{"http.max_buffered_bytes", list{32 << 20}, list{32<<20 - 1}, ""},
		{"limits.default.timeout_seconds", list{0.5, 86400}, list{0, -1, 86401}, ""},
		{"limits.default.cpu_seconds", list{0, 0.5, 86400}, list{-1, 86401}, ""},
		{"limits.max.cpu_seconds", list{300, 1e9}, list{0, 1.1e9}, ""},
		{"limits.default.memory_mb", list{1, 65536}, list{0, -1, 65537}, ""},
		{"limits.default.disk_mb", list{1, 65536}, list{0, -1, 65537}, ""},
		{"limits.default.cpu_shares", list{2, 262144}, list{0, 1, 262145}, ""},
		{"limits.default.pids", list{1, 4096}, list{0, -1, 4097}, ""},
		{"limits.default.output_bytes", list{1, 1 << 30}, list{0, -1, 1<<30 + 1}, ""},
		{"limits.default.kill_grace_seconds", list{0.1, 60}, list{0, -1, 61}, ""},
		{"limits.max.timeout_seconds", list{300, 1e9}, list{0, 1.1e9}, ""},
		{"limits.max.memory_mb", list{1024, 1 << 40}, list{0, 1<<40 + 1}, ""},
		{"limits.max.disk_mb", list{2048, 1 << 40}, list{0, 1<<40 + 1}, ""},
		{"limits.max.cpu_shares", list{1024, 262144}, list{1, 262145}, ""},
		{"limits.max.pids", list{256, 1 << 22}, list{0, 1<<22 + 1}, ""},
		{"limits.max.output_bytes", list{64 << 20, 1 << 60}, list{0, 1<<60 + 4096}, ""},
		{"limits.max.kill_grace_seconds", list{1, 1e9}, list{0, 1.1e9}, ""},
		{"sessions.max", list{0, 1}, list{-1}, ""},
		{"sessions.max_per_owner", list{0, 1}, list{-1}, ""},
		{"sessions.max_waiting", list{0, 1}, list{-1}, ""},
		{"sessions.idle_timeout_seconds", list{0.1, 1e9}, list{0, -1, 1.1e9}, ""},
		{"sessions.evict_idle_seconds", list{0, 1e9}, list{-1, 1.1e9}, ""},
		{"sessions.max_life_seconds", list{0.1, 1e9}, list{0, 1.1e9}, ""},
		{"sessions.max_file_bytes", list{1, 1 << 60}, list{0, 1<<60 + 4096}, ""},
		{"sessions.keep_closed_seconds", list{0, 1e9}, list{-1, 1.1e9}, ""},
		{"sessions.preload", list{list{"numpy", "os.path"}}, list{list{"a b"}, list{".x"}}, "[0]"},
		{"mcp.directories", list{list{"/srv"}}, list{list{"srv"}}, "[0]"},
		{"mcp.contexts.requirements", list{list{"numpy", "pandas>=2"}}, list{list{""}, list{" "}, list{"-r x"}, list{"a\nb"}, list{"# a"}}, "[0]"},
		{"mcp.max_result_bytes", list{1000}, list{999}, ""},
		{"http.pprof_bind", list{"", "127.0.0.1:6060", "localhost:0", "[::1]:1"}, list{"6060", ":6060", "0.0.0.0:6060", "[::]:1", "192.0.2.1:1"}, ""},
		{"mcp.http.path", list{"/mcp", "/a/b"}, list{"", "mcp", "/", "/mcp/", "/a/../b"}, ""},
		{"mcp.http.bind", list{"127.0.0.1:1", "0.0.0.0:8000"}, list{"8000"}, ""}, // not enabled: it may be any address
		{"mcp.http.max_body_bytes", list{1, 256 << 20}, list{0, 256<<20 + 1}, ""},
		{"mcp.http.max_sessions", list{1}, list{0}, ""},
		{"mcp.shell.max_output_bytes", list{1}, list{0}, ""},
		{"mcp.shell.log_output_bytes", list{0}, list{-1}, ""},
		{"scripts.root", list{"", "/srv"}, list{"srv"}, ""},
		{"scripts.allowed", list{list{"/srv/a.sh"}}, list{list{"a.sh"}}, "[0]"},
		{"scripts.args", list{list{"--port", "-v", "start", "*"}}, list{list{""}, list{"--"}, list{"--a=b"}}, "[0]"},
		{"scripts.env", list{list{"A_1"}}, list{list{"1A"}, list{"A B"}, list{""}}, "[0]"},
		{"scripts.timeout_ms", list{1, 86_400_000}, list{0, 86_400_001}, ""},
		{"scripts.max_output_bytes", list{1, 1 << 30}, list{0, 1<<30 + 1}, ""},
		{"scripts.max_line_bytes", list{1, 1 << 30}, list{0, 1<<30 + 1}, ""},
		{"worker.bind", list{"0.0.0.0:8090", ":0"}, list{"", "8090"}, ""},
		{"worker.max_concurrent", list{1, 10000}, list{0, -1}, ""},
		{"worker.drain_timeout_seconds", list{0, 1e9}, list{-0.1, 1.1e9}, ""},
		{"worker.silence_seconds", list{10, 1e9}, list{0, 9.9, 1.1e9}, ""},
		{"worker.tls.peer_name", list{"a.b"}, list{""}, ""},
	} {
		for _, value := range test.good {
			if found := problemsOf(with(t, test.key, value)); found != nil {
				t.Errorf("%s: %v is refused: %v", test.key, value, found)
			}
		}
		for _, value := range test.bad {
			found := problemsOf(with(t, test.key, value))
			want := test.key + test.badElement
			// A default that is compared with a wrong maximum is named, too.
			if strings.HasPrefix(test.key, "limits.") && len(found) == 2 && strings.HasPrefix(found[1], "limits.default.") {
				found = found[:1]
			}
			if len(found) != 1 || found[0] != want {
				t.Errorf("%s: %v has problems with %v, want one, with %s", test.key, value, found, want)
			}
		}
	}
}

func TestTokensAndBackendsHaveTheirForms(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	token := func(change func(*config.Token)) config.Config {
		c := config.Default()
		c.HTTP.Tokens = []config.Token{{Owner: "a", SHA256: sum, Scopes: []string{"exec"}}}
		change(&c.HTTP.Tokens[0])
		return c
	}
	backend := func(name string, b config.Backend) config.Config {
		c := config.Default()
		c.Backends[name] = b
		return c
	}
	bind := func(address string) config.Config {
		c := config.Default()
		c.HTTP.Bind = address
		return c
	}
	for _, test := range []struct {
		name string
		c    config.Config
		want string
	}{
		{"a token", token(func(*config.Token) {}), ""},
		{"a token without an owner", token(func(k *config.Token) { k.Owner = "" }), "http.tokens[0].owner"},
		{"a token whose hash is too short", token(func(k *config.Token) { k.SHA256 = sum[2:] }), "http.tokens[0].sha256"},
		{"a token whose hash is in capitals", token(func(k *config.Token) { k.SHA256 = strings.ToUpper(sum) }), "http.tokens[0].sha256"},
		{"a scope that is none", token(func(k *config.Token) { k.Scopes = []string{"exec", "root"} }), "http.tokens[0].scopes[1]"},
		{"an external backend", backend("mine", config.Backend{Path: "/x", SHA256: sum}), ""},
		{"one without a hash", backend("mine", config.Backend{Path: "/x"}), "backends.mine"},
		{"one without a path", backend("mine", config.Backend{SHA256: sum}), "backends.mine"},
		{"one whose hash is none", backend("mine", config.Backend{Path: "/x", SHA256: "ab"}), "backends.mine.sha256"},
		{"a name in capitals", backend("Mine", config.Backend{}), "backends.Mine"},
		{"a name that is too long", backend(strings.Repeat("a", 64), config.Backend{}), "backends." + strings.Repeat("a", 64)},
		{"a name of this machine", bind("LocalHost:1"), ""},
		{"another address of this machine", bind("127.9.9.9:1"), ""},
		{"all addresses", bind(":1"), "http.bind"},
		{"another machine's name", bind("localhost.example:1"), "http.bind"},
	} {
		if found := problemsOf(test.c); strings.Join(found, " ") != test.want {
			t.Errorf("%s: problems with %q, want %q", test.name, found, test.want)
		}
	}
}

// The share of an owner follows from what there is, and from whether there are others.
func TestTheShareOfAnOwner(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ tokens, concurrent, queued, sessions, executionsWant, sessionsWant int }{
		{0, 4, 1000, 100, 0, 0},
		{1, 4, 1000, 100, 502, 50},
		{2, 1, 0, 1, 1, 1},
		{2, 3, 0, 0, 1, 1},
	} {
		c := config.Default()
		c.HTTP.Tokens = make([]config.Token, test.tokens)
		c.Engine.MaxConcurrent, c.Engine.MaxQueued, c.Sessions.Max = test.concurrent, test.queued, test.sessions
		c.ShareExecutions()
		c.ShareSessions()
		if got, want := fmt.Sprint(c.Engine.MaxPerOwner, c.Sessions.MaxPerOwner), fmt.Sprint(test.executionsWant, test.sessionsWant); got != want {
			t.Errorf("%+v: an owner may have %s, want %s", test, got, want)
		}
	}
}

// With one owner nothing is kept for another. Several tokens may have one owner.
func TestASlotIsKeptWhereThereAreSeveralOwners(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		owners     []string
		concurrent int
		running    int
		spool      int64
	}{
		{nil, 4, 0, 0},
		{[]string{"a", "a"}, 4, 0, 0},
		{[]string{"a", "a", "b"}, 4, 3, 50},
		{[]string{"a", "b"}, 1, 1, 50},
	} {
		c := config.Default()
		for _, owner := range test.owners {
			c.HTTP.Tokens = append(c.HTTP.Tokens, config.Token{Owner: owner})
		}
		c.Engine.MaxConcurrent, c.Engine.MaxSpoolBytes, c.Engine.MaxRunningPerOwner = test.concurrent, 100, 7
		c.ShareRunning()
		c.ShareSpool()
		if c.Engine.MaxRunningPerOwner != test.running || c.Engine.MaxSpoolBytesPerOwner != test.spool {
			t.Errorf("%+v: an owner may run %d and spool %d", test, c.Engine.MaxRunningPerOwner, c.Engine.MaxSpoolBytesPerOwner)
		}
	}
}
