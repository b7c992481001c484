package backendtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func sessionLifeRules() []rule {
	return []rule{
		{"SE-40", "requirements of a Session are there from the beginning, and more can be added without a restart", sessionRequirements},
		{"SE-41", "a requirement that cannot be resolved is invalid, and changes nothing", sessionUnresolvable},
		{"SE-42", "nothing of a Session is visible in another: names, files, environment", sessionsApart},
		{"SE-43", "a close ends all of a Session, and is idempotent and safe for an unknown id", sessionClose},
		{"SE-44", "a Session that the backend does not hold is not_found in every method", sessionUnknown},
		{"SE-45", "a Session that outlived its backend can be adopted with its state and what runs in it, or adoption is unimplemented", sessionAdopt},
		{"SE-46", "when the plugin is killed its Sessions end and nothing of them is left, unless they can be adopted", sessionPluginKilled},
		{"SE-47", "where Attach is promised the Result of an Execution in a Session can be fetched again until the next one begins, and is the same", sessionResultAgain},
		{"SE-48", "where a memory limit holds, a Session with too little memory for its interpreter is invalid; the error names config.memory_mb with a number, and with that number the Session opens", sessionTooSmall},
		{"SE-49", "a Session whose machine takes nothing new is kept with its state until it is closed, also while nothing runs in it", sessionOutlivesDrain},
	}
}

func (c *Case) imports(q Requirement) Program {
	return Program{Python: fmt.Sprintf("import %s as m\nprint(m.__version__)\n", q.Import), Fake: "import " + q.Import}
}

func sessionRequirements(c *Case) {
	c.need(c.caps().Sessions, "sessions")
	c.need(c.caps().Requirements, "requirements")
	q := c.suite.options.Requirement
	if q.Text == "" {
		c.Skipf("the harness knows no package that can be installed")
	}
	o := c.open(func(s *executor.Session) { s.Spec.Requirements = q.Text })
	if !slices.Contains(o.Requirements, q.Resolved) {
		c.Errorf("opened with %v, want %s", o.Requirements, q.Resolved)
	}
	o.says(c.imports(q), q.Version+"\n")
	plain := c.open()
	plain.run(setHundred).succeeded()
	plain.run(c.imports(q)).status(executor.StatusFailed).exit(1)
	var all []string
	within(c, "AddRequirements", func(ctx context.Context) (err error) {
		all, err = plain.tools().AddRequirements(ctx, plain.session.ID, q.Text)
		return err
	})
	if !slices.Contains(all, q.Resolved) {
		c.Errorf("afterwards it has %v, want %s", all, q.Resolved)
	}
	plain.says(c.imports(q), q.Version+"\n")
	plain.says(showX, "100\n")
}

func sessionUnresolvable(c *Case) {
	c.need(c.caps().Sessions, "sessions")
	c.need(c.caps().Requirements, "requirements")
	const text = "no-such-package-pyexec-law==9.9.9"
	s := c.newSession()
	s.Spec.Requirements = text
	sessions := c.sessionsOf(c.suite.backend)
	err := tried(c, "OpenSession", func(ctx context.Context) error {
		_, err := sessions.OpenSession(ctx, s)
		return err
	})
	if executor.CodeOf(err) != executor.Invalid || !names(err, "requirements_txt") {
		c.Errorf("OpenSession: %v, want code invalid that names requirements_txt", err)
	}
	_, err = sessions.ListFiles(c.ctx, s.ID, "", false)
	if executor.CodeOf(err) != executor.NotFound {
		c.Errorf("a Session that was refused is there: %v", err)
	}
	o := c.open()
	o.run(setHundred).succeeded()
	err = tried(c, "AddRequirements", func(ctx context.Context) error {
		_, err := sessions.AddRequirements(ctx, o.session.ID, text)
		return err
	})
	if executor.CodeOf(err) != executor.Invalid || !names(err, "requirements_txt") {
		c.Errorf("AddRequirements: %v, want code invalid that names requirements_txt", err)
	}
	o.says(showX, "100\n")
}

func sessionsApart(c *Case) {
	a := c.open(func(s *executor.Session) { s.Spec.Env = map[string]string{"PYEXEC_LAW": "a's"} })
	b := c.open()
	a.run(setHundred).succeeded()
	a.run(writeKept).succeeded()
	b.run(showX).status(executor.StatusFailed).exit(1)
	b.says(seesKept, "false\n")
	r := b.run(Program{Python: "import os\nprint(os.environ)\n", Fake: "env"}).succeeded()
	if strings.Contains(r.stdout(), "PYEXEC_LAW") {
		c.Errorf("the environment of one Session is in another: %s", clip(r.stdout()))
	}
	if left := b.paths("", true); len(left) > 0 {
		c.Errorf("the other Session's folder holds %q", left)
	}
	// Both Sessions at once, and an Execution without a Session.
	job := a.job(upAndHang)
	job.Limits.KillGrace = awaittest.Forever
	hang := a.start(job)
	hang.says("up\n")
	b.run(Program{Python: "x = 7\n", Fake: "set x 7"}).succeeded()
	c.run(c.job(seesKept)).succeeded().prints("false\n")
	hang.cancel(errCancelled)
	hang.wait().kept()
	a.says(showX, "100\n")
	b.says(showX, "7\n")
}

