package agent

import "time"

// The limits of an Execution that an Alarm is asked for.
const (
	LimitTimeout = "timeout" // Limits.Timeout
	LimitGrace   = "grace"   // Limits.KillGrace
	// LimitAgain comes before the end of the grace of a cell, which is interrupted again then.
	LimitAgain = "again"
	// LimitLast is what a cell has to end after the programs that it has started were killed.
	LimitLast = "last"
)

// Alarm arms a limit of an Execution: the channel gets a value after d. After over is closed nobody waits for it. Tests of limits
// let them come when they say so (package toldtest).
type Alarm func(limit, executionID string, d time.Duration, over <-chan struct{}) <-chan time.Time

// Clock is the Alarm of every runner outside of tests.
func Clock(_, _ string, d time.Duration, _ <-chan struct{}) <-chan time.Time { return time.After(d) }
