package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// follower reads the log of an Execution and shows it to the user.
type follower struct {
	// stdout and stderr take the program's output, byte for byte, as it arrives.
	stdout, stderr io.Writer
	progress       *progress
	g              *global
	// stopped is the message for an Execution that was stopped by request. Default "killed".
	stopped string
	// show takes each Display. displays holds those that show keeps.
	show     func(executor.Display) error
	displays []executor.Display
}

// errNoEnd is the error for a log that ends without a Finished event.
var errNoEnd = executor.Errorf(executor.Unavailable, "the event log ended before the execution did")

// outputError is a failure to write what the program wrote.
type outputError struct{ error }

// Unwrap returns the cause.
func (e outputError) Unwrap() error { return e.error }

// follow reads the log to its end. An outputError means that the output could not be written.
func (f *follower) follow(ctx context.Context, svc executor.Executions, id string) (executor.Result, error) {
	defer f.progress.end()
	for e, err := range svc.Events(ctx, id, 0) {
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return executor.Result{}, err
		}
		switch b := e.Body.(type) {
		case executor.Queued:
			if b.Position > 0 {
				f.progress.draw(fmt.Sprintf("waiting, %d ahead", b.Position), "")
			}
		case executor.Progress:
			f.progress.show(b)
		case executor.Started:
			f.started(b)
		case executor.Output:
			if err := f.output(b); err != nil {
				return executor.Result{}, outputError{err}
			}
		case executor.Finished:
			return b.Result, nil
		case executor.Display:
			if err := f.display(b); err != nil {
				return executor.Result{}, err
			}
		case executor.Unknown:
			f.g.debug("unknown event %d (%s)", e.Seq, string(e.Body.Kind()))
		}
	}
	if ctx.Err() != nil {
		return executor.Result{}, context.Cause(ctx)
	}
	return executor.Result{}, errNoEnd
}

func (f *follower) started(s executor.Started) {
	f.progress.end()
	f.g.debug("started: pid %d, python %s, %s", s.PID, orUnknown(s.PythonVersion), string(s.Start))
	for _, r := range s.Requirements {
		f.g.debug("requirement %s", r)
	}
}

func (f *follower) output(o executor.Output) error {
	f.progress.end()
	w := f.stdout
	if o.Stream == executor.Stderr {
		w = f.stderr
	}
	_, err := w.Write(o.Data)
	return err
}

func (f *follower) display(d executor.Display) error {
	f.progress.end()
	return f.show(d)
}

// report writes to stderr how the Execution ended, as far as the program's own output does not show it.
func (f *follower) report(r executor.Result) {
	if limit := r.HitLimit(); limit != nil {
		what, flag := "out of memory", "--memory"
		switch limit.Field {
		case "config.disk_mb":
			what, flag = "disk full", "--disk"
		case executor.FieldTimeout:
			what, flag = "timed out", "--timeout"
		case executor.FieldCPUTime:
			what, flag = "timed out", "--cpu-seconds"
		}
		f.g.note("%s: %s (%s)", what, clean(limit.Message), flag)
	} else if r.Failure != nil {
		// This is an error, so --quiet does not hide it.
		fmt.Fprintf(f.g.Err, "python-executor: %s: %s\n", r.Failure.Phase, clean(r.Failure.Message))
	} else {
		switch r.Status {
		case executor.StatusTimedOut: // of an older server
			f.g.note("timed out (raise --timeout)")
		case executor.StatusOutOfMemory:
			f.g.note("out of memory (raise --memory)")
		case executor.StatusKilled:
			f.g.note("%s", cmp.Or(f.stopped, "killed"))
		case executor.StatusLost:
			fmt.Fprintln(f.g.Err, "python-executor: lost: the program may have run; try again")
		}
	}
	switch r.SessionState {
	case executor.SessionStateRestarted:
		fmt.Fprintln(f.g.Err, "python-executor: the code did not stop in time: the session's interpreter was restarted, and its names are gone")
	case executor.SessionStateLost:
		fmt.Fprintf(f.g.Err, "python-executor: the session's interpreter died%s (python-executor session restart starts it again)\n", by(r.Signal))
	case executor.SessionStateKept:
	}
	if r.Hint != "" {
		f.g.note("hint: %s", r.Hint)
	}
	if r.DisplaysDropped > 0 {
		f.g.note("%d displays were dropped, because there were too many", r.DisplaysDropped)
	}
	if r.StdoutTruncated {
		f.g.note("stdout is cut: the program wrote %s", size(r.StdoutBytes))
	}
	if r.StderrTruncated {
		f.g.note("stderr is cut: the program wrote %s", size(r.StderrBytes))
	}
	f.g.debug("%s: wall %.3f s, cpu %.3f s, peak memory %s", string(r.Status), r.Wall.Seconds(), r.CPU.Seconds(), size(r.PeakMemoryBytes))
}

// by returns the part of a message that names a signal.
func by(signal string) string {
	if signal == "" {
		return ""
	}
	return " of " + signal
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// isOutputError reports whether err is about the CLI's own output, and whether its reader is gone.
func isOutputError(err error) (is, gone bool) {
	e, ok := errors.AsType[outputError](err)
	return ok, ok && brokenPipe(e.error)
}
