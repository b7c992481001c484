package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// supervised is a variable of the environment: this process is the child of supervise.
const supervised = "PYEXEC_GATE_SUPERVISED"

func main() {
	if os.Getenv(supervised) == "" {
		os.Exit(supervise())
	}
	os.Exit(run())
}

const usage = `usage: gate COMMAND
  test [PART…]  the parts of the gate that are named, else all
  long [PART…]  the long parts that are named, else all
  parts         print the table of parts
`

func run() int {
	_ = os.Unsetenv(supervised) // a part may run gates of its own
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	var err error
	switch command {
	case "test":
		err = gate(ctx, Gate, os.Args[2:])
	case "long":
		err = gate(ctx, Long, os.Args[2:])
	case "parts":
		printParts()
	default:
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		return 1
	}
	return 0
}

// capacity is what the machine has, in the units of Part.Uses.
func capacity() map[string]int {
	return map[string]int{"cpu": 100 * runtime.NumCPU(), "uids": 1, "docker": 1, "nomad": 1}
}

// root returns the root of the repository.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "tools", "gate", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("the working folder is in no copy of the repository")
}

// newRunner makes a runner with an empty folder for the logs.
func newRunner() (*runner, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(dir, "bin", "gate-logs")
	if err := os.RemoveAll(logs); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	return &runner{root: dir, logs: logs, out: os.Stdout, env: []string{
		"GOFLAGS=" + os.Getenv("GOFLAGS") + " -trimpath",
		"GORACE=atexit_sleep_ms=50", // a raced process waits a second at its end for other reports; our tests start hundreds of them
	}}, nil
}

// gate runs the parts of a tier that names chooses, all if it is empty, and prints the table.
func gate(ctx context.Context, tier Tier, names []string) error {
	if err := checkParts(parts); err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(parts, func(p Part) bool { return p.Name == name && p.Tier == tier }) {
			return fmt.Errorf("no part of tier %s has the name %q", tier, name)
		}
	}
	chosen := withNeeded(parts, func(p Part) bool {
		return p.Tier == tier && (len(names) == 0 || slices.Contains(names, p.Name))
	})
	r, err := newRunner()
	if err != nil {
		return err
	}
	begin := time.Now()
	status := schedule(ctx, chosen, capacity(), r.run)
	r.table(chosen, status, time.Since(begin))
	for _, p := range chosen {
		if status[p.Name] != Passed {
			return errors.New("red")
		}
	}
	return nil
}

func printParts() {
	for _, p := range parts {
		fmt.Printf("%-28s %-5s %5d s  %-20s after %v  %v\n", p.Name, p.Tier, p.Seconds, p.Uses, p.After, append(p.Command, p.Test...))
	}
}
