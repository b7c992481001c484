package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/python-executor/python-executor/tests/internal/ratio"
)

// print writes a table of what was measured.
func (r *report) print(w io.Writer) {
	const format = "%-48s %10s %10s %6s\n"
	fmt.Fprintf(w, "%s  %v\n%v\n\n", r.Date.Format(time.DateOnly), r.Machine, r.Versions)
	fmt.Fprintf(w, format, "", "p50", "p99", "n")
	for _, list := range []struct {
		unit   string
		series map[string][]float64
	}{{" ms", r.Samples}, {"/s", r.Rates}} {
		for _, name := range slices.Sorted(maps.Keys(list.series)) {
			s := list.series[name]
			fmt.Fprintf(w, format, name, fmt.Sprintf("%.2f%s", ratio.Quantile(s, 0.5), list.unit), fmt.Sprintf("%.2f%s", ratio.Quantile(s, 0.99), list.unit), fmt.Sprint(len(s)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		fmt.Fprintf(w, format, name, fmt.Sprintf("%.1f", r.Figures[name]), "", "")
	}
}

// printRows writes the rows that were measured, with their targets and what they were in the last committed run, and returns the
// names of those that are worse than then. A row that is skipped is printed with the reason.
func (r *report) printRows(w io.Writer, rows []ratio.Row, former []ratio.File) (worse []string) {
	fmt.Fprintf(w, "\n%-76s %8s %10s %-8s %8s %8s %8s  %s\n", "ratio (of p50, unless said)", "now", "target", "", "before", "worse", "noise", "")
	for _, row := range rows {
		m, ok := row.Measure(&r.Run)
		if row.Skip != "" {
			fmt.Fprintf(w, "%-76s skipped: %s\n", row.Name, row.Skip)
		}
		if !ok || row.Skip != "" {
			continue
		}
		sign, verdict := "<=", "met"
		if row.AtLeast {
			sign = ">="
		}
		if !row.Met(m) {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%-76s %8.3f %10s %-8s", row.Name, m.Value, fmt.Sprintf("%s %.4g", sign, row.Limit), verdict)
		c, ok := ratio.Compare(row, &r.Run, former)
		if !ok {
			fmt.Fprintf(w, " %8s\n", "new")
			continue
		}
		fmt.Fprintf(w, " %8.3f %+7.0f%% %7.0f%%  %s", c.Base.Value, 100*c.Change, 100*c.Noise, c.File)
		if c.Worse() {
			worse = append(worse, row.Name)
			fmt.Fprint(w, " WORSE")
		}
		fmt.Fprintln(w)
	}
	return worse
}