// leaveProcess returns a program that starts a background process with the case's mark.
func (c *Case) leaveProcess() Program {
	return Program{
		Python: fmt.Sprintf("import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)', %q])\nprint('up', flush=True)\n", c.mark()),
		Fake:   "spawn-grandchild a descendant is still here\nprint up",
	}
}

func sessionClose(c *Case) {
	o := c.open()
	o.run(c.leaveProcess()).succeeded().prints("up\n")
	if c.suite.options.Dialect == DialectPython && c.suite.lane != LaneCheck && c.caps().LocalPath {
		// A process that was just started still has its parent's command line.
		awaittest.Until(c, "what the interpreter has started", func() bool { return len(c.marked()) > 0 })
	}
	r := o.start(o.job(deafCell))
	r.says("up\n")
	for range 2 {
		within(c, "CloseSession", func(ctx context.Context) error { return o.tools().CloseSession(ctx, o.session.ID) })
	}
	gone := o.start(o.job(showX)).wait()
	if executor.CodeOf(gone.err) != executor.NotFound || gone.hasStarted() {
		c.Errorf("code in a closed Session: %v, %s, want code not_found", gone.err, gone.verdict())
	}
	r.wait()
	if code := executor.CodeOf(r.err); r.err == nil && r.result.Status == executor.StatusSucceeded || code == executor.Internal {
		c.Errorf("what ran in it ended with %s, %v", r.verdict(), r.err)
	}
	c.noneLeft()
	within(c, "CloseSession of an unknown one", func(ctx context.Context) error { return o.tools().CloseSession(ctx, c.newSession().ID) })
	// The id can be used again, and the new Session has nothing of the old one.
	within(c, "OpenSession", func(ctx context.Context) error {
		_, err := o.tools().OpenSession(ctx, o.session)
		return err
	})
	o.run(showX).status(executor.StatusFailed).exit(1)
	if left := o.paths("", true); len(left) > 0 {
		c.Errorf("files are left: %q", left)
	}
}

func sessionUnknown(c *Case) {
	c.need(c.caps().Sessions, "sessions")
	b := c.sessionsOf(c.suite.backend)
	id := c.newSession().ID
	for what, call := range map[string]func(context.Context) error{
		"RestartSession":  func(ctx context.Context) error { return b.RestartSession(ctx, id, false) },
		"Variables":       func(ctx context.Context) error { _, err := b.Variables(ctx, id); return err },
		"AddRequirements": func(ctx context.Context) error { _, err := b.AddRequirements(ctx, id, "a"); return err },
		"ListFiles":       func(ctx context.Context) error { _, err := b.ListFiles(ctx, id, "", false); return err },
		"ReadFile":        func(ctx context.Context) error { _, _, err := b.ReadFile(ctx, id, "a"); return err },
		"WriteFile": func(ctx context.Context) error {
			_, err := b.WriteFile(ctx, id, executor.File{Path: "a", SizeBytes: 1}, strings.NewReader("a"))
			return err
		},
		"RemoveFile": func(ctx context.Context) error { return b.RemoveFile(ctx, id, "a") },
	} {
		if err := tried(c, what, call); executor.CodeOf(err) != executor.NotFound || names(err, "path") {
			c.Errorf("%s: %v, want code not_found that names no path", what, err)
		}
	}
	job := c.bare()
	job.Spec = executor.Spec{Session: id, Code: c.in(showX)}
	if r := c.start(job).wait(); executor.CodeOf(r.err) != executor.NotFound || r.hasStarted() {
		c.Errorf("Run: %v, %s, want code not_found", r.err, r.verdict())
	}
}

