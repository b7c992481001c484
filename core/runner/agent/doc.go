// Package agent is the runner's program: it serves one host and runs one Execution at a time, then the next.
//
// Main is what a runner's command calls. An execution goes through its phases in one goroutine: it unpacks the Workspace
// while that arrives, starts the program, supervises it, kills what is left, collects Artifacts and answers. The reader of
// frames never waits for the program or for the disk.
//
// With Config.Silence > 0 hosts come and go. A relay then writes to the host that is there, and what another host has to
// get again is kept (package output). Package protocol describes it.
//
// An Execution with Start.Session is a cell of the open session's interpreter or, with a Command, a process beside it.
package agent
