package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
)

// cache holds probed interpreters and environments for all scripts of one test run. It is outside the scripts' folders,
// because the uids that run programs must reach it.
var cache string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		main() // a runner or a plugin that a test's own process has started by executing itself
	}
	testscript.Main(suite{m}, map[string]func(){"python-executor": main})
}

// suite is the top-level run; a process that a script or a host started never gets here.
type suite struct{ m *testing.M }

// Run implements testscript.TestingM.
func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "cli-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cache = filepath.Join(dir, "cache")
	return leaktest.Run(s.m)
}

// TestScripts runs every script in testdata/script against the real program: it starts plugins and runners by executing
// itself, as the installed binary does.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			for _, kv := range e.Vars {
				if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PYEXEC_") {
					e.Setenv(name, "")
				}
			}
			examples, err := filepath.Abs("../examples")
			if err != nil {
				return err
			}
			e.Setenv("EXAMPLES", examples)
			e.Setenv("PYEXEC_BACKENDS_UV_CACHE_DIR", cache)
			if os.Geteuid() == 0 { // uids of its own: other suites run at the same time
				e.Setenv("PYEXEC_BACKENDS_UV_RUN_AS", "200400-200499")
			}
			// What a run leaves behind would be seen here.
			e.Setenv("PYEXEC_BACKENDS_UV_WORK_DIR", filepath.Join(cache, "work-"+filepath.Base(e.WorkDir)))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "server": server, "interrupts": interrupts, "nothing-left": nothingLeft, "bytes": sameBytes, "http": httpRequest, "mcp": mcpCalls,
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return need("root", os.Geteuid() == 0)
			case "index":
				return need("index", os.Getenv("PYEXEC_TEST_OFFLINE") == "")
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
	})
}

// need fails instead of skipping what CI insists on.
func need(what string, have bool) (bool, error) {
	for part := range strings.SplitSeq(os.Getenv("PYEXEC_TEST_REQUIRE"), ",") {
		if part == what && !have {
			return false, fmt.Errorf("%s is required by PYEXEC_TEST_REQUIRE and missing", what)
		}
	}
	return have, nil
}

// exits STATUS COMMAND...: the command ends with exactly that status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil {
		ts.Fatalf("usage: exits STATUS COMMAND...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// environ is a script's environment for commands that are not run by ts.Exec.
func command(ts *testscript.TestScript, args ...string) *exec.Cmd {
	path, err := exec.LookPath("python-executor")
	ts.Check(err)
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PYEXEC_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	for _, name := range []string{
		"TMPDIR", "PYEXEC_SERVER", "PYEXEC_TOKEN", "PYEXEC_CONFIG", "PYEXEC_DATA_DIR", "PYEXEC_BACKENDS_UV_CACHE_DIR", "PYEXEC_BACKENDS_UV_WORK_DIR",
		"MCP_EXEC_LOG_FULL_OUTPUT", "MCP_EXEC_LOG_OUTPUT_BYTES", "MCP_EXEC_MAX_OUTPUT_BYTES", "MCP_HTTP_BIND", "MCP_HTTP_PATH",
		"TSM_ALLOWED_ARGS", "TSM_ALLOWED_ROOT", "TSM_ALLOWED_SCRIPTS", "TSM_ENV_ALLOWLIST", "TSM_LOG_LEVEL", "TSM_MAX_OUTPUT_BYTES", "TSM_TOKEN",
	} {
		if value := ts.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// server [FLAGS]: a server on a free port, in PYEXEC_SERVER; it is stopped with SIGTERM and must end with 0. MCP_SERVER is its listener for
// MCP, if MCP_HTTP_BIND asks for one.
func server(ts *testscript.TestScript, _ bool, args []string) {
	cmd := command(ts, append([]string{"serve", "--bind", "127.0.0.1:0", "--data-dir", ts.MkAbs("data")}, args...)...)
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	urls, log := make(chan string, 2), &bytes.Buffer{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(urls)
		for lines := bufio.NewReader(io.TeeReader(stderr, log)); ; {
			line, err := lines.ReadString('\n')
			if _, rest, ok := strings.Cut(line, `"url":"`); ok && strings.Contains(line, `"msg":"listening`) {
				url, _, _ := strings.Cut(rest, `"`)
				urls <- url
			}
			if err != nil {
				return
			}
		}
	}()
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read
		err := cmd.Wait()
		if err != nil {
			ts.Fatalf("serve: %v\n%s", err, log)
		}
	})
	url, ok := <-urls
	if !ok {
		ts.Fatalf("serve ended: %s", log)
	}
	ts.Setenv("PYEXEC_SERVER", url)
	if ts.Getenv("MCP_HTTP_BIND") != "" {
		ts.Setenv("MCP_SERVER", <-urls)
	}
}

// interrupts SIGNAL STATUS ARGS...: the command prints a line, gets the signal, and ends with the status.
func interrupts(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "PIPE": nil}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	cmd := command(ts, args[2:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		_ = cmd.Process.Kill()
		ts.Fatalf("%v\n%s", err, &stderr)
	}
	if s := signals[args[0]]; s != nil {
		ts.Check(cmd.Process.Signal(s))
	} else {
		stdout.Close()
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("exit status %d, want %d\n%s", got, want, &stderr)
	}
}

// nothing-left: no temporary folder, no work folder and no process of this script's runs is there any more.
func nothingLeft(ts *testscript.TestScript, _ bool, _ []string) {
	left, err := filepath.Glob(filepath.Join(ts.Getenv("TMPDIR"), "*"))
	ts.Check(err)
	if len(left) > 0 {
		ts.Fatalf("temporary files: %v", left)
	}
	work := ts.Getenv("PYEXEC_BACKENDS_UV_WORK_DIR")
	_ = filepath.WalkDir(work, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(d.Name(), ".py") {
			ts.Fatalf("a work folder: %s", path)
		}
		return nil
	})
	awaittest.UntilNil(script{ts}, "the end of all programs", func() error {
		if pids := leftovertest.Programs(work); len(pids) > 0 {
			return fmt.Errorf("processes: %v", pids)
		}
		return nil
	})
}

// script is a script that can wait.
type script struct{ *testscript.TestScript }

func (script) Helper() {}

// bytes FILE HEX: the file has exactly these bytes.
func sameBytes(ts *testscript.TestScript, _ bool, args []string) {
	if got := fmt.Sprintf("%x", ts.ReadFile(args[0])); got != args[1] {
		ts.Fatalf("got %s, want %s", got, args[1])
	}
}

func TestEveryBundledBackendIsLookedAt(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nowhere")
	for name, p := range bundled().Plugins {
		if p.Check == nil || p.Filled == nil || p.Doctor == nil {
			t.Errorf("%s has no Check, Filled or Doctor", name)
		} else if len(p.Doctor(t.Context(), nil)) == 0 || len(p.Doctor(t.Context(), []byte(`{"network": 1, "isolation": 1}`))) == 0 {
			t.Errorf("%s: its doctor says nothing", name)
		}
	}
}
