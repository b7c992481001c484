package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Bounds of the evidence: runs of each failed test alone and under load, the time of each, and the failed tests that are run again.
const (
	evidenceRuns  = 20
	evidenceTime  = 2 * time.Minute
	evidenceTests = 6
)

// evidence runs the failed tests of red parts again, alone and under load, and prints how often they fail. It decides nothing: the
// run stays red.
func (r *runner) evidence(ctx context.Context) {
	tried := 0
	for _, result := range r.results {
		if result.Status != Failed || ctx.Err() != nil {
			continue
		}
		if result.Report == nil {
			r.print("evidence: %s is no `go test`; run it again by hand\n", result.Part.Name)
			continue
		}
		for _, f := range leaves(result.Report.failed) {
			if f.Test == "" {
				r.print("evidence: %s failed without a failed test\n", f.Package)
				continue
			}
			if tried++; tried > evidenceTests {
				r.print("evidence: %s is not run again: %d others were\n", f, evidenceTests)
				continue
			}
			if err := r.repeat(ctx, result.Part, f); err != nil {
				r.print("evidence: %s: %v\n", f, err)
			}
		}
	}
}

// repeat runs one test again and again: built once, each time in a process of its own.
func (r *runner) repeat(ctx context.Context, p Part, f Failure) error {
	binary := filepath.Join(r.logs, "evidence.test")
	dir := filepath.Join(r.root, p.Dir)
	build := exec.Command("go", append(append([]string{"test", "-c", "-vet=off", "-o", binary}, flagsOf(p.Test)...), f.Package)...)
	build.Dir, build.Env = dir, r.environ(p)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, text)
	}
	list := exec.Command("go", "list", "-f", "{{.Dir}}", f.Package)
	list.Dir, list.Env = dir, r.environ(p)
	folder, err := list.Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", f.Package, err)
	}
	try := func() (failed, runs int) {
		bound, cancel := context.WithTimeoutCause(ctx, evidenceTime, fmt.Errorf("more than %s", evidenceTime))
		defer cancel()
		for runs < evidenceRuns && bound.Err() == nil {
			again := exec.Command(binary, "-test.run="+pattern(f.Test), "-test.count=1")
			again.Dir, again.Env = strings.TrimSpace(string(folder)), r.environ(p)
			again.Stdout, again.Stderr = io.Discard, io.Discard
			err := runGroup(bound, again)
			if bound.Err() != nil {
				break // ended by us
			}
			runs++
			if err != nil {
				failed++
			}
		}
		return failed, runs
	}
	failed, runs := try()
	r.print("evidence: %s alone: %d of %d runs failed\n", f, failed, runs)
	stop, err := startLoad(loops())
	if err != nil {
		return err
	}
	defer stop()
	failed, runs = try()
	r.print("evidence: %s beside %d busy loops: %d of %d runs failed\n", f, loops(), failed, runs)
	return nil
}

// flagsOf returns the flags of `go test`, without the packages.
func flagsOf(args []string) (flags []string) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "-run") {
			flags = append(flags, arg)
		}
	}
	return flags
}

// pattern is what -run needs to choose one test or subtest.
func pattern(test string) string {
	elements := strings.Split(test, "/")
	for i, element := range elements {
		elements[i] = "^" + regexp.QuoteMeta(element) + "$"
	}
	return strings.Join(elements, "/")
}
