// Command mutants changes single operators of the product, a sample of all that gremlins finds, and says which test notices each.
//
//	go run ./tests/cmd/mutants -gremlins FILE [-seed N] [-sample N] [-packages PREFIX,…] [-from DIR] [-out FILE]
//
// Mutants that do not compile are no part of the sample.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/python-executor/python-executor/tests/faults"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	var (
		gremlins = flag.String("gremlins", "", "the binary of gremlins")
		seed     = flag.Uint64("seed", 1, "decides the sample")
		sample   = flag.Int("sample", 300, "the number of mutants; 0: all")
		packages = flag.String("packages", "", "only files whose names begin so, with commas between several: core/engine/,sdk/go/")
		slow     = flag.Bool("slow", true, "run the slow tests, too, if the quick ones notice nothing")
		list     = flag.Bool("list", false, "print the sample and run nothing")
		from     = flag.String("from", ".", "the workspace to copy")
		out      = flag.String("out", "", "a file for one line per mutant: place, module, status, by, seconds, with tabs between them")
		verbose  = flag.Bool("v", false, "print what go test says where a mutant could not be tried or hung")
	)
	flag.Parse()
	if *gremlins == "" {
		return errors.New("-gremlins must be a file (tools/tool.sh gremlins)")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := faults.Start(ctx, *from, *out, *verbose)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the copy is in a temporary folder
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
