//go:build unix

package cmd

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func notifyPipe(c chan<- os.Signal) { signal.Notify(c, syscall.SIGPIPE) }

// hasTerminal reports whether this process has a controlling terminal that is still there.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// brokenPipe reports whether the reader of a pipe has gone.
func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
