// Package scripts is a Backend in the core: it runs scripts of this host that the configuration allows by name, and
// nothing else. It is no sandbox: a script has the rights of the server.
//
// One flow: Run checks the script's path, its arguments and its environment against the Policy, starts a runner of its own
// (core/runner), which runs the script without a shell in the script's folder and ends it and all it started on a limit, a
// cancel, or the death of this process; what it writes goes to the log of the Execution and, capped, into a file of its
// own; a line of JSON says afterwards who ran what.
package scripts
