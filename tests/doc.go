// Package tests tries the built binary (bin/python-executor) from outside: over HTTP, by its command line, with kill -9.
// It knows nothing of the code inside; `make test` builds the binary first. Load and chaos for minutes live in cmd/soak,
// measurements in cmd/bench.
package tests
