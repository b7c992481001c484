package dockerbackend

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestProgramsWithANetworkDoNotReachThisMachine(t *testing.T) {
	t.Parallel()
	b := openBackend(t, map[string]any{"pool": map[string]any{"min_idle": 0, "sessions": 0}})
	needtest.Need(t, b.networks.iptables != nil, needtest.Root, "this process cannot change the firewall: "+b.networks.why)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // the connection itself is the result
			mu.Lock()
			accepted++
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		wg.Wait()
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	knock := executor.Spec{Network: executor.NetworkOn, Args: []string{port}, Code: `
import socket, struct, sys
lines = [l.split() for l in open("/proc/net/route").read().splitlines()[1:]]
gateway = next(socket.inet_ntoa(struct.pack("<L", int(l[2], 16))) for l in lines if l[1] == "00000000")
for host in [gateway, "169.254.169.254"]:
    try:
        socket.create_connection((host, int(sys.argv[1])), timeout=20).close()
        print("connected")
    except OSError as e:
        print(type(e).__name__)
`}
	out, _ := succeeds(t, b, knock)
	if strings.Contains(out, "connected") || strings.Contains(out, "imeout") || len(strings.Fields(out)) != 2 {
		t.Errorf("got %q", out)
	}
	mu.Lock()
	defer mu.Unlock()
	if accepted != 0 {
		t.Errorf("%d connections to blocked addresses succeeded", accepted)
	}
	forward, _ := b.networks.chains()
	if err := b.networks.iptables(t.Context(), "-L", forward, "-n"); err != nil {
		t.Errorf("the firewall has no chain of this installation: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.networks.iptables(t.Context(), "-L", forward, "-n"); err == nil {
		t.Error("rules of this installation are left in the firewall")
	}
}

func TestABridgeOfOursHasNoAddressesThatAreNotGuarded(t *testing.T) {
	t.Parallel()
	if o := bridgeOptions("pyexec-1", nil); o.EnableIPv6 == nil || *o.EnableIPv6 {
		t.Errorf("IPv6 is not switched off: %+v", o)
	}
}

func TestTheGuardIsPutUpOnceAndBlocksEveryRange(t *testing.T) {
	t.Parallel()
	n := &networks{device: "pyexec-1", log: slog.New(slog.DiscardHandler)}
	var rules []string
	n.iptables = func(ctx context.Context, args ...string) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		line := strings.Join(args, " ")
		if strings.HasPrefix(line, "-C") && !slices.Contains(rules, strings.Replace(line, "-C", "-I", 1)) {
			return fmt.Errorf("no such rule")
		}
		if strings.HasPrefix(line, "-I") || strings.HasPrefix(line, "-A") {
			rules = append(rules, line)
		}
		return nil
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(nil) // an execution that has been cancelled does not leave half of the rules
	for range 2 {
		if err := n.guard(ended); err != nil {
			t.Fatal(err)
		}
	}
	for _, network := range append(slices.Clone(blocked), "169.254.0.0/16", "10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12") {
		if got := strings.Count(strings.Join(rules, "\n"), "-A PYEXEC-1 -d "+network+" -j REJECT"); got != 1 {
			t.Errorf("%s is blocked by %d rules, want 1", network, got)
		}
	}
	if last := rules[len(rules)-1]; last != "-I DOCKER-USER -i pyexec-1 -j PYEXEC-1" {
		t.Errorf("the last rule is %q", last)
	}
}
