package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/nomad/api"
)

// Agent is one process of a Cluster. Its folder holds agent.hcl, address (its IP address), log and data. Its methods are safe for concurrent use.
type Agent struct {
	// Name is the name of the agent, and of its node.
	Name string

	cluster *Cluster
	dir     string
	address string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended; nil: none was started
}

// agent makes the folder of an agent. settings returns the stanzas of its role.
func (c *Cluster) agent(name string, o Options, settings func(Options) string) (*Agent, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	// The path is short, because those of sockets in an allocation's folder have at most 107 bytes.
	a := &Agent{Name: nodeName(c.dir, name), dir: c.path(name), cluster: c, address: address}
	if err := os.Mkdir(a.dir, 0o700); err != nil {
		return nil, err
	}
	return a, errors.Join(
		os.WriteFile(filepath.Join(a.dir, "address"), []byte(address), 0o600),
		os.WriteFile(filepath.Join(a.dir, "agent.hcl"), []byte(a.common(o)+settings(o)), 0o600))
}

// nodeName returns the name of an agent of the cluster in dir.
func nodeName(dir, agent string) string { return filepath.Base(dir) + "-" + agent }

func (a *Agent) log() string { return filepath.Join(a.dir, "log") }

// Address returns the URL of the agent's HTTP API.
func (a *Agent) Address() string {
	scheme := "http"
	if a.cluster.tls.CACert != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(a.address, "4646")
}

// freeAddress returns an address of the loopback network on which Nomad's ports are free. Agents with addresses of their own can use
// Nomad's usual ports, and find them free when they are started again. Ports of one address would be taken by other processes meanwhile.
func freeAddress() (string, error) {
	var failed error
	for range 50 {
		address := fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254)) //nolint:gosec // no secret
		failed = nil
		for _, port := range []string{"4646", "4647", "4648"} {
			l, err := net.Listen("tcp", net.JoinHostPort(address, port))
			if err != nil {
				failed = err
				break
			}
			_ = l.Close()
		}
		if failed == nil {
			return address, nil
		}
	}
	return "", failed
}

// common returns the settings of every agent. Nomad takes a loopback address for a mistake unless it is advertised in so many words.
func (a *Agent) common(o Options) string {
	return fmt.Sprintf(`
name = %q
data_dir = %q
bind_addr = %q
advertise {
  http = %q
  rpc = %q
  serf = %q
}
log_level = "DEBUG"
disable_update_check = true
leave_on_interrupt = false
leave_on_terminate = false
acl { enabled = %t }
%s
%s
`, a.Name, filepath.Join(a.dir, "data"), a.address, a.address, a.address, a.address, o.ACL, secured(o.TLS), o.Consul)
}

// secured returns the stanza of an API that only answers clients with a certificate.
func secured(t api.TLSConfig) string {
	if t.CACert == "" {
		return ""
	}
	return fmt.Sprintf(`
tls {
  http = true
  verify_https_client = true
  ca_file = %q
  cert_file = %q
  key_file = %q
}
`, t.CACert, t.ClientCert, t.ClientKey)
}

// serverSettings returns the stanza of the server. A lower raft_multiplier makes the election quicker; there is only one candidate.
func (*Cluster) serverSettings(o Options) string {
	heartbeat := ""
	if o.FastDown {
		heartbeat = "min_heartbeat_ttl = \"2s\"\nheartbeat_grace = \"3s\"\nfailover_heartbeat_ttl = \"5s\""
	}
	return fmt.Sprintf(`
server {
  enabled = true
  bootstrap_expect = 1
  raft_multiplier = 1
  %s
}
%s
`, heartbeat, o.Settings)
}

// clientSettings returns the stanzas of a client. The fingerprinters of clouds wait for addresses that do not answer. The resources
// are far more than there are, so that no test waits for a place because of another. An image is kept, because it is imported once.
//
// Nomad removes containers that have its labels and that it does not know. Clients that share a daemon would remove those of each
// other after five minutes, so this is off.
func (c *Cluster) clientSettings(o Options) string {
	without := "env_aws,env_gce,env_azure,env_digitalocean,vault"
	if o.Consul == "" {
		without += ",consul"
	}
	return fmt.Sprintf(`
client {
  enabled = true
  servers = ["%s:4647"]
  network_interface = "lo"
  cpu_total_compute = 100000
  memory_total_mb = 65536
  disk_total_mb = 100000
  disk_free_mb = 100000
  gc_max_allocs = 500
  gc_disk_usage_threshold = 99
  gc_inode_usage_threshold = 99
  options = { "fingerprint.denylist" = %q }
}
plugin "docker" {
  config {
    endpoint = %q
    extra_labels = ["node_name", "job_id", "task_name"]
    allow_runtimes = ["runc", "runsc"]
    gc {
      image = false
      dangling_containers { enabled = false }
    }
  }
}
plugin "raw_exec" {
  config { enabled = %t }
}
`, c.Server.address, without, c.docker, o.RawExec)
}

