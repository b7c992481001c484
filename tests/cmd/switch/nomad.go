package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// The names of the job of resident workers and of its service, in workersSpec.
const (
	workersJob     = "python-executor-workers"
	workersService = "python-executor-worker"
	workersSpec    = "deploy/nomad/workers.nomad.hcl"
)

// site is a Nomad with a resident worker, which has the Docker backend inside.
type site struct {
	cluster *nomadtest.Cluster
	dir     string
	files   *http.Server // has the binary for the nodes
}

// newSite starts a Nomad and a worker of that binary, with an image that the Docker of nomadtest has.
func newSite(binary, image, dir string) (_ *site, err error) {
	cluster, err := nomadtest.Launch(nomadtest.Options{RawExec: true})
	if err != nil {
		return nil, err
	}
	s := &site{cluster: cluster, dir: filepath.Join(dir, "tls")}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := s.certificates(); err != nil {
		return nil, err
	}
	source, checksum, err := s.serve(binary)
	if err != nil {
		return nil, err
	}
	var args []string
	for _, pair := range []string{
		"count=1", "slots=16", "image=" + image, "docker=" + cluster.Docker(), "certificates=" + s.dir, "binary=" + source, "checksum=sha256:" + checksum,
	} {
		args = append(args, "-var", pair)
	}
	if err := s.nomad("", append(append([]string{"job", "run", "-detach"}, args...), workersSpec)...); err != nil {
		return nil, err
	}
	return s, serve.Await("a worker is registered", func() (bool, error) {
		found, _, err := cluster.API().Services().Get(workersService, nil)
		return len(found) > 0, err
	})
}

func (s *site) file(name string) string { return filepath.Join(s.dir, name) }

// nomad runs the nomad command in a folder; empty: that of this process.
func (s *site) nomad(dir string, args ...string) error {
	cmd := s.cluster.Command(context.Background(), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nomad %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// certificates makes those of both roles, with the names that workersSpec has for them.
func (s *site) certificates() error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"tls", "ca", "create"}, {"tls", "cert", "create", "-server", "-additional-dnsname", "server.python-executor"},
		{"tls", "cert", "create", "-client", "-additional-dnsname", "worker.python-executor"},
	} {
		if err := s.nomad(s.dir, args...); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Rename(s.file("nomad-agent-ca.pem"), s.file("ca.pem")),
		os.Rename(s.file("global-client-nomad.pem"), s.file("worker.pem")),
		os.Rename(s.file("global-client-nomad-key.pem"), s.file("worker-key.pem")),
	)
}

// serve serves the binary to the nodes, and returns its URL and its SHA-256.
func (s *site) serve(binary string) (source, checksum string, err error) {
	raw, err := os.ReadFile(binary)
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(raw)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	s.files = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, binary) })}
	go func() { _ = s.files.Serve(l) }() // it ends with Close
	return "http://" + l.Addr().String() + "/python-executor", hex.EncodeToString(sum[:]), nil
}

// stages are the two modes of the backend. A job takes a second of the node's time, so the leg of the mode job is a short one.
func (s *site) stages(image string) []stage {
	return []stage{
		{name: "nomad", share: 0.4, section: fmt.Sprintf("{type: nomad, mode: job, address: %q, job: {default_image: %q}}", s.cluster.Address(), image)},
		{name: "workers", share: 1, section: fmt.Sprintf("{type: nomad, mode: workers, address: %q, workers: {service: %s, tls: {ca_cert: %q, cert: %q, key: %q}}}",
			s.cluster.Address(), workersService, s.file("ca.pem"), s.file("global-server-nomad.pem"), s.file("global-server-nomad-key.pem"))},
	}
}

// left lists the allocations that have not ended.
func (s *site) left() (names []string, err error) {
	list, _, err := s.cluster.API().Allocations().List(nil)
	for _, a := range list {
		if a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning {
			names = append(names, a.JobID+" "+a.ID)
		}
	}
	return names, err
}

// stop ends the worker, and then Nomad. No job of an execution may run then. nil: there is no site.
func (s *site) stop() error {
	if s == nil {
		return nil
	}
	var err error
	if s.files != nil { // else there is no job either
		_, _, err = s.cluster.API().Jobs().Deregister(workersJob, false, nil)
		var names []string
		if waited := serve.Await("the end of all allocations", func() (bool, error) {
			var err error
			names, err = s.left()
			return len(names) == 0, err
		}); waited != nil {
			err = errors.Join(err, fmt.Errorf("%w: %v", waited, names))
		}
		err = errors.Join(err, s.files.Close())
	}
	return errors.Join(err, s.cluster.Stop())
}
