package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// sessionRules returns the rules of Backends with Capabilities.Sessions. For other Backends the cases are skipped. BE-71 checks
// that those refuse a Spec with a Session.
func sessionRules() []rule {
	return slices.Concat([]rule{
		{"SE-01", "a Session opens with a ready interpreter, and reports what it has", sessionOpens},
		{"SE-02", "names, values and definitions of an Execution are kept for the next", sessionKeepsState},
		{"SE-03", "a side effect happens once: nothing is run again", sessionRunsOnce},
		{"SE-04", "Executions in a Session never run at the same time: another is refused as conflict, or waits", sessionOneAtATime},
		{"SE-05", "an uncaught error is a traceback on stderr and exit code 1, and keeps the state", sessionError},
		{"SE-06", "an exit ends the Execution with its code, and keeps the state", sessionExit},
		{"SE-07", "the value of the last expression is displayed, if there is one", sessionValue},
		{"SE-08", "a value too large to display is cut and marked, and displays beyond the bound are counted", sessionDisplayCaps},
		{"SE-09", "standard input reaches the code of its own Execution, whole, and ends", sessionStdin},
		{"SE-10", "the timeout interrupts the code, and the state is kept", sessionTimeout},
		{"SE-11", "cancel interrupts the code, and the state is kept", sessionCancel},
		{"SE-12", "code that ignores the interrupt is ended after the grace: the interpreter is restarted and the Result says so", sessionDeaf},
		{"SE-13", "an interpreter that dies ends its Execution with its signal, and the Session is lost until it is restarted", sessionDies},
		{"SE-14", "a restart forgets the state and keeps the files, a wipe removes them", sessionRestart},
		{"SE-15", "a restart kills the running Execution", sessionRestartRunning},
		{"SE-27", "a program outside of a Session that asks for it displays what a cell does, and is a program in all else", displayingProgram},
	}, sessionRunRules(), sessionFileRules(), sessionLifeRules())
}

func sessionOpens(c *Case) {
	o := c.open(func(s *executor.Session) { s.Spec.Env = map[string]string{"PYEXEC_LAW": "of the session"} })
	if o.PythonVersion == "" || len(o.Requirements) > 0 || len(o.Handle) > 4<<10 || c.caps().Attach && len(o.Handle) == 0 {
		c.Errorf("opened: python %q, requirements %v, a handle of %d bytes", o.PythonVersion, o.Requirements, len(o.Handle))
	}
	o.says(Program{Python: "import sys\nprint('%d.%d.%d' % sys.version_info[:3])\n", Fake: "python"}, o.PythonVersion+"\n")
	r := o.run(Program{Python: "import os\nfor k in sorted(os.environ): print(repr(k + '=' + os.environ[k]))\n", Fake: "env"}).succeeded()
	if !strings.Contains(r.stdout(), "PYEXEC_LAW=of the session") || strings.Contains(r.stdout(), canary) {
		c.Errorf("the environment is %s", r.stdout())
	}
	o.says(Program{
		Python: "import os\nprint(os.path.realpath(os.getcwd()) == os.path.realpath(os.environ['HOME']))\n",
		Fake:   "print True",
	}, "True\n")
	err := tried(c, "OpenSession", func(ctx context.Context) error {
		_, err := o.tools().OpenSession(ctx, o.session)
		return err
	})
	if executor.CodeOf(err) != executor.Conflict {
		c.Errorf("the same id opened again: %v, want code conflict", err)
	}
}

func sessionKeepsState(c *Case) {
	o := c.open()
	o.says(setHundred, "").kept()
	o.says(plusOne, "101\n").kept()
	o.says(showX, "101\n")
	o.run(Program{
		Python: "import json as j\ndef twice(n):\n    return 2 * n\nclass P:\n    y = 3\np = P()\np.y = 4\n",
		Fake:   "set twice 8",
	}).succeeded()
	o.says(Program{Python: "print(j.dumps(twice(p.y)))\n", Fake: "get twice"}, "8\n")
}

