// Package app composes the parts: configuration → host → engine (with its store and blobs) → frontends.
//
// It decides nothing that the parts decide; it knows their order. What runs programs exists on Linux only (*_linux.go);
// elsewhere Embedded and Serve answer unimplemented and the binary is a client.
//
// One flow: Embedded makes temporary folders, starts the host and an engine over a memory store, and hands out its
// Service; Close stops them in the reverse order and removes the folders. Serve does the same over a data folder, with
// the HTTP frontend in front, until ctx ends.
package app
