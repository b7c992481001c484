package dockertest

import (
	"context"
	"fmt"
)

// Find is Host for programs that are no tests: benchmarks and soaks. Why there is no Docker is an error. Stop ends what it
// started.
func Find() (host string, err error) {
	daemon.once.Do(func() { daemon.host, daemon.own, daemon.err = find() })
	return daemon.host, daemon.err
}

// Import makes sure that host's daemon has a test image ("python" or "bare") and returns its name.
func Import(ctx context.Context, host, tag string) (string, error) {
	name := "pyexec-test:" + tag
	if err := importOnce(ctx, host, name, tag); err != nil {
		return "", fmt.Errorf("no image %s: %w", name, err)
	}
	return name, nil
}

// Private reports whether the Docker is this process's own: nobody else changes what is in it.
func Private() bool { return daemon.own != nil }
