package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// Program is a program in each dialect, side by side.
type Program struct {
	Python string
	Fake   string
}

// in returns the text of p in the dialect of the Backend under test.
func (c *Case) in(p Program) string {
	if c.suite.options.Dialect == DialectFake {
		return strings.TrimLeft(p.Fake, "\n")
	}
	return strings.TrimLeft(p.Python, "\n")
}

// job returns a Job that runs p as Code.
func (c *Case) job(p Program) executor.Job {
	j := c.bare()
	j.Spec.Code = c.in(p)
	return j
}

// bare returns a Job without a program. Its limits are resolved, as an Engine does it.
func (c *Case) bare() executor.Job {
	id := c.suite.executionID(c.suite.jobs.Add(1))
	c.Cleanup(func() { c.remove(id) })
	return executor.Job{
		ID: id, Owner: "law", Attempt: 1,
		Spec: executor.Spec{Image: c.suite.options.Image},
		Limits: executor.Limits{
			Timeout:     awaittest.Forever,
			MemoryBytes: 512 << 20,
			DiskBytes:   512 << 20,
			CPUShares:   1024,
			PIDs:        128,
			OutputBytes: 64 << 20,
			KillGrace:   time.Second,
		},
	}
}

// executionID returns the id of the n-th job of s.
func (s *suite) executionID(n int64) string { return fmt.Sprintf("exe_%s%010d", s.tag, n) }

// remove calls Remove, as an Engine does after an Execution. It may be called after the case's ctx has ended.
func (c *Case) remove(id string) {
	err := c.returns(context.WithoutCancel(c.ctx), "Remove "+id, func(ctx context.Context) error { return c.suite.backend.Remove(ctx, id) })
	if err != nil {
		c.Errorf("Remove %s: %v", id, err)
	}
}

// running is a call of Run that has not returned yet.
type running struct {
	*journal
	c      *Case
	job    executor.Job
	ctx    context.Context //nolint:containedctx // the ctx of Run
	cancel context.CancelCauseFunc
	done   chan struct{}
	result executor.Result
	err    error
}

var errCancelled = errors.New("cancelled by the test")

// start calls Run in a goroutine. tweak may set the hooks of the journal.
func (c *Case) start(job executor.Job, tweak ...func(*running)) *running {
	return c.startOn(c.suite.backend, job, tweak...)
}

func (c *Case) startOn(b executor.Backend, job executor.Job, tweak ...func(*running)) *running {
	return c.begin(job, b.Run, tweak...)
}

type runFunc func(context.Context, executor.Job, executor.Sink) (executor.Result, error)

