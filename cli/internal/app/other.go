//go:build !linux

package app

import (
	"context"
	"errors"

	"github.com/python-executor/python-executor/core/executor"
)

// LocalFactory makes a backend in this process. No backend of this system does.
type LocalFactory any

var errLinux = errors.New("programs run on Linux only: set --server or PYEXEC_SERVER to use a server")

// Embedded needs Linux.
func Embedded(context.Context, EmbeddedOptions) (*Local, error) { return nil, errLinux }

// Close does nothing.
func (l *Local) Close(context.Context) error { return nil }

// Local is an engine inside this process.
type Local struct{ executor.Service }

// Serve needs Linux.
func Serve(context.Context, ServeOptions) error { return errLinux }

// Worker needs Linux.
func Worker(context.Context, WorkerOptions) error { return errLinux }

// CheckPlugin needs Linux.
func CheckPlugin(context.Context, CheckOptions) ([]Rule, error) { return nil, errLinux }

// SealDescriptors has nothing to do.
func SealDescriptors() {}
