// Package cmd is the command line. Each command has a constructor with its flags. A command with many flags has a struct of options
// with a method run, so that tests can read flags without running the command.
//
// The package has no engine and no protocol. Every command calls an executor.Service, which is the engine in this process
// (internal/app) or a server (internal/remote). Results go to stdout, and everything else to stderr.
//
// One flow: Main starts a plugin or the runner if the arguments ask for one. Otherwise it builds the command tree and runs the
// command with a context that ends with the first signal. Package internal/exit converts the command's error to an exit status.
package cmd
