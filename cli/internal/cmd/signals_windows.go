package cmd

import (
	"errors"
	"os"
	"syscall"
)

func notifyPipe(chan<- os.Signal) {}

// hasTerminal reports whether a terminal can close with SIGHUP, which this system does not have.
func hasTerminal() bool { return false }

// brokenPipe reports whether the reader of a pipe has gone.
func brokenPipe(err error) bool {
	const errorNoData = syscall.Errno(232)
	return errors.Is(err, syscall.ERROR_BROKEN_PIPE) || errors.Is(err, errorNoData)
}
