// Package app composes the parts: configuration → host → engine (with its store and blobs) → frontends.
//
// The package starts and stops the parts in the right order, and leaves all other decisions to them. The code that runs programs
// exists on Linux only (*_linux.go). On other systems Embedded and Serve return an error, and the binary is only a client.
//
// One flow: Embedded makes temporary folders, starts the host and an engine over a temporary store, and returns its Service.
// Close stops them in the reverse order and removes the folders. Serve does the same over a data folder, with the HTTP frontend,
// until ctx ends.
package app
