// Package cmd is the command line: one file per command, each a constructor (flags), an options struct (what the user
// said) and a run function (what happens), so that flags are tested without running anything.
//
// It holds no engine and no protocol: every command speaks executor.Service, and does not know whether that is the engine
// in this process (internal/app) or a server (internal/remote). stdout is the product; everything else goes to stderr.
//
// One flow: Main dispatches plugins and the runner before anything is constructed, else builds the command tree, runs
// the command with a context that ends with the first signal, and turns what it returned into an exit status
// (internal/exit).
package cmd
