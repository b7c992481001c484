package backendtest

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// machineRules are the rules for a Backend that has its programs on other machines, or waits for a place for them. Most of it holds for
// every Backend.
func machineRules() []rule {
	return []rule{
		{"BE-63", "an Execution that runs already is refused as conflict: nothing of it starts again, and it goes on", runsAlready},
		{"BE-64", "an Execution beyond the capacity runs or waits, and one that waits begins when another ends", waitsForPlace},
	}
}

// upAndLine says that it is up, and ends with a line of its standard input.
var upAndLine = Program{
	Python: "import sys\nprint('up', flush=True)\nprint(sys.stdin.readline(), end='')\n",
	Fake:   "print up\nread-line",
}

// held starts upAndLine. end lets it end, and ends the case unless it has printed its line once.
func (c *Case) held() (r *running, end func()) {
	in, out := io.Pipe()
	c.Cleanup(func() { _ = out.Close() }) // a pipe's Close returns no error
	job := c.job(upAndLine)
	job.Stdin = c.source("stdin", nil, func() io.ReadCloser { return in })
	r = c.start(job)
	return r, func() {
		if _, err := fmt.Fprintln(out, "line"); err != nil {
			c.Errorf("write stdin: %v", err)
		}
		_ = out.Close()
		r.wait().succeeded()
		if got := r.stdout(); got != "up\nline\n" {
			c.Errorf("it says %q", got)
		}
	}
}

func runsAlready(c *Case) {
	first, end := c.held()
	first.says("up\n")
	again := first.job
	again.Attempt, again.Stdin = 2, nil
	backends := map[string]executor.Backend{"the same backend": c.suite.backend}
	if c.suite.options.Beside != nil {
		backends["another backend for the same machines"] = c.suite.options.Beside(first.job.ID)
	}
	for which, b := range backends {
		if r := c.startOn(b, again).wait(); executor.CodeOf(r.err) != executor.Conflict || len(r.started) > 0 {
			c.Errorf("%s: Run of an Execution that runs: %v, %s, started %d times, want code conflict", which, r.err, r.verdict(), len(r.started))
		}
	}
	end()
}

func waitsForPlace(c *Case) {
	slots := c.suite.info.Capacity
	if slots == 0 || !c.suite.options.virtual {
		c.Skipf("the backend has a bound, and only virtual time shows how long one waits")
	}
	var ends []func()
	for range slots {
		r, end := c.held()
		r.says("up\n")
		ends = append(ends, end)
	}
	// Three times, at moments that no interval of a Backend that looks now and then can have.
	for n, moment := range []time.Duration{1234 * time.Millisecond, 517 * time.Millisecond, 333 * time.Millisecond} {
		next, end := c.held()
		time.Sleep(moment)
		ends[n%slots]()
		ended := time.Now()
		next.says("up\n")
		if late := time.Since(ended); late > 0 {
			c.Errorf("a place came free, and the Execution that waited began %s later", late)
		}
		ends[n%slots] = end
	}
	for _, end := range ends {
		end()
	}
}

// drainPause is long for a Backend that looks at its machines now and then.
const drainPause = time.Minute

func sessionOutlivesDrain(c *Case) {
	if c.suite.options.Drain == nil || !c.suite.options.virtual {
		c.Skipf("the harness drains no machine in virtual time")
	}
	undrain := func() {}
	c.Cleanup(func() { undrain() }) // when the Session is closed
	o := c.open()
	o.run(setHundred).succeeded()
	undrain = c.suite.options.Drain(o.session.ID)
	time.Sleep(drainPause)
	o.says(showX, "100\n").kept()
	time.Sleep(drainPause)
	o.says(showX, "100\n").kept()
	o.close()
	err := c.returns(c.ctx, "Variables", func(ctx context.Context) error {
		_, err := o.tools().Variables(ctx, o.session.ID)
		return err
	})
	if executor.CodeOf(err) != executor.NotFound {
		c.Errorf("a Session that was closed on a machine that drains: %v, want code not_found", err)
	}
}
