package worker

import (
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// The Ops of errors of calls of which nothing has started.
const (
	// opRefused: the worker has refused the call.
	opRefused = "refused by the worker"
	// opUnsent: the call did not reach the worker.
	opUnsent = "worker not reached"
)

// refusalRetry is when a refused caller may ask the same worker again.
const refusalRetry = time.Second

// Unstarted reports whether err, which a Client has returned, proves that nothing of the call has started. The caller may then try another
// worker.
func Unstarted(err error) bool {
	e, ok := errors.AsType[*executor.Error](err)
	return ok && (e.Op == opRefused || e.Op == opUnsent)
}

func refused(code executor.Code, format string, args ...any) error {
	err := executor.Errorf(code, format, args...)
	err.Op, err.RetryAfter = opRefused, refusalRetry
	return err
}
