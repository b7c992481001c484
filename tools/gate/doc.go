// Command gate runs the parts of the project's test suite: `make check`, `make test`, `make test-long`, `make test-load`.
//
// A part is one row of the table in parts.go: a command, the resources that it needs, and how long it takes. Gate starts the
// parts longest first, each as soon as its resources are free. After a failure it starts no further part. It ends every process
// that its parts have started, also after an interrupt. docs/testing.md describes the tiers.
//
// This package uses the standard library only, so that it starts at once in a fresh clone.
package main
