// Command faults puts the faults of tests/faults into a copy of the workspace, one at a time, and says which test notices each.
//
//	go run ./tests/cmd/faults [-faults GLOB] [-whole] [-from DIR] [-out FILE]
//
// It exits with 1 if a fault of the gate survives, or if a fault could not be tried.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/python-executor/python-executor/tests/faults"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run() error {
	var (
		pattern = flag.String("faults", "*", "names of faults, as a pattern of a shell")
		tier    = flag.String("tier", "", "only the faults of this tier: gate or long (default both)")
		whole   = flag.Bool("whole", false, "run all tests of the gate that cover a changed file, not those that the patch names")
		from    = flag.String("from", ".", "the workspace to copy: another commit's shows what its tests noticed")
		patches = flag.String("patches", "tests/faults", "the folder of the patches")
		out     = flag.String("out", "", "a file for one line per fault: name, tier, status, by, seconds, with tabs between them")
		trust   = flag.Bool("trust", false, "leave out the runs without a fault, which show that a test does not fail anyway")
		verbose = flag.Bool("v", false, "print what go test says where a fault could not be tried or hung")
	)
	flag.Parse()
	table, err := faults.Load(*patches, *pattern)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := faults.Start(ctx, *from, *out, *verbose)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the copy is in a temporary folder
	s.Runner.Trust = *trust
	var missed int
	for _, fault := range table {
		if *tier != "" && fault.Tier != *tier {
			continue
		}
		tests := fault.Tests
		if *whole {
			if tests, err = s.Covering(ctx, fault.Files, true); err != nil {
				return err
			}
		}
		verdict := s.Runner.Try(ctx, func() (func() error, error) { return s.Runner.Workspace.Apply(ctx, fault) }, tests)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !verdict.Status.Counts() || (verdict.Status == faults.Survived && fault.Tier == faults.TierGate) {
			missed++
		}
		s.Say(fault.Tier, filepath.Base(fault.Name), verdict)
	}
	s.Summary()
	if missed > 0 {
		return fmt.Errorf("%d faults survived or could not be tried", missed)
	}
	if s.Tried() == 0 {
		return errors.New("no fault has this name")
	}
	return nil
}
