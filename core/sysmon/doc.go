// Package sysmon makes a thread of Go's runtime wake less often.
//
// The monitor of Go's scheduler (sysmon) sleeps 20 µs at a time while any goroutine runs. In a process that works for a millisecond and
// then waits, as ours do, the monitor takes a tenth to a fifth of the CPU time. A larger timer slack makes the kernel prolong these sleeps.
package sysmon
