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
)

// blocked are the addresses that programs with a network may not reach: private, carrier, link-local (cloud metadata),
// loopback, benchmarking, multicast and reserved ones.
var blocked = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
}

// networks is the network of programs that may use one: what the configuration names, else a bridge of this installation.
type networks struct {
	daemon   *daemon
	named    string // by the configuration
	instance string
	boot     string
	own      string // the bridge's name, and its interface's
	device   string
	log      *slog.Logger
	// iptables runs the host's tool; nil where it would not be the daemon's firewall, or is not ours to use.
	iptables func(ctx context.Context, args ...string) error
	why      string // why there is none

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
		n.why = "there is no iptables"
	default:
		n.iptables = func(ctx context.Context, args ...string) error {
			return runTool(ctx, path, append([]string{"-w"}, args...)...)
		}
	}
	return n
}

// ensure makes sure that the network is there, and guarded where it can be, and returns its name.
func (n *networks) ensure(ctx context.Context) (string, error) {
	if n.named != "" {
		return n.named, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.daemon.network(ctx, n.own); executor.CodeOf(err) == executor.NotFound {
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

// chains are ours in the filter table: what leaves the bridge for elsewhere, and for this machine itself.
func (n *networks) chains() (forward, input string) {
	id := strings.TrimPrefix(n.device, "pyexec-")
	return "PYEXEC-" + id, "PYEXEC-IN-" + id
}

// guard puts our rules into the firewall, if they are not there. Whoever restarts the firewall takes them away, so they are
// looked for each time a container with a network is made.
func (n *networks) guard(ctx context.Context) error {
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
	for _, network := range blocked {
		rules = append(rules, []string{"-A", forward, "-d", network, "-j", "REJECT"})
	}
	// The jumps last: until then nothing of the above has a say, and the next look starts anew.
	rules = append(rules, []string{"-I", "INPUT", "-i", n.device, "-j", input}, []string{"-I", "DOCKER-USER", "-i", n.device, "-j", forward})
	for _, rule := range rules {
		if err := n.iptables(ctx, rule...); err != nil {
			return err
		}
	}
	return nil
}

// unguard takes our rules away, as far as they are there.
func (n *networks) unguard(ctx context.Context) {
	forward, input := n.chains()
	for _, rule := range [][]string{
		{"-D", "DOCKER-USER", "-i", n.device, "-j", forward}, {"-D", "INPUT", "-i", n.device, "-j", input},
		{"-F", forward}, {"-X", forward}, {"-F", input}, {"-X", input},
	} {
		_ = n.iptables(ctx, rule...) // what is not there cannot be taken away
	}
}

// close removes the network and its rules unless containers are in it.
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
		return nil // nobody has asked for it, ever
	case err != nil && strings.Contains(err.Error(), "active endpoints"):
		return nil // somebody goes on in it
	case err != nil:
		return err
	case n.iptables != nil:
		n.unguard(ctx)
	}
	return nil
}

// nameServers are this machine's, without those on its loopback, which the daemon asks itself.
func nameServers() []string {
	raw, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil
	}
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
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput() //nolint:gosec // a tool of the host with arguments of ours
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%s %s: %s: %s", path, strings.Join(args, " "), exit.ProcessState, bytes.TrimSpace(out))
	}
	return err
}
