package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Session is one run of a command: a copy, its Runner, and what was found so far.
type Session struct {
	Runner *Runner
	lines  *os.File
	groups map[string]map[Status]int
	cover  *cover
}

// Start copies the workspace from and makes the file out, unless it is "". Close ends the Session.
func Start(ctx context.Context, from, out string, verbose bool) (*Session, error) {
	if err := Adopt(); err != nil {
		return nil, err
	}
	s := &Session{groups: map[string]map[Status]int{}}
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return nil, err
		}
		s.lines = file
	}
	workspace, err := Copy(ctx, from)
	if err != nil {
		return nil, err
	}
	s.Runner = &Runner{Workspace: workspace}
	if verbose {
		s.Runner.Output = func(title string, output []byte) { fmt.Printf("--- %s\n%s\n", title, tail(output)) }
	}
	fmt.Printf("copy of %s in %s, %s, %s/%s, %d processors\n", from, workspace.Root, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return s, nil
}

// Close removes the copy.
func (s *Session) Close() error {
	err := s.Runner.Workspace.Remove()
	if s.lines != nil {
		err = errors.Join(err, s.lines.Close())
	}
	return err
}

// Counts reports whether a Verdict of this Status says something about the tests.
func (s Status) Counts() bool { return s == Noticed || s == Hung || s == Survived }

// Say prints one verdict and counts it in a group: a tier, or a module.
func (s *Session) Say(group, name string, v Verdict) {
	text := "survived"
	switch v.Status {
	case Noticed:
		text = "noticed by " + v.By
	case Hung:
		text = "noticed by " + v.By + ", which hung"
	case Void, Broken:
		text = string(v.Status) + ": " + v.By
	}
	fmt.Printf("%-40s %s  (%.1f s)\n", name, text, v.Seconds)
	if s.lines != nil {
		fmt.Fprintf(s.lines, "%s\t%s\t%s\t%s\t%.1f\n", name, group, v.Status, strings.Join(strings.Fields(v.By), " "), v.Seconds)
	}
	if s.groups[group] == nil {
		s.groups[group] = map[Status]int{}
	}
	s.groups[group][v.Status]++
}

// Tried is the number of verdicts.
func (s *Session) Tried() (n int) {
	for _, counts := range s.groups {
		for _, count := range counts {
			n += count
		}
	}
	return n
}

// Summary prints the shares, per group and of all.
func (s *Session) Summary() {
	fmt.Printf("\n%-24s %7s %6s %8s %6s  %s\n", "", "noticed", "hung", "survived", "share", "not tried")
	all := map[Status]int{}
	var names []string
	for name, counts := range s.groups {
		names = append(names, name)
		for status, count := range counts {
			all[status] += count
		}
	}
	slices.Sort(names)
	s.groups["all"] = all
	for _, name := range append(names, "all") {
		c := s.groups[name]
		noticed := c[Noticed] + c[Hung]
		share := "-"
		if tried := noticed + c[Survived]; tried > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(noticed)/float64(tried))
		}
		fmt.Printf("%-24s %7d %6d %8d %6s  %d\n", name, noticed, c[Hung], c[Survived], share, c[Void]+c[Broken])
	}
	delete(s.groups, "all")
}

// tail is the end of a long output.
func tail(output []byte) []byte {
	const most = 4000
	if len(output) > most {
		return output[len(output)-most:]
	}
	return output
}
