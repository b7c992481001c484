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
	peerExecutable = ", sys.executable"
	peerUV         = ", uv run, cached requests"
)

func mcpSeries() (series []string) {
	for _, transport := range []string{"stdio", "http"} {
		ours, peer := "mcp "+transport, "mcp peer "+transport
		series = append(series, ours+runCode, ours+runCodeAlone, ours+cachedRequests, peer+peerExecutable, peer+peerUV)
	}
	return series
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
	ours, theirs, err := freePorts()
	if err != nil {
		return err
	}
	own := filepath.Join(dir, "mcp")
	if err := os.MkdirAll(own, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	s := &serve.Server{Binary: binary, Dir: own, Env: []string{
		"PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=127.0.0.1:" + ours, "PYEXEC_MCP_NETWORK_PYTHON=on",
	}}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Stop()
	env := append(os.Environ(), "PEER_UV="+opts.uv, "PYEXEC_BACKENDS_UV_CACHE_DIR="+filepath.Join(own, "cache"), "PYEXEC_BACKENDS_UV_WORK_DIR="+filepath.Join(own, "work-stdio"))
	other := exec.Command(python, peer) //nolint:gosec // our own program
	other.Env = append(env, "PEER_PORT="+theirs)
	if err := other.Start(); err != nil {
		return err
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	if err := answers("127.0.0.1:" + theirs); err != nil {
		return err
	}
	var version struct{ Stdout string }
	if err := s.JSON(http.MethodPost, "/api/v1/exec/sync", `{"code":"import sys; print('%d.%d' % sys.version_info[:2])"}`, &version); err != nil {
		return err
	}
	plan, err := json.Marshal(map[string]any{
		"rounds": max(1, opts.rounds/4), "python": strings.TrimSpace(version.Stdout), "servers": map[string]any{
			"stdio": []string{binary, "mcp"}, "peer stdio": []string{python, peer},
			"http": "http://127.0.0.1:" + ours + "/mcp", "peer http": "http://127.0.0.1:" + theirs + "/mcp",
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

// freePorts are two that nobody listens on at this moment.
func freePorts() (first, second string, err error) {
	ports := [2]string{}
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens at once
		if err != nil {
			return "", "", err
		}
		defer l.Close() //nolint:errcheck // it served its purpose
		if _, ports[i], err = net.SplitHostPort(l.Addr().String()); err != nil {
			return "", "", err
		}
	}
	return ports[0], ports[1], nil
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
