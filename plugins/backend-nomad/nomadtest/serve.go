package nomadtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Variable is the environment variable with the folder of a cluster that several test processes share (Serve).
const Variable = "PYEXEC_TEST_NOMAD"

// forAll are the options of the cluster that Shared returns.
var forAll = Options{Clients: 2, RawExec: true}

// Serve starts a cluster for the test processes that have Variable with the value folder. Signals do not end it: the caller calls stop. The
// error is ErrMissing if this machine lacks something.
func Serve() (folder string, stop func() error, err error) {
	if dir := os.Getenv(Variable); dir != "" { // of a command above this one
		c, err := join(dir)
		if err != nil {
			return "", nil, err
		}
		return dir, c.Stop, nil
	}
	c, err := Launch(forAll)
	if err != nil {
		return "", nil, err
	}
	c.ignore()
	return c.dir, c.Stop, nil
}

// Sweep removes the clusters of processes that were killed.
func Sweep() { sweep() }

// join returns the cluster in dir, which another process has started with Serve. Stop leaves it.
func join(dir string) (*Cluster, error) {
	c := &Cluster{dir: dir, joined: true, ignore: func() {}}
	c.removed = func() error {
		c.api.Close()
		return nil
	}
	program, err := binary()
	if err != nil {
		return nil, err
	}
	c.binary = program
	docker, err := os.ReadFile(c.path("docker"))
	if err != nil {
		return nil, fmt.Errorf("the cluster of %s: %w", Variable, err)
	}
	c.docker = string(docker)
	files, _ := filepath.Glob(c.path("*/address")) // only a malformed pattern fails
	slices.Sort(files)
	for _, file := range files {
		address, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		a := &Agent{Name: nodeName(dir, filepath.Base(filepath.Dir(file))), dir: filepath.Dir(file), cluster: c, address: string(address)}
		if strings.HasSuffix(a.Name, "server") {
			c.Server = a
		} else {
			c.Clients = append(c.Clients, a)
		}
	}
	if c.Server == nil {
		return nil, fmt.Errorf("the cluster of %s has no server: %v", Variable, files)
	}
	if c.api, err = c.newClient(c.Address()); err != nil {
		return nil, err
	}
	if _, err := c.api.Status().Leader(); err != nil {
		return nil, errors.Join(fmt.Errorf("the cluster of %s: %w", Variable, err), c.Stop())
	}
	return c, nil
}