func (c *Case) begin(job executor.Job, run runFunc, tweak ...func(*running)) *running {
	r := &running{journal: newJournal(c.suite, c.rule.ID+" "+job.ID), c: c, job: job, done: make(chan struct{})}
	r.session = job.Spec.Session != ""
	r.ctx, r.cancel = context.WithCancelCause(c.ctx)
	for _, f := range tweak {
		f(r)
	}
	go func() {
		defer close(r.done)
		defer r.ended()
		defer func() {
			if v := recover(); v != nil {
				r.err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		r.result, r.err = run(r.ctx, job, r.journal)
	}()
	c.Cleanup(func() {
		r.cancel(errCancelled)
		awaittest.Closed(c, "the end of Run", r.done)
	})
	return r
}

// wait waits until Run has returned, and checks the rules of every Result.
func (r *running) wait() *running {
	awaittest.Closed(r.c, "the end of Run", r.done)
	if r.err == nil {
		r.agree()
	}
	return r
}

// run runs job to its end. An error of Run ends the case.
func (c *Case) run(job executor.Job) *running {
	r := c.start(job).wait()
	r.noError()
	return r
}

// program runs p as Code.
func (c *Case) program(p Program) *running { return c.run(c.job(p)) }

func (r *running) noError() {
	if r.err != nil {
		r.c.Fatalf("Run returned an error: %v", r.err)
	}
}

// until waits until the journal satisfies cond. It ends the case if Run has returned before.
func (r *running) until(what string, cond func(j *journal) bool) {
	for {
		r.mu.Lock()
		ok, over, changed := cond(r.journal), r.returned, r.changed
		r.mu.Unlock()
		switch {
		case ok:
			return
		case over:
			awaittest.Closed(r.c, "the end of Run", r.done)
			r.c.Fatalf("Run returned before %s: %s, error %v, stderr %q", what, r.verdict(), r.err, r.stderr())
		}
		awaittest.Closed(r.c, what, changed)
	}
}

// says waits until stdout holds text.
func (r *running) says(text string) {
	r.until(fmt.Sprintf("it said %q", text), func(j *journal) bool {
		return strings.Contains(j.kept[executor.Stdout].String(), text)
	})
}

// starter starts a program with these limits.
type starter func(timeout, grace time.Duration) *running

// limited returns what starts p with given limits and with the case's mark.
func (c *Case) limited(p Program) starter {
	return func(timeout, grace time.Duration) *running {
		job := c.job(p)
		job.Spec.Args = []string{c.mark()}
		job.Limits.Timeout, job.Limits.KillGrace = timeout, grace
		return c.start(job)
	}
}

// timesOut runs a program that prints "up" and does not end by itself until its timeout. The timeout comes after the "up". deaf says
// that the program goes on then, so that its grace must come, too. The other programs have a grace that does not come.
func (c *Case) timesOut(deaf bool, start starter) *running {
	expire := c.suite.options.Expire
	if expire == nil {
		return c.byTheClock(deaf, start)
	}
	r := start(awaittest.Forever, awaittest.Forever)
	r.says("up\n")
	expire(r.job.ID, LimitTimeout)
	if deaf {
		expire(r.job.ID, LimitGrace)
	}
	return r.wait().status(executor.StatusTimedOut)
}

// byTheClock is timesOut with limits that the Backend measures itself.
func (c *Case) byTheClock(deaf bool, start starter) *running {
	return awaittest.Ladder(c, 500*time.Millisecond, func(timeout time.Duration) (*running, bool) {
		grace := awaittest.Forever
		if deaf {
			grace = timeout / 2
		}
		r := start(timeout, grace).wait().status(executor.StatusTimedOut)
		return r, strings.Contains(r.stdout(), "up\n")
	})
}

// inTime records an error if limits of r, which have come one after the other, did not take their time.
func (r *running) inTime(limits ...time.Duration) *running {
	var least time.Duration
	for _, limit := range limits {
		least += limit
	}
	if wall := r.result.Wall; wall < least || wall > least+late {
		r.c.Errorf("it ended after %s, want %s", wall, least)
	}
	return r
}

// late is longer than a busy machine delays anything. What is later has another reason.
const late = 2 * time.Minute

// status ends the case unless the Result has one of these statuses.
func (r *running) status(want ...executor.Status) *running {
	r.noError()
	if !slices.Contains(want, r.result.Status) {
		r.c.Fatalf("got %s, want %v; stdout %q, stderr %q", r.verdict(), want, clip(r.stdout()), clip(r.stderr()))
	}
	return r
}

func (r *running) succeeded() *running { return r.status(executor.StatusSucceeded) }

// exit ends the case unless the program has ended with that exit code.
func (r *running) exit(code int) *running {
	r.noError()
	if r.result.ExitCode == nil || *r.result.ExitCode != code || r.result.Signal != "" {
		r.c.Fatalf("got %s, want exit code %d; stderr %q", r.verdict(), code, clip(r.stderr()))
	}
	return r
}

// signal ends the case unless that signal has ended the program.
func (r *running) signal(name string) *running {
	r.noError()
	if r.result.ExitCode != nil || r.result.Signal != name {
		r.c.Fatalf("got %s, want signal %s", r.verdict(), name)
	}
	return r
}

// failure ends the case unless the Result has a Failure of that phase and code, with every part in its message.
func (r *running) failure(phase executor.Phase, code executor.Code, parts ...string) *running {
	r.status(executor.StatusFailed)
	f := r.result.Failure
	if f == nil || f.Phase != phase || f.Code != code {
		r.c.Fatalf("got %s, want a failure with phase %s and code %s", r.verdict(), phase, code)
	}
	for _, part := range parts {
		if !strings.Contains(f.Message, part) {
			r.c.Errorf("the failure's message does not name %q: %s", part, f.Message)
		}
	}
	if r.hasStarted() {
		r.c.Errorf("a program was started although %s failed", phase)
	}
	return r
}

// hit records an error unless the Result names field as the limit that the program has reached.
func (r *running) hit(field string) *running {
	r.noError()
	f := r.result.HitLimit()
	if f == nil || f.Field != field || !strings.Contains(f.Message, field) {
		r.c.Errorf("got %s, want a failure run/exhausted that names %s", r.verdict(), field)
	}
	return r
}

// hitNone records an error if the Result names a limit that the program has reached.
func (r *running) hitNone() {
	if f := r.result.HitLimit(); f != nil {
		r.c.Errorf("it ran into no limit: %s", r.verdict())
	}
}

// prints ends the case unless stdout is exactly text.
func (r *running) prints(text string) *running {
	r.noError()
	if got := r.stdout(); got != text {
		r.c.Fatalf("stdout is %q, want %q; %s, stderr %q", clip(got), clip(text), r.verdict(), clip(r.stderr()))
	}
	return r
}

// verdict describes the end of the run, for error messages.
func (r *running) verdict() string {
	res := r.result
	text := "status " + string(res.Status)
	if res.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *res.ExitCode)
	}
	if res.Signal != "" {
		text += ", signal " + res.Signal
	}
	if res.Failure != nil {
		text += fmt.Sprintf(", failure %s/%s: %s", res.Failure.Phase, res.Failure.Code, res.Failure.Message)
	}
	return text
}

func clip(s string) string {
	if len(s) > 400 {
		return s[:400] + "…"
	}
	return s
}

// mark returns an argument for the programs of a case. It identifies their descendants by the command line.
func (c *Case) mark() string { return fmt.Sprintf("pyexec-law-%d-%s", os.Getpid(), c.rule.ID) }
