package main

import (
	_ "embed" // the client's and the peer's programs
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/python-executor/python-executor/tests/internal/mcpclient"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

var (
	//go:embed mcpcalls.py
	mcpCalls string
	//go:embed mcppeer.py
	mcpPeer string
)

// What the names of the series end with. mcpcalls.py has them, too.
const (
	runCode        = ", run_code"
	runCodeAlone   = ", run_code without a context"
	cachedRequests = ", cached requests"
	importedBefore = ", cached requests imported before"
	importsLearned = ", cached requests, imports learned"
	peerExecutable = ", sys.executable"
	peerUV         = ", uv run, cached requests"
)

func mcpSeries() (series []string) {
	for _, transport := range []string{"stdio", "http"} {
		ours, peer := "mcp "+transport, "mcp peer "+transport
		series = append(series, ours+runCode, ours+runCodeAlone, ours+cachedRequests, ours+importedBefore, peer+peerExecutable, peer+peerUV)
	}
	return append(series, "mcp stdio"+importsLearned)
}

// mcp measures MCP calls over both transports next to a small FastMCP server that shells out, all by the same official
// Python client, interleaved.
func mcp(b *bench) error {
	r, opts, dir, binary := b.run, b.options, b.dir, b.binary
	python, err := mcpclient.Python(true)
	if err != nil {
		fmt.Println("the official Python client is not at hand: MCP is not measured:", err)
		return nil
	}
	if opts.uv == "" {
		fmt.Println("uv was not given: MCP is not measured")
		return nil
	}
	client, peer := filepath.Join(dir, "calls.py"), filepath.Join(dir, "peer.py")
	if err := errors.Join(os.WriteFile(client, []byte(mcpCalls), 0o600), os.WriteFile(peer, []byte(mcpPeer), 0o600)); err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	plain, err := startMCP(b, "mcp", ports[0])
	if err != nil {
		return err
	}
	defer plain.Stop()
	preimport := "PYEXEC_BACKENDS_UV_PREIMPORT=requests"
	before, err := startMCP(b, "mcp-before", ports[1], preimport)
	if err != nil {
		return err
	}
	defer before.Stop()
	env := append(os.Environ(), "PEER_UV="+opts.uv)
	stdio := func(s *serve.Server, more ...string) []string {
		return append(append([]string{"env", "PYEXEC_BACKENDS_UV_CACHE_DIR=" + filepath.Join(s.Dir, "cache"), "PYEXEC_BACKENDS_UV_WORK_DIR=" + filepath.Join(s.Dir, "work-stdio")}, more...), binary, "mcp")
	}
	other := exec.Command(python, peer) //nolint:gosec // our own program
	other.Env = append(env, "PEER_PORT="+ports[2])
	if err := other.Start(); err != nil {
		return err
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	if err := answers("127.0.0.1:" + ports[2]); err != nil {
		return err
	}
	var version struct{ Stdout string }
	if err := plain.JSON(http.MethodPost, "/api/v1/exec/sync", `{"code":"import sys; print('%d.%d' % sys.version_info[:2])"}`, &version); err != nil {
		return err
	}
	plan, err := json.Marshal(map[string]any{
		"rounds": max(1, opts.rounds/4), "python": strings.TrimSpace(version.Stdout), "servers": map[string]any{
			"stdio": stdio(plain), "stdio before": stdio(before, preimport), "stdio learned": stdio(plain, "PYEXEC_BACKENDS_UV_PREIMPORT_LEARNED=true"), "peer stdio": []string{python, peer},
			"http": endpoint(ports[0]), "http before": endpoint(ports[1]), "peer http": endpoint(ports[2]),
		},
	})
	if err != nil {
		return err
	}
	cmd := exec.Command(python, client, string(plan)) //nolint:gosec // our own program
	cmd.Env = env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("mcp: %w: %s", err, stderr.String())
	}
	var samples map[string][]float64
	if err := json.Unmarshal(out, &samples); err != nil {
		return fmt.Errorf("mcp: %w", err)
	}
	for name, list := range samples {
		r.Samples[name] = append(r.Samples[name], list...)
	}
	return nil
}

func endpoint(port string) string { return "http://127.0.0.1:" + port + "/mcp" }

// startMCP starts a server in the folder name, whose MCP endpoint is at port.
func startMCP(b *bench, name, port string, env ...string) (*serve.Server, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return nil, err
	}
	s := &serve.Server{Binary: b.binary, Dir: dir, Env: append(env,
		"PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=127.0.0.1:"+port, "PYEXEC_MCP_NETWORK_PYTHON=on",
	)}
	return s, s.Start()
}

// freePorts returns n ports that nobody listens on at this moment.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens at once
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // it served its purpose
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// answers waits until somebody listens.
func answers(address string) error {
	var err error
	for range 600 {
		var c net.Conn
		if c, err = net.Dial("tcp", address); err == nil { //nolint:noctx // bounded by the loop
			return c.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
