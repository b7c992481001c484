//go:build unix

package cmd

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func notifyPipe(c chan<- os.Signal) { signal.Notify(c, syscall.SIGPIPE) }

// brokenPipe reports whether the reader of a pipe has gone.
func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
