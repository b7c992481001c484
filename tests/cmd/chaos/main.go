// Command chaos kills the plugins of the example backends with SIGKILL under load, for minutes: each execution must be right or
// lost, must have run at most once, and the next plugin process must serve.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/tests/internal/chaos"
)

func main() {
	binary := flag.String("binary", "bin/python-executor", "the program under test")
	rounds := flag.Int("rounds", 5, "servers per plugin, one after another")
	o := chaos.Options{}
	flag.IntVar(&o.Workers, "workers", 8, "clients at once")
	flag.IntVar(&o.Kills, "kills", 6, "kill -9 of the plugin in each round: the host doubles its pause at each of them")
	flag.Int64Var(&o.Between, "between", 50, "executions between two kills")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "chaos: needs the paths of plugins")
		os.Exit(2)
	}
	for _, plugin := range flag.Args() {
		for n := range *rounds {
			report, err := round(*binary, plugin, o)
			if err != nil {
				fmt.Fprintln(os.Stderr, "chaos:", plugin+":", err)
				os.Exit(1)
			}
			fmt.Printf("%s, round %d: %s\n", filepath.Base(plugin), n+1, report)
		}
	}
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
