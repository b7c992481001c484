package runner

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/network"
)

func TestAProgramWithAPrivateNetworkIsInANamespaceOfItsOwn(t *testing.T) {
	for _, box := range []bool{true, false} {
		t.Run(fmt.Sprintf("box %v", box), func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Box = cfg.Box && box
			privateNetwork(t, cfg)
		})
	}
}

func privateNetwork(t *testing.T, cfg Config) {
	needtest.Need(t, cfg.NetworkNamespace && network.Probe() == nil, needtest.Root, "network namespaces with a way out")
	cfg.PrivateNetwork = true
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	r := startRunner(t, cfg)
	start := python(fmt.Sprintf(`
import os, socket
print(os.readlink('/proc/self/ns/net'))
for address in (%q, %d), ("10.0.0.1", 9):
    try:
        socket.create_connection(address, timeout=20)
        print("connected")
    except OSError as e:
        print(e.strerror)
`, "127.0.0.1", l.Addr().(*net.TCPAddr).Port))
	namespaces := map[string]bool{}
	for _, with := range []bool{true, false, true} {
		start.Network = with
		_, rec := r.run(t, start, RunInput{})
		lines := strings.Split(rec.stdout(), "\n")
		want := "Network is unreachable"
		if with {
			want = "No route to host"
		}
		if len(lines) != 4 || lines[1] != "Connection refused" || lines[2] != want {
			t.Errorf("network %v: %s%s", with, rec.stdout(), rec.stderr())
		}
		namespaces[lines[0]] = true
	}
	if len(namespaces) != 2 || namespaces[own] {
		t.Errorf("the namespaces are %v, that of the host is %s", namespaces, own)
	}
}
