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
	"github.com/python-executor/python-executor/core/executor/apijson"
)

// viewer shows one Execution to its end; run and follow share it.
type viewer struct {
	g *global
	// output is the folder for artifacts; empty: none.
	output string
	// named: --artifact says which; that there is none is then worth a word.
	named bool
	// hidden: hidden artifacts are saved too.
	hidden bool
	// live: output is shown as it comes, else when the execution has ended.
	live bool
	// kill: who goes away kills it.
	kill bool
	// displays is the folder for what is displayed; empty: only its text is shown.
	displays string
}

// killTimeout bounds waiting for the end of what Ctrl-C kills: the kill grace and some network.
const killTimeout = 75 * time.Second

var errKill = errors.New("it did not end in time")

// view returns the exit status of the program as an error, or ours.
func (v *viewer) view(d *door, id string, p *progress) error {
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
		// A second reading shows the output; the first only waits.
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
		e, err := d.Get(d.ctx, id)
		if err != nil {
			return err
		}
		if err := printJSON(v.g.Out, apijson.ResultOf(e, out.Bytes(), errs.Bytes(), f.displays)); err != nil {
			return err
		}
	} else {
		f.report(result)
	}
	return exit.With(exit.OfResult(result), nil)
}

// leave is what Ctrl-C does: kill what we started, or stop looking.
func (v *viewer) leave(d *door, id string, work context.Context, cancel context.CancelCauseFunc) {
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
	// Cancel returns when it has ended; the rest of its output is on its way.
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

// outputFailed ends an execution that nobody can see any more.
func (v *viewer) outputFailed(d *door, id string, err error, gone bool) error {
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
