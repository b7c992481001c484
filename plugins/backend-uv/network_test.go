package uvbackend

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/network/networktest"
)

// inWorld runs the calling test in a world of network namespaces, as root and as an ordinary user. It reports whether this process
// is in one.
func inWorld(t *testing.T) bool {
	t.Helper()
	if networktest.Role() != "" {
		return true
	}
	for _, role := range []string{networktest.AsRoot, networktest.AsUser} {
		var out bytes.Buffer
		exit := networktest.Run(role, []string{"-test.run", "^" + t.Name() + "$", "-test.v"}, &out)
		// go test takes the first line about coverage for that of this package.
		t.Logf("%s: exit code %d\n%s", role, exit, regexp.MustCompile(`(?m)^coverage: .*\n`).ReplaceAll(out.Bytes(), nil))
		if exit != 0 {
			t.Fail()
		}
	}
	return false
}

// reaching is a program that says which addresses it reaches.
func reaching(addresses ...string) string {
	return fmt.Sprintf(`
import socket
for address in %q.split():
    host, _, port = address.rpartition(":")
    try:
        s = socket.create_connection((host.strip("[]"), int(port)), timeout=20)
        s.sendall(b"hello")
        print(address, s.recv(5) == b"hello")
    except OSError as e:
        print(address, type(e).__name__ + ":", e.strerror)
`, strings.Join(addresses, " "))
}

func TestAProgramReachesTheOutsideAndNotTheHost(t *testing.T) {
	if !inWorld(t) {
		return
	}
	b := openBackend(t, map[string]any{"network_open": []string{"192.168.7.0/24"}})
	needtest.Need(t, b.how.WayOut, needtest.Box, b.how.Why["way_out"])
	addresses := []string{
		"public.test:7", "198.51.100.7:7", "[2001:db8:5::9]:7", "192.168.7.7:7", // reached
		"198.51.100.7:9", "127.0.0.1:8080", "[::1]:8080", networktest.HostIPv4 + ":8080", networktest.HostPrivate + ":8080", "169.254.169.254:7", "192.168.8.7:7",
		"internal.test:7", "host.test:8080", "nothing.test:7",
	}
	want := `public.test:7 True
198.51.100.7:7 True
[2001:db8:5::9]:7 True
192.168.7.7:7 True
198.51.100.7:9 ConnectionRefusedError: Connection refused
127.0.0.1:8080 ConnectionRefusedError: Connection refused
[::1]:8080 ConnectionRefusedError: Connection refused
203.0.113.1:8080 OSError: No route to host
10.99.0.1:8080 OSError: No route to host
169.254.169.254:7 OSError: No route to host
192.168.8.7:7 OSError: No route to host
internal.test:7 True
host.test:8080 gaierror: No address associated with hostname
nothing.test:7 gaierror: Name or service not known
`
	for range 2 { // the second on the same slot
		result, j := run(t, b, executor.Spec{Code: reaching(addresses...), Network: executor.NetworkOn})
		if result.Status != executor.StatusSucceeded || j.text(executor.Stdout) != want {
			t.Errorf("%+v\n%s\n%s", result, j.text(executor.Stdout), j.text(executor.Stderr))
		}
	}
	result, j := run(t, b, executor.Spec{Code: reaching("198.51.100.7:7"), Network: executor.NetworkOff})
	if got := j.text(executor.Stdout); !strings.Contains(got, "Network is unreachable") {
		t.Errorf("without a network: %+v %s", result, got)
	}
}

func TestASessionKeepsItsConnections(t *testing.T) {
	if !inWorld(t) {
		return
	}
	b := openBackend(t, nil)
	needtest.Need(t, b.how.WayOut, needtest.Box, b.how.Why["way_out"])
	const id = "ctx-network"
	if _, err := b.OpenSession(t.Context(), executor.Session{ID: id, Spec: executor.Spec{Network: executor.NetworkOn}, Limits: job(executor.Spec{}).Limits}); err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{
		"import socket; s = socket.create_connection(('public.test', 7), timeout=20)",
		"s.sendall(b'hello'); print(s.recv(5))",
	} {
		result, j := run(t, b, executor.Spec{Session: id, Code: code})
		if result.Status != executor.StatusSucceeded {
			t.Errorf("%+v\n%s", result, j.text(executor.Stderr))
		}
		if out := j.text(executor.Stdout); strings.Contains(code, "print") && out != "b'hello'\n" {
			t.Errorf("%q", out)
		}
	}
	if err := b.CloseSession(t.Context(), id); err != nil {
		t.Error(err)
	}
}

func TestWithTheHostsNetworkAProgramReachesItsLoopback(t *testing.T) {
	if !inWorld(t) {
		return
	}
	b := openBackend(t, map[string]any{"network": "host"})
	_, j := run(t, b, executor.Spec{Code: reaching("127.0.0.1:8080", "10.1.2.3:7"), Network: executor.NetworkOn})
	if out := j.text(executor.Stdout); out != "127.0.0.1:8080 True\n10.1.2.3:7 True\n" {
		t.Errorf("%s%s", out, j.text(executor.Stderr))
	}
	info, err := b.Info(t.Context())
	if err != nil || !strings.Contains(strings.Join(info.Warnings, "\n"), "loopback") || info.Details["network"] != "the host's" {
		t.Errorf("%+v, %v", info, err)
	}
}

// A machine without what a way out needs.
func TestWithoutAWayOutANetworkIsRefused(t *testing.T) {
	b := openBackend(t, nil)
	b.how.WayOut, b.how.Why = false, map[string]string{"way_out": "no nftables"}
	b.can = promises(b.how, b.groups, b.config)
	_, err := b.Run(t.Context(), job(executor.Spec{Code: "print(1)", Network: executor.NetworkOn}), &journal{})
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || e.Code != executor.Unimplemented || len(e.Fields) != 1 || !strings.Contains(e.Fields[0].Message, "backends.uv.network is not host: no nftables") {
		t.Errorf("%v", err)
	}
	succeeds(t, b, executor.Spec{Code: "print(1)"})
	if f := b.networkFinding("be root"); f.Level != backend.LevelWarn || !strings.Contains(f.Message, "no nftables") {
		t.Errorf("%+v", f)
	}
	if off := b.notInForce(); !slices.Contains(off, "private network: no nftables") {
		t.Error(off)
	}
}
