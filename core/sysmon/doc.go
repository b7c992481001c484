// Package sysmon tunes how the threads of this process are scheduled: it makes a thread of Go's runtime wake less often.
//
// The monitor of Go's scheduler (sysmon) sleeps 20 µs at a time while any goroutine runs. In a process that works for a millisecond and
// then waits, as ours do, the monitor takes a tenth to a fifth of the CPU time. A larger timer slack makes the kernel prolong these sleeps.
//
// It also shortens the time slices of this process's threads, so that they need not wait behind programs.
package sysmon
