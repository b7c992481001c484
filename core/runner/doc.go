// Package runner is the host's end of a runner: the small program inside a Sandbox that runs Executions.
//
// A backend starts a runner, makes a Conn of any byte stream to it, and runs Executions one at a time: a socketpair to a
// process, or a container's attached standard streams. The packages below this one are the runner itself:
//
//   - protocol: the frames and messages of both ends.
//   - agent: the runner's program. It serves one host and runs one Execution at a time.
//   - sandbox: starts programs, enforces their limits, and kills all that they start.
//   - archive: unpacks a Workspace and collects Artifacts.
//   - output: keeps what a program writes until the host has it.
//   - session: an interpreter that stays between Executions.
//   - drivers: the programs that run code inside an interpreter.
//   - job: the files of a runner where a host has no stream to it.
//   - batch: the runner's commands. Two of them work with those files.
//   - binary: the runner as a small static program, embedded.
//
// Apart from batch none of them knows about environments, requirements or images. A backend puts what follows from those into
// a Start.
//
// One flow: NewConn sends Hello with a Config. Run sends Start, then the Workspace and Stdin as the runner grants credit.
// The runner answers with Started, Output, Artifact and, last, Exited. Started waits 20 ms for what follows it, unless hosts come
// and go, or the program has a network, a host folder or no sandbox. Run returns the Result. Work that no caller waits for, such as unmounting and removing folders and control groups, happens
// after Exited.
package runner
