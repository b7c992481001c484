package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leftovertest"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

const (
	// prefix begins the name of a cluster's folder and of its nodes.
	prefix = "pyexec-nomad-"
)

// Cluster is a Nomad of this process, or one that several processes share. Its folder holds lock (a file that the process which started it keeps locked), docker (the address of the
// daemon), tmp, and a folder for each agent.
type Cluster struct {
	// Server is the only server.
	Server *Agent
	// Clients are the agents that run tasks.
	Clients []*Agent

	dir, binary, docker, token string
	joined                     bool // another process has started it

	tls api.TLSConfig

	lock *os.File
	api  *api.Client
	// ignore stops the signal handling of heed. removed calls remove once and returns its error.
	ignore  func()
	removed func() error
}

// Launch does the same as Start, for benchmarks and chaos, which have no testing.TB. The caller calls Stop.
func Launch(o Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: a client of Nomad needs root", ErrMissing)
	}
	program, err := binary()
	if err != nil {
		return nil, err
	}
	docker, err := dockertest.Find()
	if err != nil {
		return nil, fmt.Errorf("%w: no Docker: %w", ErrMissing, err)
	}
	sweep()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, binary: program, docker: docker, tls: o.TLS, ignore: func() {}}
	c.removed = sync.OnceValue(c.remove)
	if err := c.launch(o); err != nil {
		return nil, errors.Join(fmt.Errorf("start Nomad: %w", err), fmt.Errorf("%s", c.tails()), c.Stop())
	}
	c.heed()
	return c, nil
}

func (c *Cluster) launch(o Options) (err error) {
	if c.lock, err = leftovertest.Lock(c.dir); err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(c.path("docker"), []byte(c.docker), 0o600), os.Mkdir(c.path("tmp"), 0o700)); err != nil {
		return err
	}
	if c.Server, err = c.agent("server", o, c.serverSettings); err != nil {
		return err
	}
	if c.api, err = c.newClient(c.Address()); err != nil {
		return err
	}
	if err := c.Server.Start(); err != nil {
		return err
	}
	if o.ACL {
		if err := c.bootstrap(); err != nil {
			return err
		}
	}
	for n := range max(1, o.Clients) {
		a, err := c.agent(fmt.Sprintf("client%d", n+1), o, c.clientSettings)
		if err != nil {
			return err
		}
		c.Clients = append(c.Clients, a)
		if err := a.launch(); err != nil {
			return err
		}
	}
	for _, a := range c.Clients {
		if err := a.ready(); err != nil {
			return err
		}
	}
	return nil
}

// bootstrap makes the management token.
func (c *Cluster) bootstrap() error {
	return within("bootstrap the ACLs", func(context.Context) error {
		token, _, err := c.api.ACLTokens().Bootstrap(nil)
		if err == nil {
			c.token = token.SecretID
			c.api.SetSecretID(token.SecretID)
		}
		return err
	})
}

func (c *Cluster) newClient(address string) (*api.Client, error) {
	secure := c.tls
	return api.NewClient(&api.Config{Address: address, TLSConfig: &secure})
}

// API returns a client of the server. It has a management token if the cluster has ACLs.
func (c *Cluster) API() *api.Client { return c.api }

// Address returns the URL of the server's HTTP API.
func (c *Cluster) Address() string { return c.Server.Address() }

// Token returns the management token; empty if the cluster has no ACLs.
func (c *Cluster) Token() string { return c.token }

// Docker returns the DOCKER_HOST of the daemon that runs the tasks. dockertest.Containers finds those of an allocation by the label
// com.hashicorp.nomad.alloc_id.
func (c *Cluster) Docker() string { return c.docker }

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// Stop removes the cluster: agents, tasks, containers, mounts and files. It is idempotent.
func (c *Cluster) Stop() error {
	c.ignore()
	return c.removed()
}

func (c *Cluster) remove() error {
	for _, a := range c.agents() {
		a.Kill()
	}
	if c.api != nil {
		c.api.Close()
	}
	err := remove(c.dir)
	if c.lock != nil {
		c.lock.Close()
	}
	return err
}

func (c *Cluster) agents() []*Agent {
	if c.Server == nil {
		return nil
	}
	return append([]*Agent{c.Server}, c.Clients...)
}

// heed removes the cluster on a signal that ends this process, and then ends it, unless the private Docker of dockertest does so.
func (c *Cluster) heed() {
	c.ignore = leftovertest.Heed(func(s unix.Signal) {
		if err := c.removed(); err != nil {
			fmt.Fprintln(os.Stderr, "stop Nomad:", err)
		}
		if !dockertest.Private() {
			leftovertest.EndBy(s)
		}
	})
}

// KeepLogs copies the logs of the agents to a folder that stays, and returns its path with the end of each log.
func (c *Cluster) KeepLogs() string {
	dir, err := os.MkdirTemp("", "kept-nomad-logs-")
	if err != nil {
		return err.Error()
	}
	for _, a := range c.agents() {
		raw, err := os.ReadFile(a.log())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, a.Name+".log"), raw, 0o600) //nolint:gosec // the name is ours
		}
		if err != nil {
			return err.Error()
		}
	}
	return "the logs of Nomad are in " + dir + "\n" + c.tails()
}

// tails returns the end of each agent's log.
func (c *Cluster) tails() string {
	var b strings.Builder
	for _, a := range c.agents() {
		raw, _ := os.ReadFile(a.log()) // an agent that was not started has none
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(raw)), "\n"), func(line string) bool {
			return strings.Contains(line, "http: request complete") // most of them are ours
		})
		fmt.Fprintf(&b, "%s:\n%s\n", a.Name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
	return b.String()
}

// within calls try until it returns nil or errEnded, for awaittest.Bound at most. A cluster for load programs has no testing.TB.
func within(what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), awaittest.Bound, fmt.Errorf("%s: not within %s", what, awaittest.Bound))
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, errEnded) {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-again.C:
		}
	}
}
