// Package consultest provides a real Consul for tests.
//
// The binary is the one that tools/consul.sh has built and keeps in the cache folder. Start makes one server with access control, on a
// loopback address of its own. Without the binary a test is skipped, or fails if PYEXEC_TEST_REQUIRE contains "consul".
package consultest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

const (
	// management is the token of the test's own API. It is valid on this agent only.
	management = "6f1b1c3e-0b1a-4b6e-9d3c-2d0f6c7a1e55"
)

// Agent is a Consul of one test. Its methods are not safe for concurrent use.
type Agent struct {
	t           testing.TB
	binary, dir string
	host        string
	api         *api.Client
	cmd         *exec.Cmd
	done        chan struct{} // closed when the process has ended
	policies    int           // counts the policies
}

// Start starts a Consul and ends it with t. If t has failed by then, the end of the agent's log is shown.
func Start(t testing.TB) *Agent {
	t.Helper()
	a := &Agent{t: t, binary: binary(t), dir: t.TempDir(), host: freeHost(t)}
	settings := fmt.Sprintf(`
server = true
bootstrap_expect = 1
node_name = "test-%s"
data_dir = %q
bind_addr = %q
client_addr = %q
disable_update_check = true
leave_on_terminate = false
performance { raft_multiplier = 1 }
ports {
  dns = -1
  grpc = -1
  grpc_tls = -1
}
acl {
  enabled = true
  default_policy = "deny"
  tokens {
    initial_management = %q
    agent = %q
  }
}
`, strings.ReplaceAll(a.host, ".", "-"), filepath.Join(a.dir, "data"), a.host, a.host, management, management)
	if err := os.WriteFile(filepath.Join(a.dir, "agent.hcl"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	settingsOfClient := api.DefaultNonPooledConfig()
	settingsOfClient.Address, settingsOfClient.Token = a.Address(), management
	var err error
	if a.api, err = api.NewClient(settingsOfClient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Kill()
		if t.Failed() {
			raw, _ := os.ReadFile(filepath.Join(a.dir, "log"))
			lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
			t.Logf("Consul:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
	a.Restart()
	return a
}

// binary returns the path of the Consul that tools/consul.sh has built. It does not build it, because that takes minutes.
func binary(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "tools/consul.sh")); missing == nil {
			break
		}
	}
	cmd := exec.Command(filepath.Join(dir, "tools/consul.sh"), "--built")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	needtest.Need(t, err == nil, "consul", strings.TrimSpace(said.String()))
	return strings.TrimSpace(string(out))
}

// freeHost returns an address of the loopback network on which Consul's ports are free. So the agent finds them free again after Kill.
func freeHost(t testing.TB) string {
	t.Helper()
	var failed error
	for range 50 {
		host := fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254)) //nolint:gosec // no secret
		failed = nil
		for _, port := range []string{"8300", "8301", "8302", "8500"} {
			l, err := net.Listen("tcp", net.JoinHostPort(host, port))
			if err != nil {
				failed = err
				break
			}
			_ = l.Close()
		}
		if failed == nil {
			return host
		}
	}
	t.Fatal(failed)
	return ""
}

// Address returns the URL of the agent.
func (a *Agent) Address() string { return "http://" + net.JoinHostPort(a.host, "8500") }

// Settings are those of a Nomad agent that registers services here.
func (a *Agent) Settings() string {
	return fmt.Sprintf("consul {\n  address = %q\n  token = %q\n}\n", net.JoinHostPort(a.host, "8500"), management)
}

// Token returns a new token with the policy in file.
func (a *Agent) Token(file string) string {
	a.t.Helper()
	rules, err := os.ReadFile(file)
	if err != nil {
		a.t.Fatal(err)
	}
	a.policies++
	policy, _, err := a.api.ACL().PolicyCreate(&api.ACLPolicy{Name: fmt.Sprintf("policy-%d", a.policies), Rules: string(rules)}, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	token, _, err := a.api.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	return token.SecretID
}

// Register registers an instance of a service, which passes while its port answers.
func (a *Agent) Register(s *api.AgentServiceRegistration) {
	a.t.Helper()
	s.Check = &api.AgentServiceCheck{TCP: net.JoinHostPort(s.Address, fmt.Sprint(s.Port)), Interval: "1s", Timeout: "1s"}
	if err := a.api.Agent().ServiceRegister(s); err != nil {
		a.t.Fatal(err)
	}
}

// Deregister removes an instance.
func (a *Agent) Deregister(id string) {
	a.t.Helper()
	if err := a.api.Agent().ServiceDeregister(id); err != nil {
		a.t.Fatal(err)
	}
}

// Kill kills the process (-9) and waits for its end. What Consul knows stays. Idempotent.
func (a *Agent) Kill() {
	if a.cmd != nil {
		_ = a.cmd.Process.Kill()
		<-a.done
		a.cmd = nil
	}
}

// Restart starts the process, again after Kill, and waits until it has a leader.
func (a *Agent) Restart() {
	a.t.Helper()
	log, err := os.OpenFile(filepath.Join(a.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(a.binary, "agent", "-config-file", filepath.Join(a.dir, "agent.hcl"))
	cmd.Stdout, cmd.Stderr = log, log
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "CONSUL_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	// If the test process is killed, so is the agent. Pdeathsig refers to the death of the thread that forked, so the goroutine that
	// waits keeps that thread.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	begun, done := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		err := cmd.Start()
		begun <- err
		if err == nil {
			_ = cmd.Wait() // the reason is in its log
		}
	}()
	if err := <-begun; err != nil {
		a.t.Fatal(err)
	}
	a.cmd, a.done = cmd, done
	a.await()
}

// await waits until the agent has a leader and knows the token.
func (a *Agent) await() {
	a.t.Helper()
	query := (&api.QueryOptions{}).WithContext(awaittest.Context(a.t))
	awaittest.UntilNil(a.t, "an answer of Consul", func() error {
		select {
		case <-a.done:
			a.t.Fatal("Consul has ended")
		default:
		}
		_, _, err := a.api.ACL().TokenReadSelf(query)
		return err
	})
}
