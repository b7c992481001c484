package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/python-executor/python-executor/tests/internal/ratio"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

// otherBuild ends the names of the other build's samples.
const otherBuild = ", other build"

// against measures two builds: the server that runs, and that of -against, which it starts. The calls of each case take turns,
// and every round swaps the order, so that neither build always follows the other.
func against(b *bench) error {
	r, opts, s := b.run, b.options, b.server
	binary, err := filepath.Abs(opts.against)
	if err != nil {
		return err
	}
	r.Versions["python-executor"+otherBuild] = firstLine(binary, "version")
	other := &serve.Server{Binary: binary, Dir: filepath.Join(s.Dir, "other")}
	if err := os.MkdirAll(other.Dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	if err := other.Start(); err != nil {
		return fmt.Errorf("start the other build: %w", err)
	}
	defer other.Stop()
	fmt.Printf("%v\n%v\n\n%-30s %9s %9s %7s %9s %9s %7s %6s\n", r.Machine, r.Versions, "ms", "p50", "other", "ratio", "p25", "other", "ratio", "n")
	for _, c := range []struct {
		name   string
		rounds int
		// prepare returns the call that is timed.
		prepare func(*serve.Server) (func() error, error)
	}{
		{"http sync", opts.rounds, func(s *serve.Server) (func() error, error) {
			return func() error { return sync(s, httpHello) }, nil
		}},
		{"http sync, displaying", opts.rounds, func(s *serve.Server) (func() error, error) {
			return func() error { return sync(s, httpDisplaying) }, nil
		}},
		{"http sync, cached requirement", opts.rounds, func(s *serve.Server) (func() error, error) {
			return func() error { return sync(s, httpRequirement) }, nil
		}},
		{"session cell", opts.rounds, func(s *serve.Server) (func() error, error) {
			id, err := openSession(s) // open until the server ends
			return func() error { return sessionCell(s, id) }, err
		}},
		{"cli embedded", opts.rounds / 5, func(s *serve.Server) (func() error, error) {
			cache := "PYEXEC_BACKENDS_UV_CACHE_DIR=" + filepath.Join(s.Dir, "cli-cache")
			return func() error { return command([]string{cache}, s.Binary, "run", b.script) }, nil
		}},
		{"tar through exec/sync", min(max(opts.rounds/50, 5), opts.tarMB), func(s *serve.Server) (func() error, error) {
			path := filepath.Join(s.Dir, "big.tar")
			return func() error { return upload(s, path, opts.tarMB) }, writeTar(path, opts.tarMB)
		}},
	} {
		if c.rounds == 0 || !opts.cases.MatchString(c.name) {
			continue
		}
		ours, err := c.prepare(s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		theirs, err := c.prepare(other)
		if err != nil {
			return fmt.Errorf("%s%s: %w", c.name, otherBuild, err)
		}
		turns := []measure{{c.name, 1, timed(ours)}, {c.name + otherBuild, 1, timed(theirs)}}
		if err := r.turns(turns, c.rounds, func() error { slices.Reverse(turns); return nil }); err != nil {
			return err
		}
		r.compare(c.name)
	}
	return nil
}

// compare prints what a case took with both builds, and keeps the ratios.
func (r *report) compare(name string) {
	fmt.Printf("%-30s", name)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p25", 0.25}} {
		ours, theirs := ratio.Quantile(r.Samples[name], q.at), ratio.Quantile(r.Samples[name+otherBuild], q.at)
		r.Figures[name+", "+q.name], r.Figures[name+otherBuild+", "+q.name] = ours, theirs
		r.Figures[name+", ratio of "+q.name] = ours / theirs
		fmt.Printf(" %9.2f %9.2f %7.3f", ours, theirs, ours/theirs)
	}
	fmt.Printf(" %6d\n", len(r.Samples[name]))
}