func sessionRunsOnce(c *Case) {
	o := c.open()
	o.run(Program{
		Python: "with open('count', 'a') as f: f.write('.')\nimport itertools\ncounter = itertools.count(1)\nNone\n",
		Fake:   "write-file count .\nset counter 0",
	}).succeeded()
	for i := 1; i <= 3; i++ {
		o.says(Program{Python: "print(next(counter), open('count').read())\n", Fake: "add counter 1\nget counter"},
			map[bool]string{true: fmt.Sprintf("%d\n", i), false: fmt.Sprintf("%d .\n", i)}[c.suite.options.Dialect == DialectFake])
	}
}

func sessionOneAtATime(c *Case) {
	const submitters = 16
	o := c.open()
	o.run(Program{Python: "n = 0\n", Fake: "set n 0"}).succeeded()
	count := Program{Python: "import time\nv = n\ntime.sleep(0.02)\nn = v + 1\nprint('done')\n", Fake: "sleep 20ms\nadd n 1\nprint done"}
	var all []*running
	for range submitters {
		all = append(all, o.start(o.job(count)))
	}
	succeeded := 0
	for _, r := range all {
		r.wait()
		switch {
		case executor.CodeOf(r.err) == executor.Conflict && !r.hasStarted():
		case r.err != nil:
			c.Errorf("Run returned %v", r.err)
		default:
			r.succeeded().prints("done\n")
			succeeded++
		}
	}
	if succeeded == 0 {
		c.Fatalf("none of %d ran", submitters)
	}
	o.says(Program{Python: "print(n)\n", Fake: "get n"}, fmt.Sprintf("%d\n", succeeded))
}

func sessionError(c *Case) {
	o := c.open()
	o.run(setHundred).succeeded()
	r := o.run(Program{Python: "def f():\n    raise KeyError('law-7')\n\nf()\n", Fake: "raise \"KeyError: 'law-7'\""}).status(executor.StatusFailed).exit(1).kept()
	if !strings.Contains(r.stderr(), "Traceback") || !strings.Contains(r.stderr(), "law-7") {
		c.Errorf("stderr is %q", r.stderr())
	}
	if c.suite.options.Dialect == DialectPython && !strings.Contains(r.stderr(), "raise KeyError('law-7')") {
		c.Errorf("the traceback does not show the user's line: %q", r.stderr())
	}
	bad := o.run(Program{Python: "def f(:\n", Fake: "no-such-directive"}).status(executor.StatusFailed).exit(1).kept()
	if !strings.Contains(bad.stderr(), "SyntaxError") {
		c.Errorf("stderr is %q", bad.stderr())
	}
	o.run(undefined).status(executor.StatusFailed).exit(1)
	o.says(showX, "100\n")
}

func sessionExit(c *Case) {
	o := c.open()
	o.run(setHundred).succeeded()
	o.run(Program{Python: "import sys\nprint('before')\nsys.exit(7)\n", Fake: "print before\nexit 7"}).status(executor.StatusFailed).exit(7).kept().prints("before\n")
	o.run(Program{Python: "import sys\nsys.exit()\n", Fake: "exit 0"}).succeeded().kept()
	o.says(showX, "100\n")
}

func sessionValue(c *Case) {
	o := c.open()
	shown := o.run(Program{Python: "x = 40\nx + 2\n", Fake: "set x 42\nvalue x"}).succeeded().prints("").displays()
	if len(shown) != 1 || !shown[0].Value || shown[0].Truncated || string(shown[0].Data["text/plain"]) != "42" {
		c.Errorf("the value is shown as %+v", shown)
	}
	if shown := o.run(Program{Python: "x = 5\nNone\n", Fake: "set x 5"}).succeeded().displays(); len(shown) > 0 {
		c.Errorf("without a value, %+v is shown", shown)
	}
	shown = o.run(Program{
		Python: "class R:\n    def _repr_html_(self): return '<b>law</b>'\n    def __repr__(self): return 'R'\nR()\n",
		Fake:   "display text/html <b>law</b>",
	}).succeeded().displays()
	if len(shown) != 1 || string(shown[0].Data["text/html"]) != "<b>law</b>" {
		c.Errorf("a rich value is shown as %+v", shown)
	}
}

