package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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
  check         lint and the unit tests of what changed, and the law on the fake
  test [PART…]  the gate: its parts that are named, else all
  long [PART…]  the long parts that are named, else those that are due; what they show goes to the ledger
  load [PART…]  the parts of the gate that start real programs, beside busy loops and with slow system calls
  due           the long parts that have not passed with the files of this commit; fails if there is one
  slow [N]      the slowest tests of the last run
  parts         the table of parts
`

func run() int {
	_ = os.Unsetenv(supervised) // a part may run gates of its own
	_ = os.Unsetenv("LOOPS")
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	if command == busyCommand {
		busy()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	commands := map[string]func(context.Context, string, []string) error{
		"check": check, "test": test, "long": long, "load": load, "due": due, "slow": slow, "parts": printParts,
	}
	if commands[command] == nil {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	dir, err := root()
	if err == nil {
		err = checkParts(parts)
	}
	if err == nil {
		err = commands[command](ctx, dir, os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		return 1
	}
	return 0
}

var errRed = errors.New("red")

// test runs the gate.
func test(ctx context.Context, dir string, names []string) error {
	chosen, err := choose(names, func(p Part) bool { return p.Tier == Gate })
	if err != nil {
		return err
	}
	r, err := newRunner(dir)
	if err != nil {
		return err
	}
	if wantedLoops != "" {
		r.first = besideLoops
	}
	err = r.all(ctx, chosen)
	if len(names) == 0 {
		if late, _, dueErr := dueParts(dir, parts); dueErr != nil {
			fmt.Println("what is due is not known:", dueErr)
		} else if len(late) > 0 {
			fmt.Println("due (make test-long):", strings.Join(late, " "))
		}
	}
	return err
}

// long runs long parts and records what they show.
func long(ctx context.Context, dir string, names []string) error {
	late, before, err := dueParts(dir, parts)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = late
	}
	if len(names) == 0 {
		fmt.Println("nothing is due")
		return nil
	}
	chosen, err := choose(names, func(p Part) bool { return p.Tier == Long })
	if err != nil {
		return err
	}
	r, err := newRunner(dir)
	if err != nil {
		return err
	}
	r.goOn = true
	return errors.Join(r.all(ctx, chosen), record(dir, parts, r.results, before))
}

// load runs the real parts of the gate under load, and all of them, whatever fails.
func load(ctx context.Context, dir string, names []string) error {
	chosen, err := choose(names, func(p Part) bool { return p.Tier == Gate && p.Real })
	if err != nil {
		return err
	}
	r, err := newRunner(dir)
	if err != nil {
		return err
	}
	r.goOn, r.first = true, besideLoops
	first := r.all(ctx, chosen)
	if _, err := exec.LookPath("strace"); err != nil {
		return errors.Join(first, errors.New("strace is missing: nothing was run with slow system calls"))
	}
	if r, err = newRunner(dir); err != nil {
		return err
	}
	r.goOn, r.wrap = true, delayed
	fmt.Println("with slow system calls:")
	return errors.Join(first, r.all(ctx, chosen))
}

// due prints the long parts that are due.
func due(_ context.Context, dir string, _ []string) error {
	late, _, err := dueParts(dir, parts)
	if err != nil {
		return err
	}
	if len(late) > 0 {
		return fmt.Errorf("due: %s", strings.Join(late, " "))
	}
	fmt.Println("nothing is due")
	return nil
}

// choose returns the parts of a tier that names chooses, all if it is empty, and what they come after.
func choose(names []string, tier func(Part) bool) ([]Part, error) {
	for _, name := range names {
		if !slices.ContainsFunc(parts, func(p Part) bool { return p.Name == name && tier(p) }) {
			return nil, fmt.Errorf("no such part here: %q", name)
		}
	}
	return withNeeded(parts, func(p Part) bool { return tier(p) && (len(names) == 0 || slices.Contains(names, p.Name)) }), nil
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
func newRunner(dir string) (*runner, error) {
	logs := filepath.Join(dir, "bin", "gate-logs")
	if err := os.RemoveAll(logs); err != nil {
		return nil, err
	}
	r := &runner{root: dir, logs: logs, out: os.Stdout}
	return r, os.MkdirAll(r.rules(), 0o750)
}

// all runs parts and prints the table. What is red is run again for evidence.
func (r *runner) all(ctx context.Context, chosen []Part) error {
	begin := time.Now()
	if r.first != nil {
		last, err := r.first()
		if err != nil {
			return err
		}
		defer last()
	}
	status := schedule(ctx, chosen, capacity(), r.goOn, r.run)
	green := !slices.ContainsFunc(chosen, func(p Part) bool { return status[p.Name] != Passed })
	if !green && !r.goOn {
		r.evidence(ctx)
	}
	err := r.endServices()
	r.table(chosen, status, time.Since(begin))
	if !green {
		err = errors.Join(errRed, err)
	}
	return err
}

func printParts(context.Context, string, []string) error {
	for _, p := range parts {
		fmt.Printf("%-18s %-4s %4d s  %-30s %s\n", p.Name, p.Tier, p.Seconds, p.Uses, strings.Join(append(append([]string{p.Dir}, p.Command...), p.Test...), " "))
	}
	return nil
}

// slow prints the slowest tests of the last run.
func slow(_ context.Context, dir string, args []string) error {
	n := 50
	if len(args) > 0 {
		if _, err := fmt.Sscan(args[0], &n); err != nil {
			return fmt.Errorf("number of tests: %w", err)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "bin/gate-logs/*.json"))
	var all []timed
	for _, path := range logs {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		r, err := readReport(file, io.Discard)
		file.Close()
		if err != nil {
			return err
		}
		all = append(all, r.slow...)
	}
	slices.SortFunc(all, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range all[:min(n, len(all))] {
		fmt.Printf("%8.1f s  %s\n", t.seconds, t.name)
	}
	return nil
}
