package dockerbackend

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/network"
)

// networks provides the network of programs that may use one: the configured network, else a bridge of this installation.
type networks struct {
	daemon   *daemon
	named    string // the network that the configuration names; empty: a bridge of our own
	instance string
	boot     string
	own      string // the name of the bridge
	device   string // the name of its interface
	log      *slog.Logger
	// iptables runs the host's iptables. It is nil where that is not the daemon's firewall, or where this process may not
	// change it.
	iptables func(ctx context.Context, args ...string) error
	why      string // the reason why iptables is nil

	mu sync.Mutex
}

func newNetworks(d *daemon, named, instance string, log *slog.Logger) *networks {
	sum := sha256.Sum256([]byte(instance))
	id := hex.EncodeToString(sum[:4])
	n := &networks{daemon: d, named: named, instance: instance, own: "python-executor-" + id, device: "pyexec-" + id, log: log}
	path, err := exec.LookPath("iptables")
	switch {
	case named != "":
		n.why = "the configuration names the network"
	case !d.local():
		n.why = "the daemon is on another machine"
	case os.Geteuid() != 0:
		n.why = "only root may change the firewall"
	case err != nil:
		n.why = "iptables is not installed"
	default:
		n.iptables = func(ctx context.Context, args ...string) error {
			return runTool(ctx, path, append([]string{"-w"}, args...)...)
		}
	}
	return n
}

// ensure creates the network if it does not exist, puts its firewall rules in place if it can, and returns its name.
func (n *networks) ensure(ctx context.Context) (string, error) {
	if n.named != "" {
		return n.named, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.daemon.findNetwork(ctx, n.own); executor.CodeOf(err) == executor.NotFound {
		err := n.daemon.createBridge(ctx, n.own, n.device, map[string]string{labelInstance: n.instance, labelBoot: n.boot})
		if err != nil && executor.CodeOf(err) != executor.Conflict {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	if n.iptables != nil {
		if err := n.guard(ctx); err != nil {
			return "", executor.Errorf(executor.Unavailable, "block private addresses: %w", err)
		}
	}
	return n.own, nil
}

// chains returns the names of our chains in the filter table: one for packets from the bridge to elsewhere, one for those to
// this machine.
func (n *networks) chains() (forward, input string) {
	id := strings.TrimPrefix(n.device, "pyexec-")
	return "PYEXEC-" + id, "PYEXEC-IN-" + id
}

// guard adds our firewall rules if they are missing. A restart of the firewall drops them, so guard runs before each container
// with a network is made. It does not end with ctx, because containers that run already would be left without rules.
func (n *networks) guard(ctx context.Context) error {
	ctx, cancel := cleanUp(ctx)
	defer cancel()
	forward, input := n.chains()
	if n.iptables(ctx, "-C", "DOCKER-USER", "-i", n.device, "-j", forward) == nil && n.iptables(ctx, "-C", "INPUT", "-i", n.device, "-j", input) == nil {
		return nil
	}
	n.unguard(ctx)
	rules := [][]string{{"-N", forward}, {"-N", input}, {"-A", input, "-j", "REJECT"}}
	for _, server := range nameServers() {
		for _, protocol := range []string{"udp", "tcp"} {
			rules = append(rules, []string{"-A", forward, "-d", server, "-p", protocol, "--dport", "53", "-j", "RETURN"})
		}
	}
	for _, closed := range network.Closed() {
		if closed.Addr().Is4() { // the bridge has no IPv6
			rules = append(rules, []string{"-A", forward, "-d", closed.String(), "-j", "REJECT"})
		}
	}
	// The jumps come last. Until then the rules above have no effect, and a later call starts again if one fails.
	rules = append(rules, []string{"-I", "INPUT", "-i", n.device, "-j", input}, []string{"-I", "DOCKER-USER", "-i", n.device, "-j", forward})
	for _, rule := range rules {
		if err := n.iptables(ctx, rule...); err != nil {
			return err
		}
	}
	return nil
}

// unguard removes our rules, as far as they exist.
func (n *networks) unguard(ctx context.Context) {
	forward, input := n.chains()
	for _, rule := range [][]string{
		{"-D", "DOCKER-USER", "-i", n.device, "-j", forward}, {"-D", "INPUT", "-i", n.device, "-j", input},
		{"-F", forward}, {"-X", forward}, {"-F", input}, {"-X", input},
	} {
		_ = n.iptables(ctx, rule...) // a rule that is not there cannot be removed
	}
}

// close removes the network and its rules unless containers use it. It never removes a network that the configuration names.
func (n *networks) close(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.named != "" {
		return nil
	}
	return n.remove(ctx)
}

func (n *networks) remove(ctx context.Context) error {
	err := n.daemon.removeNetwork(ctx, n.own)
	switch {
	case executor.CodeOf(err) == executor.NotFound:
		return nil // the network was never created
	case err != nil && strings.Contains(err.Error(), "active endpoints"):
		return nil // containers still use it
	case err != nil:
		return err
	case n.iptables != nil:
		n.unguard(ctx)
	}
	return nil
}

// nameServers returns the IPv4 name servers of this machine.
func nameServers() []string {
	raw, _ := os.ReadFile("/etc/resolv.conf") // without the file there are none
	return parseNameServers(raw)
}

// parseNameServers returns the IPv4 name servers of a resolv.conf, without those on the loopback, which the daemon queries itself.
func parseNameServers(raw []byte) []string {
	var list []string
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil && a.Is4() && !a.IsLoopback() {
			list = append(list, a.String())
		}
	}
	return list
}

// runTool runs a program of the host to its end.
func runTool(ctx context.Context, path string, args ...string) error {
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput() //nolint:gosec // the program and its arguments are fixed
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%s %s: %s: %s", path, strings.Join(args, " "), exit.ProcessState, bytes.TrimSpace(out))
	}
	return err
}
