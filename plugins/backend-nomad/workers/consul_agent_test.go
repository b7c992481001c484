package workers

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/worker"
	"github.com/python-executor/python-executor/core/worker/workertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/consultest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// policyFile is what users take.
const policyFile = "../../../deploy/nomad/policies/workers-mode.consul.hcl"

// processSite has workers that are processes of this test, registered in a real Consul.
type processSite struct {
	t           *testing.T
	binary, dir string
	ca          *workertest.Authority
	consul      *consultest.Agent
	n           int
}

func newProcessSite(t *testing.T) *processSite {
	t.Helper()
	binary := nomadtest.Executor(t)
	s := &processSite{t: t, binary: binary, ca: workertest.NewAuthority(t), consul: consultest.Start(t), dir: openDir(t)}
	t.Cleanup(func() { // the plugin of a worker that was killed ends soon
		awaittest.Until(t, "the end of the workers' files", func() bool { return os.RemoveAll(s.dir) == nil })
	})
	return s
}

// worker starts a worker with uv inside, registers it, and returns its process.
func (s *processSite) worker() *os.Process {
	s.t.Helper()
	s.n++
	id, asRoot := s.ca.Issue(worker.WorkerName), ""
	if os.Geteuid() == 0 {
		asRoot = fmt.Sprintf("run_as: %d-%d", 214000+25*s.n, 214024+25*s.n)
	}
	file := filepath.Join(s.dir, fmt.Sprintf("worker-%d.yaml", s.n))
	config := fmt.Sprintf(`data_dir: %[1]s/data-%[2]d
backend: uv
backends:
  uv:
    cache_dir: %[1]s/cache
    work_dir: %[1]s/work-%[2]d
    warm_sessions: -1
    %[3]s
worker:
  bind: 127.0.0.1:0
  max_concurrent: 4
  drain_timeout_seconds: 20
  tls: {ca_cert: %[4]s, cert: %[5]s, key: %[6]s}
`, s.dir, s.n, asRoot, id.CACert, id.Cert, id.Key)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(s.binary, "worker", "--config", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	listens, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if _, rest, ok := strings.Cut(lines.Text(), `"address":"`); ok && strings.Contains(lines.Text(), "worker is listening") {
				address, _, _ := strings.Cut(rest, `"`)
				listens <- address
			}
		}
		_ = cmd.Wait() // the test kills some
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	select {
	case address := <-listens:
		s.register(fmt.Sprintf("worker-%d", s.n), address)
	case <-ended:
		s.t.Fatal("the worker has ended")
	}
	return cmd.Process
}

func (s *processSite) register(id, address string) {
	s.t.Helper()
	host, text, err := net.SplitHostPort(address)
	port, failed := strconv.Atoi(text)
	if err = errors.Join(err, failed); err != nil {
		s.t.Fatal(err)
	}
	s.consul.Register(&consul.AgentServiceRegistration{
		ID: id, Name: Default().Service, Address: host, Port: port, Meta: map[string]string{MetaAllocation: "allocation-of-" + id},
	})
}

// config returns the section of a backend that finds the workers with a token.
func (s *processSite) config(token string) Config {
	c := Default()
	c.Provider, c.Consul.Address, c.Consul.Token = ProviderConsul, s.consul.Address(), token
	c.TLS = s.ca.Issue(worker.ServerName)
	c.TLS.PeerName = worker.WorkerName
	return c
}

