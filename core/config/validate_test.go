package config_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := config.Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestValidateNamesTheProblem(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("ab", 32)
	for _, test := range []struct {
		name string
		do   func(*config.Config)
		want []string
	}{
		{"a negative maximum", func(c *config.Config) { c.Limits.Max.MemoryMB = -1 },
			[]string{"limits.max.memory_mb: must be > 0 (got -1)"}},
		{"a default above its maximum", func(c *config.Config) { c.Limits.Default.PIDs = 5000 },
			[]string{"limits.default.pids: must be <= limits.max.pids, 4096 (got 5000)"}},
		{"a timeout that is not a number", func(c *config.Config) { c.Limits.Default.TimeoutSeconds = math.NaN() },
			[]string{"limits.default.timeout_seconds: must be > 0 (got NaN)"}},
		{"a timeout beyond what a duration holds", func(c *config.Config) { c.Limits.Max.TimeoutSeconds = 1e12 },
			[]string{"limits.max.timeout_seconds: must be <= 1000000000 (got 1000000000000)"}},
		{"cpu shares below the kernel's least", func(c *config.Config) { c.Limits.Default.CPUShares = 1 },
			[]string{"limits.default.cpu_shares: must be between 2 and 262144 (got 1)"}},
		{"an address without a port", func(c *config.Config) { c.HTTP.Bind = "localhost" },
			[]string{`http.bind: must be host:port with a port from 0 to 65535 (got "localhost")`}},
		{"ports that do not exist", func(c *config.Config) {
			c.HTTP.Bind, c.HTTP.PprofBind, c.MCP.HTTP.Bind, c.Worker.Bind = "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:"
		}, []string{
			`http.bind: must be host:port with a port from 0 to 65535 (got "127.0.0.1:99999")`,
			`http.pprof_bind: must be host:port with a port from 0 to 65535, or empty for no profiles (got "127.0.0.1:-1")`,
			`mcp.http.bind: must be host:port with a port from 0 to 65535 (got "127.0.0.1:65536")`,
			`worker.bind: must be host:port with a port from 0 to 65535 (got "127.0.0.1:")`,
		}},
		{"the first port and the last one", func(c *config.Config) { c.HTTP.Bind, c.MCP.HTTP.Bind = "127.0.0.1:0", "127.0.0.1:65535" }, nil},
		{"more processes than a kernel has", func(c *config.Config) { c.Limits.Max.PIDs = 99_999_999_999 },
			[]string{"limits.max.pids: must be <= 4194304 (got 99999999999)"}},
		{"MCP at a route of the server", func(c *config.Config) { c.MCP.HTTP.Path = "/api/v1/exec/sync" },
			[]string{`mcp.http.path: must not be or be below /api, which the server uses itself: take a path like /mcp (got "/api/v1/exec/sync")`}},
		{"MCP at a page of the server", func(c *config.Config) { c.MCP.HTTP.Path = "/mcp_ui/page.js" },
			[]string{`mcp.http.path: must not be or be below /mcp_ui, which the server uses itself: take a path like /mcp (got "/mcp_ui/page.js")`}},
		{"MCP beside the routes of the server", func(c *config.Config) { c.MCP.HTTP.Path = "/apis/mcp" }, nil},
		{"MCP at a pattern", func(c *config.Config) { c.MCP.HTTP.Path = "/{any}" }, []string{`mcp.http.path: must be a path like /mcp (got "/{any}")`}},
		{"an open address without tokens", func(c *config.Config) { c.HTTP.Bind = "0.0.0.0:8080" },
			[]string{`http.bind: must be a loopback address, unless http.tokens or http.allow_unauthenticated (--allow-unauthenticated) is set (got "0.0.0.0:8080")`}},
		{"an open address for profiles, which a token does not help", func(c *config.Config) {
			c.HTTP.PprofBind, c.HTTP.Tokens = "0.0.0.0:6060", []config.Token{{Owner: "me", SHA256: hash}}
		}, []string{`http.pprof_bind: must be a loopback address (got "0.0.0.0:6060")`}},
		{"an open address that everybody may use", func(c *config.Config) { c.HTTP.Bind, c.HTTP.AllowUnauthenticated = ":8080", true }, nil},
		{"an open address with a token", func(c *config.Config) {
			c.HTTP.Bind, c.HTTP.Tokens = "[::]:8080", []config.Token{{Owner: "me", SHA256: hash}}
		}, nil},
		{"a worker with half of its files", func(c *config.Config) { c.Worker.TLS.Cert = "/cert.pem" }, []string{
			"worker.tls.ca_cert: must be given with the other files of worker.tls", "worker.tls.key: must be given with the other files of worker.tls",
		}},
		{"a worker with all of its files", func(c *config.Config) {
			c.Worker.TLS.CACert, c.Worker.TLS.Cert, c.Worker.TLS.Key = "/ca.pem", "/cert.pem", "/key.pem"
		}, nil},
		{"MCP that is wrong in every way", func(c *config.Config) {
			c.MCP.Toolsets, c.MCP.Directories, c.MCP.Network.Shell = []string{"perl"}, []string{"here"}, "maybe"
			c.MCP.HTTP = config.MCPHTTP{Enabled: true, Bind: "0.0.0.0:8000", Path: "mcp"}
			c.MCP.MaxResultBytes, c.MCP.Shell.MaxOutputBytes = 1, 0
		}, []string{
			`mcp.toolsets[0]: must be one of python, contexts, shell, scripts (got "perl")`,
			`mcp.directories[0]: must be an absolute path (got "here")`,
			`mcp.network.shell: must be on, off or empty (got "maybe")`,
			"mcp.max_result_bytes: must be >= 1000 (got 1)",
			`mcp.http.bind: must be a loopback address, unless http.tokens or http.allow_unauthenticated (--allow-unauthenticated) is set (got "0.0.0.0:8000")`,
			`mcp.http.path: must be a path like /mcp (got "mcp")`,
			"mcp.http.max_body_bytes: must be > 0 (got 0)",
			"mcp.http.max_sessions: must be >= 1 (got 0)",
			"mcp.shell.max_output_bytes: must be >= 1 (got 0)",
		}},
		{"an open address for MCP with a token", func(c *config.Config) {
			c.MCP.HTTP.Enabled, c.MCP.HTTP.Bind, c.HTTP.Tokens = true, ":8000", []config.Token{{Owner: "me", SHA256: hash}}
		}, nil},
		{"an open address for MCP that everybody may use", func(c *config.Config) {
			c.MCP.HTTP.Enabled, c.MCP.HTTP.Bind, c.HTTP.AllowUnauthenticated = true, ":8000", true
		}, nil},
		{"the loopback of version 6", func(c *config.Config) { c.HTTP.Bind = "[::1]:8080" }, nil},
		{"tokens that are wrong in every way", func(c *config.Config) {
			c.HTTP.Tokens = []config.Token{{SHA256: "secret", Scopes: []string{"root"}}, {Owner: "a", SHA256: hash}, {Owner: "b", SHA256: hash}}
		}, []string{
			"http.tokens[0].owner: must be set",
			"http.tokens[0].sha256: must be 64 lower-case hex digits, the SHA-256 of the token",
			`http.tokens[0].scopes[0]: must be one of exec, read, admin, scripts, trusted (got "root")`,
			"http.tokens[2].sha256: duplicate of http.tokens[1].sha256",
		}},
		{"no backend at all", func(c *config.Config) { c.Backends = nil }, []string{"backends: must have at least one entry"}},
		{"a default backend that is not there", func(c *config.Config) { c.Backend = "docker" },
			[]string{`backend: must name an entry of backends: uv (got "docker")`}},
		{"a path without a checksum", func(c *config.Config) { c.Backends["mine"] = config.Backend{Path: "/x"} },
			[]string{"backends.mine: must have both path and sha256, or neither"}},
		{"a backend with a bad name", func(c *config.Config) { c.Backends["My backend"] = config.Backend{} },
			[]string{"backends.My backend: the name must be lower-case letters, digits, - and _ (at most 63)"}},
		{"no sessions at all", func(c *config.Config) { c.Sessions.Max, c.Sessions.MaxWaiting, c.Sessions.KeepClosedSeconds = 0, 0, 0 }, nil},
		{"modules to preload", func(c *config.Config) { c.Sessions.Preload = []string{"numpy", "os.path", "_x1"} }, nil},
		{"sessions that are wrong in every way", func(c *config.Config) {
			c.Sessions = config.Sessions{
				Max: -1, MaxPerOwner: -2, MaxWaiting: -3, IdleTimeoutSeconds: 0, EvictIdleSeconds: -5, MaxLifeSeconds: math.Inf(1), MaxFileBytes: -4,
				KeepClosedSeconds: math.NaN(), Preload: []string{"numpy", "import os", ".x", "", "1a"},
			}
		}, []string{
			"sessions.max: must be >= 0 (got -1)",
			"sessions.max_per_owner: must be >= 0 (got -2)",
			"sessions.max_waiting: must be >= 0 (got -3)",
			"sessions.idle_timeout_seconds: must be > 0 (got 0)",
			"sessions.evict_idle_seconds: must be >= 0 (got -5)",
			"sessions.max_life_seconds: must be <= 1000000000 (got +Inf)",
			"sessions.max_file_bytes: must be > 0 (got -4)",
			"sessions.keep_closed_seconds: must be >= 0 (got NaN)",
			`sessions.preload[1]: must be the name of a Python module, like numpy or os.path (got "import os")`,
			`sessions.preload[2]: must be the name of a Python module, like numpy or os.path (got ".x")`,
			`sessions.preload[3]: must be the name of a Python module, like numpy or os.path (got "")`,
			`sessions.preload[4]: must be the name of a Python module, like numpy or os.path (got "1a")`,
		}},
		{"a closed session that is kept for ever", func(c *config.Config) { c.Sessions.KeepClosedSeconds = 1e10 },
			[]string{"sessions.keep_closed_seconds: must be <= 1000000000 (got 10000000000)"}},
		{"every problem at once", func(c *config.Config) {
			c.DataDir, c.Engine.MaxConcurrent, c.Engine.MaxQueued, c.Retention.MaxBytes = "", 0, -2, -1
		}, []string{
			"data_dir: must be set",
			"engine.max_concurrent: must be >= 1 (got 0)",
			"engine.max_queued: must be >= 0 (got -2)",
			"retention.max_bytes: must be >= 0 (got -1)",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := config.Default()
			test.do(&c)
			err := c.Validate()
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if !slices.Equal(got, test.want) {
				t.Fatalf("got  %q\nwant %q", got, test.want)
			}
			if err == nil {
				return
			}
			problem, ok := errors.AsType[*executor.Error](err)
			if !ok || problem.Code != executor.Invalid || len(problem.Fields) != len(test.want) {
				t.Fatalf("got %#v", err)
			}
		})
	}
}

