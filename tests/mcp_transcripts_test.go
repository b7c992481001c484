package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/tests/internal/mcpclient"
)

// mcpPython returns the interpreter of a venv that has the official Python client.
func mcpPython(t *testing.T) string {
	t.Helper()
	python, err := mcpclient.Python(false)
	if err != nil {
		t.Log(err)
		skipWithout(t, "index", false)
	}
	return python
}

// mcpFolders are what the transcripts run on: a folder of Python scripts, and one of host scripts with a link out of it.
func mcpFolders(t *testing.T) (dir, scripts string, env []string) {
	t.Helper()
	dir = tree(t,
		file{"main.py", "import sys\nprint(sys.argv[1:], open('data').read())"}, file{"data", "data"}, file{"plain.py", "print('plain')"},
		file{"long_task.py", "import time\nprint('begun', flush=True)\ntime.sleep(600)"})
	outer := tree(t,
		file{"outside.sh", "#!/bin/sh\n"},
		file{"root/run-tests-and-server.sh", "#!/bin/sh\necho \"args: $*\"\necho \"cwd: $PWD\"\necho \"token: ${CLS_TOKEN:-none}\"\necho ready >&2\ncase \"$*\" in *--no-tests*) exit 3;; esac\n"},
		file{"root/slow.sh", "#!/bin/sh\necho begun\nsleep 600 & wait\n"},
		file{"root/loud.sh", "#!/bin/sh\nseq 1 100000\n"},
		file{"root/broken.sh", "#!/no/such/interpreter\n"})
	scripts = filepath.Join(outer, "root")
	if err := os.Symlink("../outside.sh", filepath.Join(scripts, "link.sh")); err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for _, name := range []string{"run-tests-and-server.sh", "slow.sh", "loud.sh", "link.sh", "broken.sh"} {
		path := filepath.Join(scripts, name)
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		allowed = append(allowed, path)
	}
	return dir, scripts, []string{
		"TSM_ALLOWED_ROOT=" + scripts, "TSM_ALLOWED_SCRIPTS=" + strings.Join(allowed, ":"), "TSM_ENV_ALLOWLIST=CLS_TOKEN",
		"TSM_ALLOWED_ARGS=--no-tests,--kill-port,--smoke,--host,--port", "TSM_LOG_DIR=" + filepath.Join(outer, "logs"),
		"PYEXEC_MCP_TOOLSETS=python,contexts,shell,scripts", "PYEXEC_MCP_DIRECTORIES=" + dir, "PYEXEC_MCP_NETWORK_PYTHON=on",
		"PYEXEC_BACKENDS_UV_CACHE_DIR=" + cacheDir,
	}
}

// minorOf is the minor version of the interpreter that programs get.
func minorOf(t *testing.T, env []string) string {
	t.Helper()
	o := cli(t, env, strings.NewReader("import sys; print('%d.%d' % sys.version_info[:2])"), "run")
	if o.code != 0 {
		t.Fatalf("%+v", o)
	}
	return strings.TrimSpace(o.stdout)
}

// TestMCPTranscripts replays every example and every error of the four specifications with the official Python client.
func TestMCPTranscripts(t *testing.T) {
	needtest.Long(t, "TestMCPAfternoon, and the tests of plugins/frontend-mcp")
	python := mcpPython(t)
	transcripts, err := filepath.Glob("testdata/mcp/*.json")
	if err != nil || len(transcripts) != 4 {
		t.Fatalf("%q, %v", transcripts, err)
	}
	replay := func(t *testing.T, transcript string, env []string, traits []string, args ...string) {
		t.Helper()
		ctx := awaittest.Context(t)
		cmd := exec.CommandContext(ctx, python, slices.Concat([]string{"testdata/mcp/replay.py", transcript, "--with", strings.Join(traits, ",")}, args)...)
		cmd.Env = environ(env...)
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, tail(out, 8000))
		}
		t.Logf("%s", tail(out, 200))
	}
	for _, backend := range []string{"uv", "docker"} {
		t.Run(backend, func(t *testing.T) {
			dir, scripts, env := mcpFolders(t)
			traits := []string{"index"} // the client came from there
			if backend == "docker" {
				env = slices.Concat(dockerEnv(t), env)
			}
			set := []string{"--set", "dir=" + dir, "--set", "scripts=" + scripts, "--set", "python=" + minorOf(t, env)}
			t.Run("stdio", func(t *testing.T) {
				for _, path := range transcripts {
					t.Run(filepath.Base(path), func(t *testing.T) {
						replay(t, path, env, append(slices.Clone(traits), "stdio", "session"), append(slices.Clone(set), "--", binary, "mcp")...)
					})
				}
			})
			t.Run("bridge", func(t *testing.T) {
				if backend != "uv" {
					t.Log("the server's backend makes no difference to it")
					return
				}
				on := append(slices.Clone(env), "PYEXEC_SERVER="+startServer(t, env).url)
				for _, path := range transcripts {
					if filepath.Base(path) != "scripts.json" { // whose folder of logs is the server's
						replay(t, path, on, append(slices.Clone(traits), "stdio", "session"), append(slices.Clone(set), "--", binary, "mcp")...)
					}
				}
			})
			t.Run("http", func(t *testing.T) {
				address := freeAddress(t)
				on := append(slices.Clone(env), "PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND="+address)
				var s *server
				if backend == "docker" {
					s = startDocker(t, on...)
				} else {
					s = startServer(t, on)
				}
				for mode, more := range map[string][]string{"legacy": {"http", "session"}, "auto": {"http"}} {
					for _, path := range transcripts {
						for _, url := range []string{"http://" + address + "/mcp", s.url + "/mcp"} {
							if url == s.url+"/mcp" && mode == "auto" {
								continue // the same handler behind another endpoint: once is enough
							}
							t.Run(mode+" "+filepath.Base(path), func(t *testing.T) {
								replay(t, path, env, append(slices.Clone(traits), more...), append(slices.Clone(set), "--mode", mode, "--url", url)...)
							})
						}
					}
				}
			})
		})
	}
}

// TestMCPInspector lists the tools with the official inspector, whose schema check is strict.
func TestMCPInspector(t *testing.T) {
	needtest.Long(t, "TestMCPAfternoon, and the tests of plugins/frontend-mcp")
	dir, node := mcpTools(t)
	_, _, env := mcpFolders(t)
	address := freeAddress(t)
	startServer(t, append(slices.Clone(env), "PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND="+address))
	for name, args := range map[string][]string{
		"http":  {"http://" + address + "/mcp", "--transport", "http"},
		"stdio": {binary, "mcp", "--transport", "stdio", "-e", "PYEXEC_MCP_TOOLSETS=python,contexts,shell,scripts", "-e", "PYEXEC_BACKENDS_UV_CACHE_DIR=" + cacheDir},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+" "+era, func(t *testing.T) {
				ctx := awaittest.Context(t)
				cmd := exec.CommandContext(ctx, node, slices.Concat([]string{filepath.Join(dir, "node_modules", ".bin", "mcp-inspector"), "--cli"}, args,
					[]string{"--method", "tools/list", "--strict", "--protocol-era", era, "--format", "json"})...)
				cmd.Env = environ(append(slices.Clone(env), "HOME="+t.TempDir())...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, tail(out, 8000))
				}
				for _, tool := range []string{"run_script_in_dir", "benchmark_script", "kill_job", "run_code", "execute", "list_allowed"} {
					if !strings.Contains(string(out), `"`+tool+`"`) {
						t.Errorf("%s is not listed: %s", tool, tail(out, 2000))
					}
				}
			})
		}
	}
}
