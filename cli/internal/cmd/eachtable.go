package cmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/batch"
	"github.com/python-executor/python-executor/core/executor"
	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// maxIDWidth bounds the column of the ids. A longer id moves what comes after it.
const maxIDWidth = 32

// eachTable prints the cases of a batch as they end, in columns of a width that is known before, and adds up what they have used.
type eachTable struct {
	w         io.Writer
	count, id int // the widths of these columns; id 0 = no case has one
	headed    bool
	cpu       float64
	peak      int64
	// waited counts the cases that reached their timeout and used less than half of it.
	waited int
}

func newEachTable(w io.Writer, cases []pyexec.Case) *eachTable {
	t := &eachTable{w: w, count: max(len("case"), len(fmt.Sprint(len(cases)-1)))}
	for _, c := range cases {
		t.id = max(t.id, min(utf8.RuneCountInString(c.ID), maxIDWidth))
	}
	return t
}

// line prints one line. Ends of lines have no blanks.
func (t *eachTable) line(index, verdict, wall, cpu, memory, id, detail string) error {
	cells := fmt.Sprintf("%*s  %-13s  %9s  %9s  %9s", t.count, index, verdict, wall, cpu, memory)
	if t.id > 0 {
		cells += fmt.Sprintf("  %-*s", max(t.id, len("id")), id)
	}
	_, err := fmt.Fprintln(t.w, strings.TrimRight(cells+"  "+detail, " "))
	return err
}

// add prints the end of a case.
func (t *eachTable) add(c pyexec.CaseResult) error {
	if !t.headed {
		t.headed = true
		if err := t.line("case", "verdict", "wall s", "CPU s", "memory MB", "id", "detail"); err != nil {
			return err
		}
	}
	wall, cpu, memory := "-", "-", "-"
	if r := c.Result; r != nil {
		if r.DurationSeconds != nil {
			wall = fmt.Sprintf("%.3f", *r.DurationSeconds)
		}
		if r.CPUSeconds != nil {
			cpu, t.cpu = fmt.Sprintf("%.3f", *r.CPUSeconds), t.cpu+*r.CPUSeconds
		}
		if r.Failure != nil && r.Failure.Field == executor.FieldTimeout && r.DurationSeconds != nil && r.CPUSeconds != nil && *r.CPUSeconds < *r.DurationSeconds/2 {
			t.waited++
		}
		if n := r.PeakMemoryBytes; n != nil && *n > 0 {
			memory, t.peak = inMB(*n), max(t.peak, *n)
		}
	}
	return t.line(fmt.Sprint(c.Index), c.Verdict, wall, cpu, memory, oneLine(c.ID), oneLine(c.Detail))
}

// oneLine returns text as a cell of a table.
func oneLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(clean(text))
}

// total prints the last line.
func (t *eachTable) total(s pyexec.BatchSummary) error {
	known := []batch.Verdict{
		batch.Passed, batch.WrongOutput, batch.Failed, batch.TimedOut, batch.OutOfMemory, batch.Killed, batch.Lost, batch.Skipped, batch.Refused,
	}
	rank := func(v string) int { return (slices.Index(known, batch.Verdict(v)) + len(known) + 1) % (len(known) + 1) } // unknown ones come last
	verdicts := slices.SortedFunc(maps.Keys(s.Verdicts), func(a, b string) int { return rank(a) - rank(b) })
	words := []string{fmt.Sprintf("%d passed", s.Passed)}
	for _, v := range verdicts {
		if v != string(batch.Passed) {
			words = append(words, fmt.Sprintf("%d %s", s.Verdicts[v], v))
		}
	}
	said := fmt.Sprintf("%d cases: %s; wall %.3f s, CPU %.3f s", s.Cases, strings.Join(words, ", "), s.DurationSeconds, t.cpu)
	if t.peak > 0 {
		said += fmt.Sprintf(", memory at most %s MB", inMB(t.peak))
	}
	_, err := fmt.Fprintln(t.w, said)
	return err
}

func inMB(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
