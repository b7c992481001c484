package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/python-executor/python-executor/cli/internal/exit"
	"github.com/python-executor/python-executor/cli/internal/stop"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
)

// viewer shows one Execution to its end; run and follow share it.
type viewer struct {
	g *global
	// output is the folder for artifacts; empty: artifacts are not saved.
	output string
	// named reports whether --artifact was given. A note is then written if there are no artifacts.
	named bool
	// hidden reports whether hidden artifacts are saved, too.
	hidden bool
	// live reports whether output is shown while the execution runs, and not after its end.
	live bool
	// kill reports whether Ctrl-C, or a closed standard output, kills the execution.
	kill bool
	// displays is the folder for displays; empty: only their text is shown.
	displays string
}

// killTimeout bounds the wait for the end of an execution after Ctrl-C: the maximum kill grace and some time for the network.
const killTimeout = 75 * time.Second

var errKill = errors.New("the execution did not end in time")

// view shows the execution and returns the exit status of the program as an error, or an error of the CLI.
func (v *viewer) view(d *target, id string, p *progress) error {
	work, cancel := context.WithCancelCause(context.WithoutCancel(d.ctx))
	defer cancel(nil)
	stopped := make(chan struct{})
	release := context.AfterFunc(d.ctx, func() {
		defer close(stopped)
		v.leave(d, id, work, cancel)
	})
	f := follower{stdout: v.g.Out, stderr: v.g.Err, progress: p, g: v.g}
	shown := &displayed{g: v.g, dir: v.displays}
	f.show = shown.show
	var out, errs bytes.Buffer
	if v.g.json {
		f.stdout, f.stderr = &out, &errs
		f.show = func(d executor.Display) error {
			f.displays = append(f.displays, d)
			return shown.save(d)
		}
	} else if !v.live {
		// This pass over the log only waits for the end. The second pass shows the output.
		f.stdout, f.stderr = io.Discard, io.Discard
		f.show = func(executor.Display) error { return nil }
	}
	result, err := f.follow(work, d, id)
	if err == nil && !v.live && !v.g.json {
		f.stdout, f.stderr, f.show = v.g.Out, v.g.Err, shown.show
		_, err = f.follow(work, d, id)
	}
	if is, gone := isOutputError(err); is {
		return v.outputFailed(d, id, err, gone)
	}
	if !release() {
		cancel(context.Cause(d.ctx))
		<-stopped
		if err == nil && v.kill {
			v.keep(d, id, func(late context.Context) error {
				return v.printResult(late, d, id, out.Bytes(), errs.Bytes(), f.displays)
			})
		}
		return context.Cause(d.ctx)
	}
	if err != nil {
		return err
	}
	if v.output != "" {
		saved, err := saveArtifacts(d, id, v.output, v.hidden)
		if err != nil {
			f.report(result)
			return fmt.Errorf("save artifacts in %s: %w", v.output, err)
		}
		v.g.note("%s", saidOf(saved, v.output, v.named))
	}
	if v.g.json {
		if err := v.printResult(d.ctx, d, id, out.Bytes(), errs.Bytes(), f.displays); err != nil {
			return err
		}
	} else {
		f.report(result)
	}
	return exit.With(exit.OfResult(result), nil)
}

// printResult prints the result of an execution that has ended, for --json.
func (v *viewer) printResult(ctx context.Context, d *target, id string, stdout, stderr []byte, displays []executor.Display) error {
	e, err := d.Get(ctx, id)
	if err != nil {
		return err
	}
	return printJSON(v.g.Out, apijson.ResultOf(e, stdout, stderr, displays))
}

// keep saves what an execution has written that Ctrl-C has ended, and prints its result with --json. The command's error is Ctrl-C.
func (v *viewer) keep(d *target, id string, print func(context.Context) error) {
	bounded, done := stop.Within(d.ctx, killTimeout, errKill)
	defer done()
	if v.output != "" {
		late := *d
		late.ctx = bounded
		if saved, err := saveArtifacts(&late, id, v.output, v.hidden); err != nil {
			fmt.Fprintf(v.g.Err, "python-executor: save artifacts in %s: %s\n", v.output, clean(err.Error()))
		} else {
			v.g.note("%s", saidOf(saved, v.output, v.named))
		}
	}
	if v.g.json {
		if err := print(bounded); err != nil {
			fmt.Fprintf(v.g.Err, "python-executor: print the result: %s\n", clean(err.Error()))
		}
	}
}

// leave handles Ctrl-C: it stops the execution if v.kill is set (the program gets SIGINT first, and time for it), else it only stops following.
func (v *viewer) leave(d *target, id string, work context.Context, cancel context.CancelCauseFunc) {
	if !v.kill {
		cancel(context.Cause(d.ctx))
		return
	}
	bounded, done := stop.Within(work, killTimeout, errKill)
	defer done()
	if _, err := d.Cancel(bounded, id); err != nil {
		if work.Err() == nil && stop.Cause(work) == nil {
			fmt.Fprintf(v.g.Err, "python-executor: kill %s: %s\n", id, clean(err.Error()))
		}
		cancel(err)
		return
	}
	// Cancel returns when the execution has ended. The rest of its output may still arrive.
	rest := time.NewTimer(2 * time.Second)
	defer rest.Stop()
	select {
	case <-rest.C:
		cancel(context.Cause(d.ctx))
	case <-stop.Now(work):
		cancel(stop.Cause(work))
	case <-work.Done():
	}
}

// outputFailed handles an error of the CLI's output. It kills the execution if v.kill is set.
func (v *viewer) outputFailed(d *target, id string, err error, gone bool) error {
	if v.kill {
		bounded, done := stop.Within(d.ctx, killTimeout, errKill)
		defer done()
		if _, killErr := d.Cancel(bounded, id); killErr != nil {
			err = errors.Join(err, killErr)
		}
	}
	if gone {
		return exit.With(exit.BrokenPipe, nil)
	}
	return fmt.Errorf("write the program's output: %w", err)
}