func displayingProgram(c *Case) {
	c.need(c.caps().Sessions && c.caps().Artifacts, "sessions and artifacts")
	job := c.job(Program{
		Python: "import sys\nclass R:\n    def _repr_html_(self): return '<b>law</b>'\n    def __repr__(self): return 'R'\n" +
			"display(R())\nopen('made', 'w').write(sys.stdin.read())\nprint(__name__, sys.argv[1:])\n40 + 2\n",
		Fake: "display text/html <b>law</b>\nset x 42\nwrite-file made law\nprint __main__ ['a']\nvalue x",
	})
	job.Spec.Code = executor.DisplayingProgram(job.Spec.Code)
	job.Spec.Args, job.Spec.OutputsChanged = []string{"a"}, true
	c.stdin(&job, []byte("law"))
	r := c.run(job).succeeded().exit(0).prints("__main__ ['a']\n")
	if shown := r.displays(); len(shown) != 2 || string(shown[0].Data["text/html"]) != "<b>law</b>" || shown[0].Value || !shown[1].Value || string(shown[1].Data["text/plain"]) != "42" {
		c.Errorf("it shows %+v", shown)
	}
	if len(r.result.Artifacts) != 1 || r.result.Artifacts[0].Path != "made" {
		c.Errorf("its files are %+v", r.result.Artifacts)
	}
	failed := c.job(Program{Python: "import sys\ndisplay(1)\nsys.exit(7)\n", Fake: "display text/plain 1\nexit 7"})
	failed.Spec.Code = executor.DisplayingProgram(failed.Spec.Code)
	if shown := c.run(failed).status(executor.StatusFailed).exit(7).displays(); len(shown) != 1 {
		c.Errorf("a program that fails shows %d", len(shown))
	}
}

func sessionDisplayCaps(c *Case) {
	o := c.open()
	shown := o.run(Program{
		Python: "class R:\n    def _repr_html_(self): return 'x' * (3 << 20)\n    def __repr__(self): return 'R'\nR()\n",
		Fake:   "display-size text/html 3MB",
	}).succeeded().displays()
	if len(shown) != 1 || !shown[0].Truncated || len(shown[0].Data["text/html"]) > executor.MaxDisplayData {
		c.Errorf("a value of 3 MiB is shown %d times", len(shown))
	}
	const extra = 7
	r := o.run(Program{
		Python: fmt.Sprintf("for i in range(%d): display(i)\n", executor.MaxDisplays+extra),
		Fake:   strings.Repeat("display text/plain 1\n", executor.MaxDisplays+extra),
	}).succeeded()
	if got := r.displays(); len(got) != executor.MaxDisplays || r.result.DisplaysDropped != extra {
		c.Errorf("%d are shown and %d dropped, want %d and %d", len(got), r.result.DisplaysDropped, executor.MaxDisplays, extra)
	}
	if shown := o.run(Program{Python: "display(1)\n", Fake: "display text/plain 1"}).succeeded().displays(); len(shown) != 1 {
		c.Errorf("the next Execution shows %d", len(shown))
	}
}

func sessionStdin(c *Case) {
	o := c.open()
	read := Program{Python: "import sys\nprint(sys.stdin.read(), end='')\n", Fake: "read-stdin"}
	for _, text := range []string{"first\nline two", "", "second, \u00e4\u4e16"} {
		job := o.job(read)
		if text != "" {
			c.stdin(&job, []byte(text))
		}
		o.finish(job).succeeded().prints(text)
	}
	line := o.job(Program{Python: "print(input())\n", Fake: "read-line"})
	c.stdin(&line, []byte("one\ntwo\n"))
	o.finish(line).succeeded().prints("one\n")
	o.says(read, "")        // input that was not read does not go to the next Execution
	again := o.job(Program{ // as a pipe, it can be opened by its name, and again
		Python: "for _ in range(2):\n    print(open('/dev/stdin').read(), end='')\n",
		Fake:   "read-stdin",
	})
	c.stdin(&again, []byte("by name"))
	o.finish(again).succeeded().prints("by name")
}

