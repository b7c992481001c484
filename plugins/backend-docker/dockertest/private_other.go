//go:build !linux

package dockertest

import (
	"errors"
	"testing"
)

// private is a Docker of this process: Linux only.
type private struct{}

func (*private) host() string { return "" }
func (*private) stop() error  { return nil }

// Remote skips the test: there is no private Docker.
func Remote(t testing.TB) (host, certificates string) {
	t.Helper()
	t.Skip("SKIPPED, a Docker of its own needs Linux")
	return "", ""
}

func start() (*private, error) { return nil, errors.New("a private one needs Linux") }