func sessionAdopt(c *Case) {
	o := c.open()
	want := executor.Unimplemented
	if c.caps().Attach {
		want = executor.NotFound
	}
	unknown := c.newSession()
	if err := o.adopt(unknown, []byte("unknown")); executor.CodeOf(err) != want {
		c.Errorf("AdoptSession of an unknown one: %v, want code %s", err, want)
	}
	if !c.caps().Attach {
		return
	}
	if c.suite.successor == nil {
		c.Skipf("the harness cannot let a backend die and start its successor")
	}
	o.run(setHundred).succeeded()
	o.run(writeKept).succeeded()
	job := o.job(Program{
		Python: "import os, time\nprint('one', flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.02)\n    print('.', flush=True)\nx = x + 1\nprint('two')\n",
		Fake:   "print one\ntick go\nadd x 1\nprint two",
	})
	first := o.start(job)
	first.says("one\n")
	c.suite.backend = c.suite.successor()
	o.backend = c.suite.backend
	first.wait()
	if executor.CodeOf(first.err) != executor.Unavailable {
		c.Fatalf("the backend died and Run returned %v, %s", first.err, first.verdict())
	}
	if early := o.start(o.job(showX)).wait(); executor.CodeOf(early.err) != executor.NotFound {
		c.Errorf("before it is adopted: %v, %s, want code not_found", early.err, early.verdict())
	}
	for range 2 {
		if err := o.adopt(o.session, o.Handle); err != nil {
			c.Fatalf("AdoptSession: %v", err)
		}
	}
	first.mu.Lock()
	from := executor.Resume{Handle: first.journal.started[0].Handle, Stdout: first.next[executor.Stdout], Stderr: first.next[executor.Stderr]}
	first.mu.Unlock()
	second := c.begin(job, runAttached(c, from), func(r *running) {
		r.started = first.started
		r.next[executor.Stdout], r.next[executor.Stderr] = from.Stdout, from.Stderr
	})
	second.says(".\n.\n") // some of it was said while the execution was attached to
	if _, err := o.write("go", 0, strings.NewReader("")); err != nil {
		c.Errorf("WriteFile: %v", err)
	}
	second.wait().succeeded()
	got := first.stdout() + second.stdout()
	if ticks := strings.Count(got, ".\n"); got != "one\n"+strings.Repeat(".\n", ticks)+"two\n" {
		c.Errorf("both logs together say %q", clip(got))
	}
	o.says(showX, "101\n")
	o.says(readKept, "here\n")
}

func sessionResultAgain(c *Case) {
	c.need(c.caps().Attach, "attach")
	o := c.open()
	o.run(setHundred).succeeded()
	r := o.run(showX).succeeded()
	r.again()
	if c.suite.successor != nil {
		c.suite.backend = c.suite.successor()
		o.backend = c.suite.backend
		if err := o.adopt(o.session, o.Handle); err != nil {
			c.Fatalf("AdoptSession: %v", err)
		}
		r.again()
	}
	o.says(showX, "100\n")
}

func (o *opened) adopt(s executor.Session, handle []byte) error {
	return tried(o.c, "AdoptSession", func(ctx context.Context) error {
		_, err := o.tools().AdoptSession(ctx, s, handle)
		return err
	})
}

func sessionPluginKilled(c *Case) {
	c.need(c.caps().Sessions, "sessions")
	if c.suite.victim == nil {
		c.Skipf("there is no process to kill in this lane")
	}
	b, kill := c.suite.victim()
	o := c.openOn(b)
	o.run(setHundred).succeeded()
	o.run(c.leaveProcess()).succeeded()
	r := o.start(o.job(upAndHang))
	r.says("up\n")
	kill()
	r.wait()
	if executor.CodeOf(r.err) != executor.Unavailable {
		c.Errorf("Run returned %v and %s, want code unavailable", r.err, r.verdict())
	}
	next, _ := c.suite.victim()
	o.backend = next
	if early := o.start(o.job(showX)).wait(); executor.CodeOf(early.err) != executor.NotFound {
		c.Errorf("in the next process: %v, %s, want code not_found", early.err, early.verdict())
	}
	err := o.adopt(o.session, o.Handle)
	switch code := executor.CodeOf(err); {
	case err == nil && c.caps().Attach:
		o.close()
	case !c.caps().Attach && code != executor.Unimplemented, c.caps().Attach && code != executor.NotFound:
		c.Errorf("AdoptSession in the next process: %v", err)
	}
	c.clearsUp()
}

// minForm matches the number in a refusal.
var minForm = regexp.MustCompile(`at least ([0-9]+)`)

func sessionTooSmall(c *Case) {
	c.need(c.caps().Sessions, "sessions")
	c.need(c.caps().Memory, "memory")
	s := c.newSession()
	s.Limits.MemoryBytes = 1 << 20
	err := tried(c, "OpenSession", func(ctx context.Context) error {
		_, err := c.sessionsOf(c.suite.backend).OpenSession(ctx, s)
		return err
	})
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "config.memory_mb" {
		c.Fatalf("a session with 1 MB: %v, want invalid for config.memory_mb", err)
	}
	m := minForm.FindStringSubmatch(e.Fields[0].Message)
	if m == nil {
		c.Fatalf("%q names no number that is enough", e.Fields[0].Message)
	}
	minMB, err := strconv.ParseInt(m[1], 10, 32)
	if err != nil || minMB < 2 {
		c.Fatalf("%q: %v", e.Fields[0].Message, err)
	}
	c.open(func(s *executor.Session) { s.Limits.MemoryBytes = minMB << 20 })
}