func sessionTimeout(c *Case) {
	o := c.open()
	o.run(setHundred).succeeded()
	r := c.byTheClock(false, o.limited(upAndHang)).kept().prints("up\n")
	r.inTime(r.job.Limits.Timeout)
	c.timesOut(false, o.limited(Program{Python: "print('up', flush=True)\nwhile True: pass\n", Fake: "print up\nbusy 1h"})).kept()
	o.says(plusOne, "101\n")
}

func sessionCancel(c *Case) {
	o := c.open()
	o.run(setHundred).succeeded()
	job := o.job(upAndHang)
	job.Limits.KillGrace = awaittest.Forever
	r := o.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).kept()
	o.says(plusOne, "101\n")
	gone := o.job(plusOne)
	unstarted := o.start(gone, func(r *running) { r.cancel(errCancelled) }).wait().status(executor.StatusKilled)
	if unstarted.hasStarted() {
		c.Errorf("code was run whose ctx had ended")
	}
	o.says(showX, "101\n")
}

func sessionDeaf(c *Case) {
	o := c.open()
	o.run(setHundred).succeeded()
	o.run(writeKept).succeeded()
	c.timesOut(true, o.limited(deafCell)).state(executor.SessionStateRestarted)
	o.run(Program{Python: "print(x)\n", Fake: "get x"}).status(executor.StatusFailed).exit(1).kept()
	o.says(readKept, "here\n")
	job := o.job(deafCell)
	job.Limits.KillGrace = 300 * time.Millisecond
	r := o.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).state(executor.SessionStateRestarted)
	o.says(readKept, "here\n")
}

func sessionDies(c *Case) {
	o := c.open()
	o.run(setHundred).succeeded()
	o.run(writeKept).succeeded()
	r := o.run(Program{
		Python: "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n", Fake: "print last words\nsignal KILL",
	}).status(executor.StatusFailed).signal("SIGKILL").state(executor.SessionStateLost)
	r.prints("last words\n")
	dead := o.start(o.job(showX)).wait()
	if dead.err == nil && dead.result.Status == executor.StatusSucceeded || dead.hasStarted() {
		c.Errorf("code ran in a dead interpreter: %s, %q", dead.verdict(), dead.stdout())
	}
	if dead.err == nil {
		dead.state(executor.SessionStateLost)
	}
	within(c, "RestartSession", func(ctx context.Context) error { return o.tools().RestartSession(ctx, o.session.ID, false) })
	o.run(showX).status(executor.StatusFailed).exit(1).kept()
	o.says(readKept, "here\n")
}

func sessionRestart(c *Case) {
	o := c.open()
	for _, wipe := range []bool{false, true} {
		o.run(setHundred).succeeded()
		o.run(writeKept).succeeded()
		within(c, "RestartSession", func(ctx context.Context) error { return o.tools().RestartSession(ctx, o.session.ID, wipe) })
		o.run(showX).status(executor.StatusFailed).exit(1).kept()
		o.says(seesKept, fmt.Sprintf("%t\n", !wipe))
	}
}

func sessionRestartRunning(c *Case) {
	o := c.open()
	r := o.start(o.job(deafCell))
	r.says("up\n")
	within(c, "RestartSession", func(ctx context.Context) error { return o.tools().RestartSession(ctx, o.session.ID, false) })
	r.wait().status(executor.StatusKilled)
	o.says(Program{Python: "print('again')\n", Fake: "print again"}, "again\n")
}