// errEnded is the error of a wait for a process that has ended.
var errEnded = errors.New("the process has ended")

// mine panics if the agent is another process's. Tests of other processes use it, so none may kill it.
func (a *Agent) mine() {
	if a.cluster.joined {
		panic("nomadtest: " + a.Name + " is shared: a test that kills agents takes Start")
	}
}

// PID returns the process id; 0 if no process runs.
func (a *Agent) PID() int {
	a.mine()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.runsLocked() {
		return 0
	}
	return a.cmd.Process.Pid
}

func (a *Agent) runsLocked() bool {
	if a.done == nil {
		return false
	}
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// Kill kills the process (-9) and waits for its end. Tasks go on, as they do in a real cluster. Idempotent.
func (a *Agent) Kill() {
	a.mine()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runsLocked() {
		_ = a.cmd.Process.Kill()
		<-a.done
	}
}

// Start starts the process, also again after Kill, and waits until the agent serves: a server has a leader, and the node of a client
// is ready and has Docker.
func (a *Agent) Start() error {
	if err := a.launch(); err != nil {
		return err
	}
	return a.ready()
}

// launch starts the process.
func (a *Agent) launch() error {
	a.mine()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runsLocked() {
		return errors.New(a.Name + " is running")
	}
	log, err := os.OpenFile(a.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(a.cluster.binary, "agent", "-config", filepath.Join(a.dir, "agent.hcl"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = agentEnvironment(a.cluster.dir)
	// If the test process is killed, so are its agents. Pdeathsig refers to the death of the thread that forked, so the goroutine
	// that waits keeps that thread.
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
		return err
	}
	a.cmd, a.done = cmd, done
	return nil
}

// agentEnvironment returns the environment of an agent: this process's, without the settings of the nomad command, with a folder for
// temporary files, and with the mark by which sweep finds the processes that the agent starts. With AWS_CA_BUNDLE, Nomad's
// fingerprinter of AWS ends the agent.
func agentEnvironment(dir string) []string {
	var list []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "NOMAD_") && !strings.HasPrefix(pair, "AWS_") && !strings.HasPrefix(pair, "DOCKER_") {
			list = append(list, pair)
		}
	}
	return append(list, "TMPDIR="+filepath.Join(dir, "tmp"), mark+"="+dir)
}

// ready waits until the agent serves.
func (a *Agent) ready() error {
	return within(a.Name, func(ctx context.Context) error {
		if a.PID() == 0 {
			return errEnded
		}
		query := (&api.QueryOptions{AllowStale: true}).WithContext(ctx)
		if a == a.cluster.Server {
			return a.serves(query)
		}
		nodes, _, err := a.cluster.api.Nodes().List(query)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if n.Name == a.Name {
				if d := n.Drivers["docker"]; n.Status != api.NodeStatusReady || d == nil || !d.Healthy {
					return fmt.Errorf("the node is %s, its Docker %+v", n.Status, d)
				}
				return a.answers(ctx)
			}
		}
		return errors.New("the node is not registered")
	})
}

// serves returns an error if the server has no leader or no keys yet. A client that registers before there are keys is refused, and
// tries again only after 20 seconds.
func (a *Agent) serves(query *api.QueryOptions) error {
	var leader string
	var signing struct{ Keys []any }
	_, err := a.cluster.api.Raw().Query("/v1/status/leader", &leader, query)
	if err == nil {
		_, err = a.cluster.api.Raw().Query("/.well-known/jwks.json", &signing, query)
	}
	if err == nil && (leader == "" || len(signing.Keys) == 0) {
		err = fmt.Errorf("the leader is %q, with %d keys", leader, len(signing.Keys))
	}
	return err
}

// answers returns an error if the agent's own API does not answer, or its client part has no server.
func (a *Agent) answers(ctx context.Context) error {
	own, err := a.cluster.newClient(a.Address())
	if err != nil {
		return err
	}
	defer own.Close()
	var health api.AgentHealthResponse
	if _, err := own.Raw().Query("/v1/agent/health", &health, (&api.QueryOptions{}).WithContext(ctx)); err != nil {
		return err
	}
	if health.Client == nil || !health.Client.Ok {
		return fmt.Errorf("health: %+v", health.Client)
	}
	return nil
}
