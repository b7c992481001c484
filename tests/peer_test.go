package tests

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownAddress is an address of this host that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	// Nothing is sent: the kernel only chooses the address.
	c, err := net.Dial("udp", "198.51.100.1:9")
	if err != nil {
		skipWithout(t, "an address that is not loopback", false)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String()
}

// call is where testdata/caller.py tries to call.
type call struct {
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Script string `json:"script"`
	Token  string `json:"token"`
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// callFromAProgram runs testdata/caller.py with a network and returns what answered it.
func (s *server) callFromAProgram(backend string, calls []call, header ...string) map[string][2]any {
	s.t.Helper()
	code, err := os.ReadFile("testdata/caller.py")
	if err != nil {
		s.t.Fatal(err)
	}
	raw, err := json.Marshal(calls)
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{
		"code": string(code), "env": map[string]string{"CALLS": string(raw)}, "config": map[string]any{"network_disabled": false}, "backend": backend,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	a := s.post("/api/v1/exec/sync", string(body), header...)
	r := a.json(s.t)
	if a.status != http.StatusOK || r["status"] != "succeeded" {
		s.t.Fatalf("%d %s", a.status, a.body)
	}
	var seen map[string][2]any
	if err := json.Unmarshal([]byte(r["stdout"].(string)), &seen); err != nil {
		s.t.Fatalf("%v: %s", err, a.body)
	}
	return seen
}

// A program that shares the host's network, or that reaches an address of the host, is no local client of its own server. Every
// listener is tried at every address of this host, on new and kept connections, with an upgrade, and with sockets that are closed before
// their request is read.
func TestAProgramCannotCallItsServer(t *testing.T) {
	skipWithout(t, "root", os.Geteuid() == 0)
	root := t.TempDir()
	script, ran := filepath.Join(root, "touch.sh"), filepath.Join(root, "ran")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n: > "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(root, "second.yaml")
	folders := filepath.Join(filepath.Dir(cacheDir), "second")
	if err := os.WriteFile(second, []byte("backends: {uv: {}, other: {type: uv, network: host, cache_dir: "+folders+"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := ownAddress(t)
	all := []string{"127.0.0.1", "::1", own}
	const host = "PYEXEC_BACKENDS_UV_NETWORK=host"
	for _, test := range []struct {
		name, bind string
		hosts      []string
		env        []string
		token      string
		backend    string
	}{
		{"on loopback with scripts", "127.0.0.1", all[:1], []string{host}, "", "uv"},
		{"on every address", "[::]", all, []string{host, "PYEXEC_HTTP_ALLOW_UNAUTHENTICATED=true"}, "", "uv"},
		{"at an address that is open to programs with a network of their own", "[::]", all[2:], []string{
			"PYEXEC_BACKENDS_UV_NETWORK_OPEN=" + own + "/32", "PYEXEC_HTTP_ALLOW_UNAUTHENTICATED=true",
		}, "", "uv"},
		{"with a token", "[::]", all, []string{
			host, `PYEXEC_HTTP_TOKENS=[{"owner":"ann","sha256":"` + sha("secret") + `","scopes":["exec","read","admin","scripts","trusted"]}]`,
		}, "secret", "uv"},
		{"of a backend that is not the default", "127.0.0.1", all[:1], []string{
			"PYEXEC_BACKENDS_UV_ISOLATION=none", "PYEXEC_CONFIG=" + second,
		}, "", "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			mcp := test.bind + ":" + strconv.Itoa(portOf(t, freeAddress(t)))
			profiles := freeAddress(t)
			env := append([]string{
				"PYEXEC_HTTP_BIND=" + test.bind + ":0", "PYEXEC_MCP_HTTP_ENABLED=true", "PYEXEC_MCP_HTTP_BIND=" + mcp, "PYEXEC_HTTP_PPROF_BIND=" + profiles,
				"TSM_ALLOWED_ROOT=" + root, "TSM_ALLOWED_SCRIPTS=" + script,
			}, test.env...)
			s := startServer(t, env)
			var header []string
			if test.token != "" {
				header = []string{"Authorization", "Bearer " + test.token}
			}
			calls := []call{{"127.0.0.1", portOf(t, profiles), script, test.token}}
			for _, host := range test.hosts {
				calls = append(calls, call{host, portOf(t, s.url), script, test.token}, call{host, portOf(t, mcp), script, test.token})
			}
			tried := calls
			if !slices.Contains(test.hosts, "127.0.0.1") {
				tried = calls[1:] // the program's loopback is its own
			}
			for attempt, answer := range s.callFromAProgram(test.backend, tried, header...) {
				if status := answer[0].(float64); status != 0 && status != http.StatusForbidden {
					t.Errorf("%s: %v", attempt, answer)
				}
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("a program had a host script run")
			}
			var list struct {
				Executions []any `json:"executions"`
			}
			if a := s.get("/api/v1/executions", header...); json.Unmarshal(a.body, &list) != nil || len(list.Executions) != 1 {
				t.Errorf("there is more than the program itself: %s", a.body)
			}
			if !strings.Contains(s.log.String(), "connection refused") {
				t.Errorf("no refusal was logged:\n%s", s.log)
			}
			// Others on this host are served.
			for _, c := range calls {
				address := netip.AddrPortFrom(netip.MustParseAddr(c.Host), uint16(c.Port)).String()
				path, method, body := "/api/v1/executions", http.MethodGet, ""
				switch c.Port {
				case portOf(t, profiles):
					path = "/debug/pprof/cmdline"
				case portOf(t, mcp):
					path, method = "/mcp", http.MethodPost
					body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
				}
				r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				if a := s.do(r); a.status != http.StatusOK {
					t.Errorf("%s %s: %d %s", method, address, a.status, a.body)
				}
			}
		})
	}
}

func TestAProgramWithANetworkOfItsOwnDoesNotReachItsServer(t *testing.T) {
	s := startServer(t, []string{"PYEXEC_HTTP_BIND=[::]:0", "PYEXEC_HTTP_ALLOW_UNAUTHENTICATED=true"})
	port := strconv.Itoa(portOf(t, s.url))
	code := `
import socket
for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "` + ownAddress(t) + `", "169.254.169.254"):
    try:
        socket.create_connection((host, ` + port + `), timeout=20)
        print(host, "answers")
    except OSError as e:
        print(host, e.strerror)
`
	body, err := json.Marshal(map[string]any{"code": code, "config": map[string]any{"network_disabled": false}})
	if err != nil {
		t.Fatal(err)
	}
	a := s.post("/api/v1/exec/sync", string(body))
	r := a.json(t)
	if a.status == http.StatusNotImplemented {
		skipWithout(t, "a network of its own: "+string(a.body), false)
	}
	if out, _ := r["stdout"].(string); r["status"] != "succeeded" || strings.Contains(out, "answers") || strings.Count(out, "\n") != 5 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