func TestABackendKeepsItsOwnKeysAsTheyAre(t *testing.T) {
	t.Parallel()
	const section = `{"type":"uv","path":"/p","sha256":"5a","image_map":{"Python:3.12-Slim":"3.12"}}`
	var b config.Backend
	if err := json.Unmarshal([]byte(section), &b); err != nil {
		t.Fatal(err)
	}
	if b.Type != "uv" || b.Path != "/p" || b.SHA256 != "5a" || string(b.Options) != `{"image_map":{"Python:3.12-Slim":"3.12"}}` {
		t.Fatalf("got %+v %s", b, b.Options)
	}
	again, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"image_map":{"Python:3.12-Slim":"3.12"},"path":"/p","sha256":"5a","type":"uv"}`; string(again) != want {
		t.Fatalf("got %s, want %s", again, want)
	}
}

func TestTheTimesOfSessionsAreDurations(t *testing.T) {
	t.Parallel()
	s := config.Default().Sessions
	if s.IdleTimeout() != 30*time.Minute || s.MaxLife() != 24*time.Hour || s.KeepClosed() != time.Hour {
		t.Errorf("got %s, %s, %s", s.IdleTimeout(), s.MaxLife(), s.KeepClosed())
	}
}

func TestLimitsInTheUnitsOfTheContract(t *testing.T) {
	t.Parallel()
	got := config.Default().Limits.Default.Executor()
	if got.Timeout.Seconds() != 300 || got.MemoryBytes != 1<<30 || got.DiskBytes != 2<<30 || got.OutputBytes != 64<<20 ||
		got.KillGrace.Seconds() != 1 || got.PIDs != 256 || got.CPUShares != 1024 {
		t.Fatalf("got %+v", got)
	}
}

func TestTheTimeOfAScriptIsInMilliseconds(t *testing.T) {
	t.Parallel()
	if got := (config.Scripts{TimeoutMS: 1500}).Timeout(); got != 1500*time.Millisecond {
		t.Errorf("1500 ms are %s", got)
	}
}

func TestTheLogOfScriptsLiesInTheDataFolder(t *testing.T) {
	t.Parallel()
	if dir := config.Default().Scripts.LogDir; dir != "Test-Start-MCP/logs" {
		t.Errorf("the default is %q", dir)
	}
	for dir, want := range map[string]string{"": "", "/logs": "/logs", "Test-Start-MCP/logs": "/data/Test-Start-MCP/logs"} {
		if got := (config.Scripts{LogDir: dir}).Below("/data").LogDir; got != want {
			t.Errorf("the log of scripts in %q lies in %q, want %q", dir, got, want)
		}
	}
}
