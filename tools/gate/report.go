package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// Failure is a test that failed, or a package that failed without one: then Test is empty.
type Failure struct {
	Package, Test string
}

func (f Failure) String() string {
	if f.Test == "" {
		return f.Package
	}
	return f.Package + " " + f.Test
}

// report is what a run of `go test -json` showed.
type report struct {
	tests   int // top-level tests that passed or failed
	skipped int // tests that did not run here; those that only long parts run are in long
	long    int
	failed  []Failure
	why     map[Failure]string // the first lines of what a failed test or package said
	slow    []timed
	printed bytes.Buffer // what a reader should see
}

type timed struct {
	seconds float64
	name    string
}

// readReport reads a run. A copy of what it reads goes to raw.
func readReport(from io.Reader, raw io.Writer) (*report, error) {
	r := &report{why: map[Failure]string{}}
	open := map[Failure]*bytes.Buffer{} // what tests that have not ended have said
	reasons := map[string]int{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		_, _ = raw.Write(line)
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				r.printed.Write(line) // from the go command itself, or a program that writes to the standard output of a test
			} else {
				r.add(e, open, reasons)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return r, err
		}
	}
	for reason, n := range reasons {
		fmt.Fprintf(&r.printed, "%4d × %s\n", n, reason)
	}
	return r, nil
}

func (r *report) add(e event, open map[Failure]*bytes.Buffer, reasons map[string]int) {
	key := Failure{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.printed.WriteString(e.Output)
	case "output":
		if open[key] == nil {
			open[key] = &bytes.Buffer{}
		}
		open[key].WriteString(e.Output)
	case "pass", "skip", "fail":
		said := open[key]
		delete(open, key)
		if said == nil {
			said = &bytes.Buffer{}
		}
		if e.Test == "" {
			r.endPackage(e, said, open)
			return
		}
		r.endTest(e, said, reasons)
	}
}

func (r *report) endTest(e event, said *bytes.Buffer, reasons map[string]int) {
	top := !strings.Contains(e.Test, "/")
	if top {
		r.tests++
		r.slow = append(r.slow, timed{e.Elapsed, Failure{e.Package, e.Test}.String()})
	}
	switch e.Action {
	case "fail":
		r.failed = append(r.failed, Failure{e.Package, e.Test})
		r.why[Failure{e.Package, e.Test}] = firstLines(said.String())
		r.printed.Write(said.Bytes())
	case "skip":
		if top {
			r.tests--
		}
		reason := skipReason(said.String())
		if strings.HasPrefix(reason, "LONG ") {
			r.long++
			return
		}
		r.skipped++
		reasons[reason]++
	}
}

// endPackage prints the last line of a package, or all that was said if it failed.
func (r *report) endPackage(e event, said *bytes.Buffer, open map[Failure]*bytes.Buffer) {
	if e.Action != "fail" {
		own := "" // coverage, which the go command takes from the first line that has one: that may be of a child, which a test prints
		for line := range strings.Lines(said.String()) {
			before, _, covers := strings.Cut(line, "coverage: ")
			switch {
			case covers && before == "":
				own = line
			case covers:
				r.printed.WriteString(before + cmp.Or(own, line[len(before):]))
			case strings.HasPrefix(line, "ok "):
				r.printed.WriteString(line)
			}
		}
		return
	}
	alone := !slices.ContainsFunc(r.failed, func(f Failure) bool { return f.Package == e.Package })
	for key, unfinished := range open { // the process has died under them
		if key.Package != e.Package {
			continue
		}
		delete(open, key)
		r.printed.Write(unfinished.Bytes())
		r.failed = append(r.failed, key)
		r.why[key] = firstLines(unfinished.String())
		alone = false
	}
	if alone {
		r.failed = append(r.failed, Failure{Package: e.Package})
		r.why[Failure{Package: e.Package}] = firstLines(said.String())
	}
	r.printed.Write(said.Bytes())
	if e.FailedBuild != "" {
		fmt.Fprintf(&r.printed, "FAIL\t%s [build failed]\n", e.Package)
	}
}

// firstLines returns the first lines of what a test logged, indented and shortened.
func firstLines(said string) string {
	var b strings.Builder
	left := 5
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if left--; left < 0 {
			break
		}
		fmt.Fprintf(&b, "            %.300s\n", line)
	}
	return b.String()
}

// skipReason is the last line that a skipped test logged, without the place in the source.
func skipReason(said string) string {
	reason := "skipped without a reason"
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		reason = line
		if place, rest, ok := strings.Cut(line, ": "); ok && strings.Contains(place, ".go:") {
			reason = rest
		}
	}
	return reason
}

// leaves returns the failed tests without those that failed only by a subtest.
func leaves(failed []Failure) []Failure {
	return slices.DeleteFunc(slices.Clone(failed), func(f Failure) bool {
		return f.Test != "" && slices.ContainsFunc(failed, func(g Failure) bool {
			return g.Package == f.Package && strings.HasPrefix(g.Test, f.Test+"/")
		})
	})
}
