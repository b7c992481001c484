package main

import (
	"regexp"
	"slices"
	"testing"
)

func TestEveryRowIsMeasuredByAGroup(t *testing.T) {
	t.Parallel()
	series := []string{coreMB} // every repetition has it
	for _, g := range groups() {
		series = append(series, g.series...)
	}
	names := map[string]bool{}
	for _, row := range rows() {
		if names[row.Name] {
			t.Errorf("duplicate row %q", row.Name)
		}
		names[row.Name] = true
		if row.Skip != "" {
			continue
		}
		for _, name := range []string{row.Of.Series, row.To.Series} {
			if name != "" && !slices.Contains(series, name) {
				t.Errorf("row %q: no group measures %q", row.Name, name)
			}
		}
		if row.Of.Series == "" || row.Limit <= 0 {
			t.Errorf("row %q has no series or no target", row.Name)
		}
	}
}

func TestASeriesIsWantedByItsNameOrByThatOfARow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cases  string
		check  bool
		series string
		want   bool
	}{
		{".", false, "session memory", true},
		{".", true, "session memory", false},
		{".", true, barePython, true},
		{"^http sync / bare", false, barePython, true},
		{"^http sync / bare", false, userSync, false},
		{"^docker run, hardened$", false, dockerRun, true},
		{"^docker run, hardened$", true, dockerRun, false}, // no row is named so
		{"leak watch, mounts", true, leakAfter + "mounts", false},
		{"leak watch, mounts", false, leakBefore + "mounts", true},
	} {
		o := options{cases: regexp.MustCompile(test.cases), check: test.check}
		if got := o.wants(test.series); got != test.want {
			t.Errorf("-cases %q, -check=%v: %q is wanted: %v", test.cases, test.check, test.series, got)
		}
	}
}
