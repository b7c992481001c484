// Package batch is the commands of a runner. Main is what a runner's program calls.
//
// Without a command the runner serves a host over a stream (package agent). `job` and `job-prepare` work without a host: they
// read a folder, write another, and end (package job). `job-feed` brings a standard input to job. There the host's end of the connection is in the same process as the
// agent, so that limits, the kill and the collection are those of every other runner.
//
// The runner must be root, and the program another user. A program of the runner's user could write the output folder. The
// runner needs the capabilities CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETPCAP and SETUID, and programs get none.
//
// A signal by which images ask to be stopped (SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGRTMIN+3) is a
// cancel: the program gets SIGTERM, and after Limits.KillGrace SIGKILL. The Result is then written as after any other end. The time that the place allows between SIGTERM and SIGKILL must be longer than KillGrace.
//
// # The exit code
//
// It is for people: the records tell more. job ends with the program's exit code, or with 128 and the number of the signal that
// ended the program. 125 means that no program ran, or that the runner failed. job-prepare ends with 0 if all is prepared, so
// that its place starts the program only then.
//
// # Output
//
// The first MiB of what the program writes to stdout and to stderr is also written to the runner's own, for the place's own
// log. A reader of that log who is slow does not hold the program back. At the end the runner waits a few seconds for it.
package batch
