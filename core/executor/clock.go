package executor

import (
	"fmt"
	"strconv"
	"time"
)

// The fields that name the two clocks of an Execution: Limits.Timeout and Limits.CPUTime.
const (
	FieldTimeout = "config.timeout_seconds"
	FieldCPUTime = "config.cpu_seconds"
)

// TimedOut returns the Failure of a program that a clock has ended. field is FieldTimeout or FieldCPUTime. The Result has Wall and CPU already.
func (r Result) TimedOut(field string, l Limits) *Failure {
	said := fmt.Sprintf("the program ran longer than its limit of %s", seconds(l.Timeout))
	if r.CPU >= 0 {
		said += fmt.Sprintf(" (it used %.3g s of CPU time)", r.CPU.Seconds())
	}
	if field == FieldCPUTime {
		said = fmt.Sprintf("the program used more CPU time than its limit of %s (in %.3g s)", seconds(l.CPUTime), r.Wall.Seconds())
	}
	return &Failure{Code: Exhausted, Phase: PhaseRun, Field: field, Message: field + ": " + said + "; raise the limit"}
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" }
