package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// opened is an open Session of a case.
type opened struct {
	executor.OpenedSession
	c       *Case
	backend executor.Backend
	session executor.Session
}

// sessionsOf returns b as a SessionBackend, or ends the case.
func (c *Case) sessionsOf(b executor.Backend) executor.SessionBackend {
	s, ok := b.(executor.SessionBackend)
	if !ok {
		c.Fatalf("sessions are promised and %T has none", b)
	}
	return s
}

// newSession returns the parameters of a new Session. Its limits are resolved, as an Engine does it.
func (c *Case) newSession() executor.Session {
	id := fmt.Sprintf("ctx-00000000-0000-4000-8000-%012d", c.suite.jobs.Add(1))
	return executor.Session{
		ID: id, Owner: "law", Name: c.rule.ID, Language: executor.LanguagePython, Backend: c.suite.info.Name, Status: executor.SessionActive,
		IdleTimeout: awaittest.Forever, MaxLife: awaittest.Forever, Limits: c.bare().Limits,
		Spec: executor.Spec{Language: executor.LanguagePython, Image: c.suite.options.Image},
	}
}

// open opens a Session, which is closed at the end of the case.
func (c *Case) open(change ...func(*executor.Session)) *opened {
	c.need(c.caps().Sessions, "sessions")
	return c.openOn(c.suite.backend, change...)
}

func (c *Case) openOn(b executor.Backend, change ...func(*executor.Session)) *opened {
	s := c.newSession()
	for _, f := range change {
		f(&s)
	}
	o := &opened{c: c, backend: b, session: s}
	sessions := c.sessionsOf(b)
	c.Cleanup(func() { o.close() })
	within(c, "OpenSession", func(ctx context.Context) (err error) {
		o.OpenedSession, err = sessions.OpenSession(ctx, s)
		return err
	})
	return o
}

// within calls f, and ends the case if f fails or does not return.
func within(c *Case, what string, f func(context.Context) error) {
	if err := tried(c, what, f); err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

// tried calls f and returns its error. It ends the case if f does not return.
func tried(c *Case, what string, f func(context.Context) error) error {
	return c.returns(c.ctx, what, f)
}

// returns calls f and returns its error. It ends the case if f does not return. The ctx of f ends then.
func (c *Case) returns(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the suite no longer waits for " + what))
	returned := make(chan error, 1)
	go func() { returned <- f(ctx) }()
	return awaittest.Recv(c, "the return of "+what, returned)
}

// tools returns the methods of o's Backend besides Run.
func (o *opened) tools() executor.SessionBackend { return o.c.sessionsOf(o.backend) }

// close closes o. It may be called after the case's ctx has ended.
func (o *opened) close() {
	err := o.c.returns(context.WithoutCancel(o.c.ctx), "CloseSession", func(ctx context.Context) error { return o.tools().CloseSession(ctx, o.session.ID) })
	if err != nil && executor.CodeOf(err) != executor.Unavailable {
		o.c.Errorf("CloseSession: %v", err)
	}
}

// job returns a Job that runs p in o.
func (o *opened) job(p Program) executor.Job { return o.code(o.c.in(p)) }

func (o *opened) code(text string) executor.Job {
	j := o.c.bare()
	j.Spec = executor.Spec{Session: o.session.ID, Code: text}
	return j
}

// command returns a Job that runs p in o as a separate process.
func (o *opened) command(p Program) executor.Job {
	j := o.c.bare()
	j.Spec = executor.Spec{Session: o.session.ID, Command: o.c.interpreter(p)}
	return j
}

// start calls Run in o, in a goroutine.
func (o *opened) start(job executor.Job, tweak ...func(*running)) *running {
	return o.c.startOn(o.backend, job, tweak...)
}

// run runs p in o to its end.
func (o *opened) run(p Program) *running { return o.finish(o.job(p)) }

func (o *opened) finish(job executor.Job) *running {
	r := o.start(job).wait()
	r.noError()
	return r
}

// limited returns what starts p in o with given limits.
func (o *opened) limited(p Program) starter {
	return func(timeout, grace time.Duration) *running {
		job := o.job(p)
		job.Limits.Timeout, job.Limits.KillGrace = timeout, grace
		return o.start(job)
	}
}

// says runs p in o, and ends the case unless p succeeds and prints text.
func (o *opened) says(p Program, text string) *running {
	return o.run(p).succeeded().prints(text)
}

// kept ends the case unless the Result tells that the state was kept.
func (r *running) kept() *running {
	if r.result.SessionState != executor.SessionStateKept {
		r.c.Fatalf("%s, and the state is %q, want it kept", r.verdict(), r.result.SessionState)
	}
	return r
}

func (r *running) state(want executor.SessionState) *running {
	if r.result.SessionState != want {
		r.c.Fatalf("%s, and the state is %q, want %q", r.verdict(), r.result.SessionState, want)
	}
	return r
}

// Programs of several cases.
var (
	setHundred = Program{Python: "x = 100\n", Fake: "set x 100"}
	showX      = Program{Python: "print(x)\n", Fake: "get x"}
	plusOne    = Program{Python: "x = x + 1\nprint(x)\n", Fake: "add x 1\nget x"}
	undefined  = Program{Python: "print(no_such_name)\n", Fake: "get no_such_name"}
	upAndHang  = Program{Python: "import time\nprint('up', flush=True)\ntime.sleep(3600)\n", Fake: "print up\nhang"}
	deafCell   = Program{
		Python: "import time\nup = False\nwhile True:\n    try:\n        if not up:\n            up = True\n            print('up', flush=True)\n        time.sleep(3600)\n    except BaseException:\n        pass\n",
		Fake:   "ignore-int\nprint up\nhang",
	}
	writeKept = Program{Python: "open('kept.txt', 'w').write('here')\nNone\n", Fake: "write-file kept.txt here"}
	readKept  = Program{Python: "print(open('kept.txt').read())\n", Fake: "cat kept.txt\nprint \"\""}
	seesKept  = Program{Python: "import os\nprint(str(os.path.exists('kept.txt')).lower())\n", Fake: "exists kept.txt"}
)
