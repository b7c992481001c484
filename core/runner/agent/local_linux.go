package agent

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// Local is a runner in the process of its host. There is at most one in a process, because it waits for all children.
type Local struct{ agent *agent }

// Enter makes this process a runner. dying is called with an error that ends the process, before its end; no program is left
// then. The caller decides about SIGTERM and SIGINT; other signals do not end the process.
func Enter(dying func(error)) (*Local, error) {
	inside, err := sandbox.EnterContainer()
	if err == nil {
		err = settle(inside)
	}
	if err != nil {
		return nil, err
	}
	// Signals are caught and not ignored, because programs would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGXFSZ)
	a := newAgent(inside)
	a.dying = dying
	return &Local{a}, nil
}

// Serve serves the host at the other end of conn until the host is gone. It returns when nothing of any program is left.
func (l *Local) Serve(conn io.ReadWriter) error {
	defer l.agent.Guard()
	return l.agent.serve(conn, conn)
}
