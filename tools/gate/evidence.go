package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Bounds of the evidence: runs of each failed test alone and under load, runs of its whole package, the time of each of these, and the
// failed tests that are run again.
const (
	evidenceRuns      = 20
	evidenceTime      = 2 * time.Minute
	evidenceWhole     = 3
	evidenceWholeTime = 5 * time.Minute
	evidenceTests     = 6
)

// evidence runs the failed tests of red parts again, and prints how often they fail: alone, under load, and in their whole packages,
// because a test may fail by what another one left. It decides nothing: the run stays red.
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
		packages := map[string][]Failure{}
		var order []string
		for _, f := range leaves(result.Report.failed) {
			if f.Test == "" {
				r.print("evidence: %s failed without a failed test\n", f.Package)
				continue
			}
			if tried++; tried > evidenceTests {
				r.print("evidence: %s is not run again: %d others were\n", f, evidenceTests)
				continue
			}
			if packages[f.Package] == nil {
				order = append(order, f.Package)
			}
			packages[f.Package] = append(packages[f.Package], f)
		}
		for _, name := range order {
			if err := r.repeat(ctx, result.Part, name, packages[name]); err != nil {
				r.print("evidence: %s: %v\n", name, err)
			}
		}
	}
}

// repeat runs failed tests of one package again and again: built once, each time in a process of its own.
func (r *runner) repeat(ctx context.Context, p Part, name string, failed []Failure) error {
	binary := filepath.Join(r.logs, "evidence.test")
	dir := filepath.Join(r.root, p.Dir)
	build := exec.Command("go", append(append([]string{"test", "-c", "-vet=off", "-o", binary}, flagsOf(p.Test)...), name)...)
	build.Dir, build.Env = dir, r.environ(p)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, text)
	}
	list := exec.Command("go", "list", "-f", "{{.Dir}}", name)
	list.Dir, list.Env = dir, r.environ(p)
	folder, err := list.Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	try := func(bound context.Context, says io.Writer, args ...string) error {
		command := p.apart(r.root, append(append([]string{binary}, args...), "-test.count=1"))
		again := exec.Command(command[0], command[1:]...)
		again.Dir, again.Env = strings.TrimSpace(string(folder)), r.environ(p)
		again.Stdout, again.Stderr = says, says
		return runGroup(bound, again)
	}
	for _, f := range failed {
		alone := func() (failed, runs int) {
			bound, cancel := context.WithTimeoutCause(ctx, evidenceTime, fmt.Errorf("more than %s", evidenceTime))
			defer cancel()
			for runs < evidenceRuns && bound.Err() == nil {
				err := try(bound, io.Discard, "-test.run="+pattern(f.Test))
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
		failed, runs := alone()
		r.print("evidence: %s alone: %d of %d runs failed\n", f, failed, runs)
		stop, err := startLoad(loops())
		if err != nil {
			return err
		}
		failed, runs = alone()
		stop()
		r.print("evidence: %s beside %d busy loops: %d of %d runs failed\n", f, loops(), failed, runs)
	}
	bound, cancel := context.WithTimeoutCause(ctx, evidenceWholeTime, fmt.Errorf("more than %s", evidenceWholeTime))
	defer cancel()
	failures, runs := make([]int, len(failed)), make([]int, len(failed))
	for n := 0; n < evidenceWhole && bound.Err() == nil; n++ {
		var says bytes.Buffer
		err := try(bound, &says, append(choiceOf(p.Test), "-test.v")...)
		for i, f := range failed {
			verdict := verdictOf(says.String(), f.Test)
			if verdict == "" && (err == nil || bound.Err() != nil) {
				continue // it was not run, or not to its end
			}
			runs[i]++
			if verdict == "FAIL" || verdict == "" { // without one, the process has died
				failures[i]++
			}
		}
	}
	for i, f := range failed {
		r.print("evidence: %s in its whole package: %d of %d runs failed\n", f, failures[i], runs[i])
	}
	return nil
}

// verdictOf returns the verdict of a test in what a test binary says with -test.v: PASS, FAIL, SKIP, or nothing.
func verdictOf(says, test string) string {
	found := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): ` + regexp.QuoteMeta(test) + ` \(`).FindStringSubmatch(says)
	if found == nil {
		return ""
	}
	return found[1]
}

// choiceOf returns the flag of a test binary for the tests that the arguments of `go test` choose.
func choiceOf(args []string) (flags []string) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-run=") {
			flags = append(flags, "-test."+strings.TrimPrefix(arg, "-"))
		}
	}
	return flags
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
