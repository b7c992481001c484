package dockerbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

func TestProgramsWithANetworkDoNotReachThisMachine(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
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
	var rejected []string
	for _, rule := range rules {
		if network, ok := strings.CutPrefix(rule, "-A PYEXEC-1 -d "); ok && !strings.HasSuffix(rule, "--dport 53 -j RETURN") {
			rejected = append(rejected, network)
		}
	}
	want := []string{ // a list of its own: an address that the product forgets is in none of its lists
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.168.0.0/16", "192.88.99.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	}
	for i := range want {
		want[i] += " -j REJECT"
	}
	if slices.Sort(rejected); !slices.Equal(rejected, want) {
		t.Errorf("blocked: %q\nwant     %q", rejected, want)
	}
	if last := rules[len(rules)-1]; last != "-I DOCKER-USER -i pyexec-1 -j PYEXEC-1" {
		t.Errorf("the last rule is %q", last)
	}
}

func TestAGuardThatLacksAJumpIsPutUpAnew(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"DOCKER-USER", "INPUT"} {
		var calls []string
		n := &networks{device: "pyexec-1"}
		n.iptables = func(_ context.Context, args ...string) error {
			calls = append(calls, strings.Join(args[:2], " "))
			if args[0] == "-C" && args[1] == missing {
				return errors.New("no such rule")
			}
			return nil
		}
		if err := n.guard(t.Context()); err != nil {
			t.Fatal(err)
		}
		// A rule that is left would be there twice, and a chain that exists cannot be made.
		for _, order := range [][2]string{{"-D DOCKER-USER", "-I DOCKER-USER"}, {"-D INPUT", "-I INPUT"}, {"-X PYEXEC-1", "-N PYEXEC-1"}, {"-X PYEXEC-IN-1", "-N PYEXEC-IN-1"}} {
			if first, then := slices.Index(calls, order[0]), slices.Index(calls, order[1]); first < 0 || then < first {
				t.Errorf("without the jump of %s: %q is call %d, and %q is call %d", missing, order[0], first, order[1], then)
			}
		}
	}
}

func TestWhyANetworkIsNotGuarded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, named, why string }{
		{"unix:///run/docker.sock", "team", "the configuration names the network"},
		{"tcp://docker.example:2376", "", "the daemon is on another machine"},
	} {
		if n := newNetworks(&daemon{host: c.host}, c.named, "mine", nil); n.iptables != nil || n.why != c.why {
			t.Errorf("%s, network %q: guarded %v, %q", c.host, c.named, n.iptables != nil, n.why)
		}
	}
}

// toyNetworks returns the networks of a daemon that answers as status says, by method and path. asked returns the requests, and the calls of
// iptables.
func toyNetworks(t *testing.T, named string, status map[string]int, message string) (n *networks, asked func() string) {
	t.Helper()
	var mu sync.Mutex
	var calls []string
	note := func(call string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call)
	}
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		call := r.Method + " " + strings.SplitAfterN(path, "/", 4)[1]
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err != nil || !strings.Contains(string(body), `"`+labelInstance+`":"mine"`) || !strings.Contains(string(body), `"`+labelBoot+`":"life"`) {
				t.Errorf("the network's labels are not those of this life: %s %v", body, err)
			}
		}
		note(call)
		code := cmp.Or(status[r.Method], http.StatusOK)
		if code >= 400 {
			return code, `{"message":"` + message + `"}`
		}
		return code, "{}"
	})
	n = newNetworks(d, named, "mine", slog.New(slog.DiscardHandler))
	n.boot = "life"
	n.iptables = func(_ context.Context, args ...string) error {
		note(args[0])
		if args[0] == "-N" && message == "no firewall" || args[0] == "-C" {
			return errors.New("no firewall")
		}
		return nil
	}
	return n, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(calls, " ")
	}
}

func TestTheNetworkIsMadeOnceAndGuarded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named, message string
		status         map[string]int
		code           executor.Code
		asked          string // the beginning
		guarded        bool
	}{
		"it exists":                     {asked: "GET networks/ -C", guarded: true},
		"it does not exist":             {status: map[string]int{"GET": 404, "POST": 201}, asked: "GET networks/ POST networks/ -C", guarded: true},
		"another process makes it":      {status: map[string]int{"GET": 404, "POST": 409}, asked: "GET networks/ POST networks/ -C", guarded: true},
		"it cannot be made":             {status: map[string]int{"GET": 404, "POST": 500}, code: executor.Unavailable, asked: "GET networks/ POST networks/"},
		"the daemon fails":              {status: map[string]int{"GET": 500}, code: executor.Unavailable, asked: "GET networks/"},
		"it cannot be guarded":          {message: "no firewall", code: executor.Unavailable, asked: "GET networks/ -C"},
		"the configuration has its own": {named: "team"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, asked := toyNetworks(t, c.named, c.status, c.message)
			got, err := n.ensure(t.Context())
			if want := cmp.Or(c.named, n.own); executor.CodeOf(err) != c.code || err == nil && got != want {
				t.Errorf("%q, %v", got, err)
			}
			if !strings.HasPrefix(asked(), c.asked) || strings.Contains(asked(), "-I") != c.guarded || c.asked == "" && asked() != "" {
				t.Errorf("the calls were %q", asked())
			}
		})
	}
}

func TestANetworkAndItsRulesAreRemovedUnlessTheyAreInUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named, message string
		status         int
		code           executor.Code
		asked          string // the beginning
		unguarded      bool
	}{
		"nothing is in it":           {status: 204, asked: "DELETE networks/ -D", unguarded: true},
		"a container is in it":       {status: 403, message: "network has active endpoints", asked: "DELETE networks/"},
		"it was never made":          {status: 404, asked: "DELETE networks/"},
		"the daemon fails":           {status: 500, code: executor.Unavailable, asked: "DELETE networks/"},
		"the configuration names it": {named: "team"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, asked := toyNetworks(t, c.named, map[string]int{"DELETE": c.status}, c.message)
			if err := n.close(t.Context()); executor.CodeOf(err) != c.code {
				t.Error(err)
			}
			if !strings.HasPrefix(asked(), c.asked) || strings.Contains(asked(), "-X") != c.unguarded || c.asked == "" && asked() != "" {
				t.Errorf("the calls were %q", asked())
			}
		})
	}
}

func TestOnlyNameServersOfTheNetworkAreReached(t *testing.T) {
	t.Parallel()
	got := parseNameServers([]byte("# nameserver 192.0.2.9\nsearch example\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver\nnameserver 2001:db8::1\nnameserver x\n nameserver 192.0.2.1 # more\n"))
	if want := []string{"10.0.0.2", "192.0.2.1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
