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
	// LaneCheck is for the Backend that is passed to Check. The suite does not know how it is reached.
	LaneCheck Lane = "check"
)

// Options are the parameters of a Backend for the suite. The zero value is valid for a Backend without Requirements.
type Options struct {
	// Dialect of the programs. Default DialectPython.
	Dialect Dialect
	// Requirement is a package that the Backend under test can install. The zero value skips the cases that need a package.
	Requirement Requirement
	// Image is the image of every Spec. It is needed if the Backend has no default image.
	Image string
	// Leftovers lists the leftovers of finished Executions: processes, folders, mounts, cgroups. The suite calls it after
	// every Run has returned and every id was removed. Each leftover is an error. nil: the suite only checks for processes
	// that have its mark on their command line.
	Leftovers func() []string
	// NetworkAddress is an address of this host that programs with a network reach. Without it the suite takes loopback, and for a
	// Backend whose programs have a network of their own skips the rule that needs it.
	NetworkAddress string
	// Expire lets a limit of a running Execution come at once. It is for a Backend that can be told in a test. nil: the suite waits
	// for limits, with longer ones where a busy machine was late.
	Expire func(executionID string, limit Limit)
	// Beside returns another Backend for the same machines, as a second server has it, that would send an Execution to where it runs
	// already. nil: the suite asks the Backend itself only.
	Beside func(executionID string) executor.Backend
	// Drain makes the machine of a Session take nothing new, until undrain is called. It is for a Backend in virtual time. nil: the
	// rule of it is skipped.
	Drain func(sessionID string) (undrain func())
	// Only selects the rules with these ids. Default: all.
	Only []string
	// bound is the bound of each wait. Default awaittest.Bound, which is for all suites but those that wait in vain.
	bound time.Duration
	// virtual says that the suite runs in a bubble of testing/synctest.
	virtual bool
}

// Limit is a limit of an Execution that Options.Expire is called with.
type Limit string

// The limits.
const (
	// LimitTimeout is Limits.Timeout.
	LimitTimeout Limit = "timeout"
	// LimitGrace is Limits.KillGrace, and all that the Backend waits after it.
	LimitGrace Limit = "grace"
)

// Requirement is an installable package.
type Requirement struct {
	// Text is the content of requirements.txt, such as "pyexec-probe==1.2.3".
	Text string
	// Import is the name of a module in the package. The module's __version__ is Version.
	Import  string
	Version string
	// Resolved is the line that Result.Requirements must hold, such as "pyexec-probe==1.2.3".
	Resolved string
}

// RuleResult is the result of one rule for a Backend.
type RuleResult struct {
	// ID ("BE-06") and Name ("an uncaught exception …") are those of the rule.
	ID   string
	Name string
	// Errors are the violations of the rule; empty: none.
	Errors []string
	// Skipped is the reason why the rule was not checked; empty: it was checked.
	Skipped string
	// Log is the log of the case.
	Log []string
}

// Check runs the suite on b and returns one result per rule, in order. When ctx ends, the remaining rules are Skipped.
func Check(ctx context.Context, b executor.Backend, o Options) []RuleResult {
	return newSuite(b, LaneCheck, o, nil).checkAll(ctx)
}

// checkAll checks the rules one after another.
func (s *suite) checkAll(ctx context.Context) []RuleResult {
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
