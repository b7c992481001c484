// Package leaktest checks that the tests of a package leave no goroutine behind.
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
package leaktest

import (
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/goleak"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// M is the part of *testing.M that this package needs.
type M interface{ Run() int }

// Main runs the tests and exits. If they pass and goroutines are left, it waits for their end, for awaittest.Bound at most.
func Main(m M, options ...goleak.Option) { os.Exit(Run(m, options...)) }

// Run is Main without the exit. It returns the status of the process.
func Run(m M, options ...goleak.Option) int { return run(m, awaittest.Bound, os.Stderr, options...) }

func run(m M, bound time.Duration, stderr io.Writer, options ...goleak.Option) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	said := false
	for end := time.Now().Add(bound); ; {
		err := goleak.Find(options...) // it looks for 0.4 s
		switch {
		case err == nil:
			return 0
		case !said: // who waits may want to know for what
			fmt.Fprintf(stderr, "waits for the end of goroutines that the tests left, for %s at most: %v\n", bound, err)
			said = true
		case !time.Now().Before(end):
			fmt.Fprintf(stderr, "goroutines are left after %s: %v\n", bound, err)
			return 1
		}
	}
}