func TestNomadRegistersItsWorkersInConsul(t *testing.T) {
	binary, agent := nomadtest.Executor(t), consultest.Start(t)
	cluster := nomadtest.Start(t, nomadtest.Options{RawExec: true, Consul: agent.Settings()})
	s := &realSite{cluster: cluster, client: cluster.API(), ca: workertest.NewAuthority(t), dir: openDir(t)}
	t.Cleanup(func() { s.remove(t) })
	j := s.job(binary, 1, uvInside(s))
	j.TaskGroups[0].Services = []*api.Service{{
		Name: Default().Service, Provider: "consul", PortLabel: "worker", Meta: map[string]string{MetaAllocation: "${NOMAD_ALLOC_ID}"},
		Checks: []api.ServiceCheck{{Type: "tcp", Interval: time.Second, Timeout: time.Second}},
	}}
	if _, _, err := s.client.Jobs().Register(j, nil); err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Provider, c.Consul.Address, c.Consul.Token = ProviderConsul, agent.Address(), agent.Token(policyFile)
	p := s.poolOf(t, c)
	for _, count := range []int{1, 2, 1} {
		s.scale(t, count)
		usable(t, p, count)
		c := start(t, p, job("print(6 * 7)"))
		c.succeeds(t)
		awaittest.Until(t, "the end of the worker that is too many", func() bool { return info(t, p).Metrics["workers"] == float64(count) })
		ids := s.running(t, count)
		details := fmt.Sprint(info(t, p).Details)
		for _, id := range ids {
			if !strings.Contains(details, id) || !slices.ContainsFunc(p.listed(), func(r registration) bool { return r.Allocation == id }) {
				t.Errorf("allocation %s is not named: %s", id, details)
			}
		}
	}
}

// listed returns the registrations of the members.
func (p *Pool) listed() (all []registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		all = append(all, m.registration)
	}
	return all
}

func TestWorkersThatConsulKnows(t *testing.T) {
	s := newProcessSite(t)
	token := s.consul.Token(policyFile)
	first := s.worker()
	b, err := New(t.Context(), Options{Config: s.config(token), Configure: pluginConfigure()})
	if err != nil {
		t.Fatal(err)
	}
	p := b.(*Pool) //nolint:forcetypeassert // New makes it
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	usable(t, p, 1)
	prints := func() {
		t.Helper()
		c := start(t, p, job("print(6 * 7)"))
		c.succeeds(t)
		if c.Text() != "42\n" {
			t.Errorf("it printed %q", c.Text())
		}
	}
	prints()
	if details := fmt.Sprint(info(t, p).Details); !strings.Contains(details, "allocation-of-worker-1") {
		t.Errorf("Info does not name the allocation: %s", details)
	}
	t.Run("one joins, and one that does not pass is not seen", func(t *testing.T) {
		s.register("closed", "127.0.0.1:1")
		s.worker()
		usable(t, p, 2)
		if i := info(t, p); i.Metrics["workers"] != 2 || i.Capacity != 8 {
			t.Errorf("%+v", i)
		}
	})
	t.Run("one vanishes", func(t *testing.T) {
		if err := first.Kill(); err != nil {
			t.Fatal(err)
		}
		awaittest.Until(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 1 })
		usable(t, p, 1)
		prints()
	})
	t.Run("Consul is away and comes back", func(t *testing.T) {
		s.consul.Kill()
		prints()
		s.consul.Restart()
		s.worker()
		usable(t, p, 2)
		prints()
	})
	t.Run("the doctor knows it, and what a token may", func(t *testing.T) {
		useless := filepath.Join(t.TempDir(), "policy.hcl")
		if err := os.WriteFile(useless, []byte(`key_prefix "x" { policy = "read" }`), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what, token string
			want        map[string]backend.Level
		}{
			{"the token", token, map[string]backend.Level{"consul": backend.LevelOK, "token": backend.LevelOK, "workers": backend.LevelOK}},
			{"no token of Consul", "00000000-0000-0000-0000-000000000000", map[string]backend.Level{"token": backend.LevelError}},
			{"a token without the rights", s.consul.Token(useless), map[string]backend.Level{"token": backend.LevelOK, "workers": backend.LevelWarn}},
		} {
			found := map[string]backend.Level{}
			list := Doctor(t.Context(), nil, s.config(c.token))
			for _, f := range list {
				found[f.Topic] = f.Level
			}
			for topic, level := range c.want {
				if found[topic] != level {
					t.Errorf("%s: %s is %q: %+v", c.what, topic, found[topic], list)
				}
			}
		}
		_, err := New(t.Context(), Options{Config: s.config(s.consul.Token(useless)), Configure: pluginConfigure()})
		if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "needs service:read") {
			t.Errorf("a token without the rights: %v", err)
		}
	})
}
