// Command chaos kills processes with SIGKILL under load, for minutes: the plugins of the example backends, and the parts of the Nomad
// backend. Each execution must have one right end.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
	"github.com/python-executor/python-executor/tests/internal/chaos"
	"github.com/python-executor/python-executor/tests/internal/nomadsite"
)

func main() {
	binary := flag.String("binary", "bin/python-executor", "the program under test")
	rounds := flag.Int("rounds", 5, "servers per plugin, one after another; 0 leaves the plugins out")
	o := chaos.Options{}
	flag.IntVar(&o.Workers, "workers", 8, "clients at once")
	flag.IntVar(&o.Kills, "kills", 6, "kill -9 of the plugin in each round: the host doubles its pause at each of them")
	flag.Int64Var(&o.Between, "between", 50, "executions between two kills")
	n := chaos.Nomad{}
	flag.IntVar(&n.Client, "nomad-client", 10, "kill -9 of a client of Nomad, in the mode job")
	flag.IntVar(&n.Server, "nomad-server", 10, "kill -9 of Nomad's server, in the mode job")
	flag.IntVar(&n.Core, "nomad-core", 50, "kill -9 of our server, in the mode job")
	flag.IntVar(&n.Worker, "nomad-worker", 100, "kill -9 of a worker, in the mode workers")
	flag.IntVar(&n.WorkersCore, "nomad-workers-core", 10, "kill -9 of our server, in the mode workers")
	flag.Parse()
	if err := errors.Join(plugins(*binary, *rounds, o), nomad(*binary, n)); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// plugins runs the rounds of the plugins whose paths are the arguments.
func plugins(binary string, rounds int, o chaos.Options) error {
	for _, plugin := range flag.Args() {
		for n := range rounds {
			report, err := round(binary, plugin, o)
			if err != nil {
				return fmt.Errorf("%s: %w", plugin, err)
			}
			fmt.Printf("%s, round %d: %s\n", filepath.Base(plugin), n+1, report)
		}
	}
	return nil
}

// round starts a server and runs the load on it.
func round(binary, plugin string, o chaos.Options) (report chaos.Report, err error) {
	dir, err := os.MkdirTemp("", "pyexec-chaos-")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(dir)
	path, err := filepath.Abs(binary)
	if err != nil {
		return report, err
	}
	external, err := filepath.Abs(plugin)
	if err != nil {
		return report, err
	}
	s, err := chaos.NewServer(path, dir, external)
	if err != nil {
		return report, err
	}
	if err := s.Start(); err != nil {
		return report, err
	}
	defer s.Stop()
	return chaos.Run(s, o)
}

// nomad runs the rounds of the Nomad backend on a cluster of its own: a server and two clients.
func nomad(binary string, n chaos.Nomad) (err error) {
	if n == (chaos.Nomad{}) {
		return nil
	}
	cluster, err := nomadtest.Launch(nomadtest.Options{Clients: 2, RawExec: true})
	if errors.Is(err, nomadtest.ErrMissing) {
		fmt.Println("no Nomad is at hand: nothing of it is killed:", err)
		return dockertest.Stop()
	}
	if err != nil {
		return errors.Join(err, dockertest.Stop())
	}
	defer func() {
		if err != nil {
			fmt.Fprintln(os.Stderr, cluster.KeepLogs())
		}
		err = errors.Join(err, cluster.Stop(), dockertest.Stop())
	}()
	site, err := nomadsite.New(cluster, binary)
	if err != nil {
		return err
	}
	err = n.Run(site, func(part string, r chaos.Report) { fmt.Printf("%s: %s\n", part, r) })
	return errors.Join(err, site.Close())
}
