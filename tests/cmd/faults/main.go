// Command faults puts faults into a copy of the workspace, one at a time, and says which test notices each.
//
//	go run ./tests/cmd/faults table [-faults GLOB] [-whole] [-from DIR] [-out FILE]
//	go run ./tests/cmd/faults mutants -gremlins FILE [-seed N] [-sample N] [-packages PREFIX,…] [-from DIR] [-out FILE]
//
// The faults are the patches of tests/faults, or single changed operators of the product: a sample of all that gremlins finds. Mutants
// that do not compile are no part of the sample. The table exits with 1 if a fault of the gate survives, or if one could not be tried.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/python-executor/python-executor/tests/faults"
)

// commands add their flags, and return what runs with them.
var commands = map[string]func(*flag.FlagSet) func(context.Context, *faults.Session) error{"table": table, "mutants": mutants}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("the first argument must be table or mutants")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	var (
		from    = flags.String("from", ".", "the workspace to copy: another commit's shows what its tests noticed")
		out     = flags.String("out", "", "a file for one line per fault: name, tier or module, status, by, seconds, with tabs between them")
		verbose = flags.Bool("v", false, "print what go test says where a fault could not be tried or hung")
		try     = commands[args[0]](flags)
	)
	_ = flags.Parse(args[1:]) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := faults.Start(ctx, *from, *out, *verbose)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the copy is in a temporary folder
	return try(ctx, s)
}

func table(flags *flag.FlagSet) func(context.Context, *faults.Session) error {
	var (
		pattern = flags.String("faults", "*", "names of faults, as a pattern of a shell")
		tier    = flags.String("tier", "", "only the faults of this tier: gate or long (default both)")
		whole   = flags.Bool("whole", false, "run all tests of the gate that cover a changed file, not those that the patch names")
		patches = flags.String("patches", "tests/faults", "the folder of the patches")
		trust   = flags.Bool("trust", false, "leave out the runs without a fault, which show that a test does not fail anyway")
	)
	return func(ctx context.Context, s *faults.Session) error {
		all, err := faults.Load(*patches, *pattern)
		if err != nil {
			return err
		}
		s.Runner.Trust = *trust
		var missed int
		for _, fault := range all {
			if *tier != "" && fault.Tier != *tier {
				continue
			}
			s.Runner.Long = fault.Tier == faults.TierLong
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
}

func mutants(flags *flag.FlagSet) func(context.Context, *faults.Session) error {
	var (
		gremlins = flags.String("gremlins", "", "the binary of gremlins")
		seed     = flags.Uint64("seed", 1, "decides the sample")
		sample   = flags.Int("sample", 300, "the number of mutants; 0: all")
		packages = flags.String("packages", "", "only files whose names begin so, with commas between several: core/engine/,sdk/go/")
		slow     = flags.Bool("slow", true, "run the slow tests, too, if the quick ones notice nothing")
		list     = flags.Bool("list", false, "print the sample and run nothing")
	)
	return func(ctx context.Context, s *faults.Session) error {
		if *gremlins == "" {
			return errors.New("-gremlins must be a file (tools/tool.sh gremlins)")
		}
		all, err := s.Runner.Workspace.List(ctx, *gremlins)
		if err != nil {
			return err
		}
		if *packages != "" {
			prefixes := strings.Split(*packages, ",")
			all = slices.DeleteFunc(all, func(m faults.Mutant) bool {
				return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(m.File, prefix) })
			})
		}
		if err := s.Runner.Workspace.Shuffle(all, *seed); err != nil {
			return err
		}
		fmt.Printf("%d mutants, seed %d, a sample of %d\n", len(all), *seed, *sample)
		counted := 0
		for _, m := range all {
			if *sample > 0 && counted == *sample {
				break
			}
			if *list {
				fmt.Println(m)
				counted++
				continue
			}
			tests, err := s.Covering(ctx, []string{m.File}, *slow)
			if err != nil {
				return err
			}
			verdict := s.Runner.Try(ctx, func() (func() error, error) { return s.Runner.Workspace.Put(m) }, tests)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if verdict.Status == faults.Broken {
				continue // it does not compile
			}
			counted++
			module, err := s.Module(m.File)
			if err != nil {
				return err
			}
			s.Say(module, m.String(), verdict)
		}
		if !*list {
			s.Summary()
		}
		return nil
	}
}
