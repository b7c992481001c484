package uvbackend

import (
	"fmt"
	"strings"
	"testing"

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
		if exit := networktest.Run(role, []string{"-test.run", "^" + t.Name() + "$", "-test.v"}); exit != 0 {
			t.Errorf("%s: exit code %d", role, exit)
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
