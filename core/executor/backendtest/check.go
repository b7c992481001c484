package backendtest

import (
	"context"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// Dialect is the language that a Backend's programs are written in.
type Dialect string

// The dialects. The zero value means DialectPython.
const (
	DialectPython Dialect = "python"
	// DialectFake: directives of package fake.
	DialectFake Dialect = "fake"
)

// Lane is how the suite reaches a Backend.
type Lane string

// The lanes.
const (
	LaneDirect  Lane = "direct"
	LaneWire    Lane = "wire"
	LaneProcess Lane = "process"
	// LaneCheck is a Backend that Check was given; what is behind it is unknown.
	LaneCheck Lane = "check"
)

// Options say what a Backend needs to be tested. The zero value is enough for a Backend without Requirements.
type Options struct {
	// Dialect of the programs. Default DialectPython.
	Dialect Dialect
	// Requirement is a package that the Backend under test can install. Without one the cases that need it are skipped.
	Requirement Requirement
	// Image is used by every Spec; needed by a Backend that has no default image.
	Image string
	// Residue lists what is left of finished Executions: processes, folders, mounts, cgroups. The suite calls it when
	// every Run has returned and every id was removed; anything it returns is an error. Default: nothing is checked
	// but processes that bear the suite's mark.
	Residue func() []string
	// Patience bounds the wait for what must happen some time. Default 60 s. It is not a measure of speed.
	Patience time.Duration
	// Only keeps the rules with these ids. Default: all.
	Only []string
}

// Requirement is an installable package.
type Requirement struct {
	// Text is the requirements.txt, "pyexec-probe==1.2.3".
	Text string
	// Import is the name of a module in it whose __version__ is Version.
	Import  string
	Version string
	// Resolved is the line that Result.Requirements must hold, "pyexec-probe==1.2.3".
	Resolved string
}

// RuleResult is how a Backend did on one rule.
type RuleResult struct {
	// ID ("BE-07") and Name ("an uncaught exception …") of the rule.
	ID   string
	Name string
	// Errors say what was wrong; empty: the rule is kept.
	Errors []string
	// Skipped says why the rule was not checked; empty: it was.
	Skipped string
	// Log is what the case had to say.
	Log []string
}

// Check runs the suite on b and returns one result per rule, in order. It stops early when ctx ends: the rest is Skipped.
func Check(ctx context.Context, b executor.Backend, o Options) []RuleResult {
	s := newSuite(b, LaneCheck, o, nil)
	var results []RuleResult
	for _, r := range s.rules() {
		if ctx.Err() != nil {
			results = append(results, RuleResult{ID: r.ID, Name: r.Name, Skipped: context.Cause(ctx).Error()})
			continue
		}
		results = append(results, s.check(ctx, r))
	}
	return results
}
