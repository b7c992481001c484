// Package nomadsite starts servers of python-executor, and resident workers of theirs, on a cluster of package nomadtest. The chaos and
// the benchmark of the Nomad backend use it.
package nomadsite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// Site is a cluster with the files that servers and workers need to find each other. It has at most one job of workers.
type Site struct {
	Cluster *nomadtest.Cluster
	// Image is an image with Python, which the cluster's Docker has.
	Image string

	binary, dir string
	workers     int // the group's count
}

// New prepares a site of that binary. The caller calls Close before it stops the cluster.
func New(cluster *nomadtest.Cluster, binary string) (*Site, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	image, err := dockertest.Import(context.Background(), cluster.Docker(), "python")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pyexec-site-")
	if err != nil {
		return nil, err
	}
	s := &Site{Cluster: cluster, Image: image, binary: path, dir: dir}
	if err := errors.Join(os.Chmod(dir, 0o755), s.certificates()); err != nil { //nolint:gosec // programs run as other users
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Close stops the workers and removes the files.
func (s *Site) Close() error { return errors.Join(s.stopWorkers(), os.RemoveAll(s.dir)) }

// certificates makes those of both roles with the nomad command, as docs/nomad.md does.
func (s *Site) certificates() error {
	for _, args := range [][]string{
		{"ca", "create"}, {"cert", "create", "-server", "-additional-dnsname", "server.python-executor"},
		{"cert", "create", "-client", "-additional-dnsname", "worker.python-executor"},
	} {
		cmd := s.Cluster.Command(context.Background(), append([]string{"tls"}, args...)...)
		cmd.Dir = s.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nomad tls %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// tls returns the section tls of a role: server or client.
func (s *Site) tls(role string) string {
	return fmt.Sprintf("{ca_cert: %s/nomad-agent-ca.pem, cert: %s/global-%s-nomad.pem, key: %s/global-%s-nomad-key.pem}", s.dir, s.dir, role, s.dir, role)
}

// Jobs returns a server with the mode job, not started. Its ended jobs stay visible.
func (s *Site) Jobs(name string) (*serve.Server, error) {
	return s.server(name, fmt.Sprintf("mode: job\n    job: {default_image: %q, purge_after_seconds: 86400}", s.Image))
}

// Workers returns a server with the mode workers, not started.
func (s *Site) Workers(name string) (*serve.Server, error) {
	return s.server(name, fmt.Sprintf("mode: workers\n    workers: {service: %s, tls: %s}", service, s.tls("server")))
}

// server returns a server, not started, whose URL stays the same when it is started again.
func (s *Site) server(name, section string) (*serve.Server, error) {
	dir := filepath.Join(s.dir, name)
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("backend: nomad\nbackends:\n  nomad:\n    address: %s\n    %s\n", s.Cluster.Address(), section)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		return nil, err
	}
	bind, err := serve.FreeAddress()
	if err != nil {
		return nil, err
	}
	return &serve.Server{Binary: s.binary, Dir: dir, Bind: bind, Config: config, Env: []string{"PYEXEC_ENGINE_MAX_CONCURRENT=64"}}, nil
}

// Usable waits until a server can use exactly that many workers.
func Usable(s *serve.Server, count int) error {
	return serve.Await(fmt.Sprintf("%d usable workers", count), func() (bool, error) {
		var v struct {
			Backends []struct {
				Metrics map[string]float64 `json:"metrics"`
			} `json:"backends"`
		}
		err := s.JSON(http.MethodGet, "/api/v1/backends", "", &v)
		return err == nil && len(v.Backends) > 0 && v.Backends[0].Metrics["workers_usable"] == float64(count), err
	})
}
