//go:build !linux

package dockertest

import "errors"

// private is a Docker of this process: Linux only.
type private struct{}

func (*private) host() string { return "" }
func (*private) stop() error  { return nil }

func start() (*private, error) { return nil, errors.New("a private one needs Linux") }
