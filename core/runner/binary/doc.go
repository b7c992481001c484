// Package binary holds the small static runner inside the big binary. `make build` makes runner.bin from
// core/runner/cmd/python-executor-runner and builds with the tag embedrunner; without that tag there is none, and
// callers execute /proc/self/exe with the argument "runner" instead.
package binary
