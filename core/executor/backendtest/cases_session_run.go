package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func sessionRunRules() []rule {
	return []rule{
		{"SE-16", "a command runs beside the interpreter in the same files, with a status of its own", sessionCommand},
		{"SE-17", "the timeout and the cancel of a command kill its whole process tree, and the interpreter keeps its state", sessionCommandTree},
		{"SE-18", "processes that are left running write to the present Execution; their output between two comes first in the next, marked as earlier", sessionEarlier},
		{"SE-19", "variables are listed by name, with type and a short preview", sessionVariables},
		{"SE-20", "outputs of an Execution in a Session are collected, and of changed files only those that it changed itself", sessionOutputs},
		{"SE-21", "javascript keeps its state, or is refused", sessionJavaScript},
		{"SE-22", "shell keeps its state, or is refused", sessionShell},
		{"SE-23", "FilesChanged lists the files of the Session that are new or changed since the last Execution that asked; other Executions get no list", sessionFilesChanged},
		{"SE-24", "a file that shrinks or grows while it is collected is an Artifact of its announced size, cut or padded with zeros, and a Failure of phase collect names it", sessionChangingOutputs},
		{"SE-25", "code that fails because the disk is full names config.disk_mb; code that needs too much memory is out_of_memory, names config.memory_mb and ends the interpreter", sessionLimits},
		{"SE-26", "the limit of CPU time counts anew for each Execution: code that works longer is interrupted, the Result names config.cpu_seconds, and the state is kept", sessionCPUTime},
	}
}

// interpreter returns an argv that runs p as a separate process.
func (c *Case) interpreter(p Program) []string {
	if c.suite.options.Dialect == DialectFake {
		return []string{"fake", "-c", c.in(p)}
	}
	return []string{"python3", "-c", c.in(p)}
}

func sessionCommand(c *Case) {
	o := c.open()
	c.need(c.caps().Commands, "commands")
	o.run(setHundred).succeeded()
	o.run(writeKept).succeeded()
	job := o.command(Program{
		Python: "import sys\nprint(open('kept.txt').read(), sys.argv[1])\nopen('made.txt', 'w').write('by a command')\nsys.exit(3)\n",
		Fake:   "cat kept.txt\nwrite \" \"\nprint-args\nwrite-file made.txt by a command\nexit 3",
	})
	job.Spec.Args = []string{"an argument"}
	o.finish(job).status(executor.StatusFailed).exit(3).kept().prints("here an argument\n")
	o.says(Program{Python: "print(open('made.txt').read())\n", Fake: "cat made.txt\nprint \"\""}, "by a command\n")
	o.says(showX, "100\n")
	none := c.bare()
	none.Spec = executor.Spec{Session: o.session.ID, Command: []string{"pyexec-no-such-program"}}
	o.finish(none).kept().failure(executor.PhaseStart, executor.NotFound, "pyexec-no-such-program")
	input := o.command(Program{Python: "import sys\nprint(sys.stdin.read(), end='')\n", Fake: "read-stdin"})
	c.stdin(&input, []byte("to the command"))
	o.finish(input).succeeded().prints("to the command")
	dies := o.command(Program{Python: "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", Fake: "signal KILL"})
	o.finish(dies).status(executor.StatusFailed).signal("SIGKILL").kept()
	o.says(showX, "100\n")
}

func sessionCommandTree(c *Case) {
	o := c.open()
	c.need(c.caps().Commands, "commands")
	o.run(setHundred).succeeded()
	p := Program{Python: family + "time.sleep(3600)\n", Fake: fakeFamily + "hang"}
	c.timesOut(false, func(timeout, grace time.Duration) *running {
		job := o.command(p)
		job.Spec.Args = []string{c.mark()}
		job.Limits.Timeout, job.Limits.KillGrace = timeout, grace
		return o.start(job)
	}).kept().prints("up\n")
	c.noneLeft()
	job := o.command(p)
	job.Spec.Args = []string{c.mark()}
	job.Limits.KillGrace = 200 * time.Millisecond
	r := o.start(job)
	r.says("up\n")
	r.cancel(errCancelled)
	r.wait().status(executor.StatusKilled).kept()
	c.noneLeft()
	// A command that ends by itself leaves no processes either.
	job = o.command(Program{Python: family, Fake: fakeFamily})
	job.Spec.Args = []string{c.mark()}
	o.finish(job).succeeded().kept()
	c.noneLeft()
	o.says(showX, "100\n")
}

func sessionEarlier(c *Case) {
	o := c.open()
	o.run(Program{
		Python: "import os, threading, time\ndef late():\n    while not os.path.exists('later'): time.sleep(0.02)\n    print('late', flush=True)\n    open('flag', 'w').close()\nthreading.Thread(target=late).start()\nprint('now')\n",
		Fake:   "later-when later flag late\nprint now",
	}).succeeded().prints("now\n")
	if _, err := o.write("later", 0, strings.NewReader("")); err != nil {
		c.Fatalf("WriteFile: %v", err)
	}
	o.awaitFile("flag") // what was left running has said something
	r := o.start(o.job(Program{Python: "print('next')\n", Fake: "print next"}), func(r *running) {
		r.onEmit = func(e executor.Event) error {
			if out, ok := e.Body.(executor.Output); ok && strings.Contains(string(out.Data), "late") != out.Earlier {
				c.Errorf("%q has earlier %t", out.Data, out.Earlier)
			}
			return nil
		}
	}).wait().succeeded().prints("late\nnext\n")
	if r.result.StdoutBytes != int64(len("late\nnext\n")) {
		c.Errorf("%d bytes of stdout are counted", r.result.StdoutBytes)
	}
	o.run(Program{
		Python: "def wait():\n    while not os.path.exists('go'): time.sleep(0.02)\n    print('live', flush=True)\nt = threading.Thread(target=wait)\nt.start()\n",
		Fake:   "later-when go said live",
	}).succeeded().prints("")
	o.says(Program{Python: "open('go', 'w').close()\nt.join()\nprint('end')\n", Fake: "write-file go now\nawait said\nprint end"}, "live\nend\n")
}

func sessionVariables(c *Case) {
	o := c.open()
	o.run(Program{
		Python: "b = 100\na = 'x' * 5000\nclass Bad:\n    def __repr__(self): raise RuntimeError('no')\nc = Bad()\n",
		Fake:   "set b 100\nset a " + strings.Repeat("x", 5000) + "\nset c ?",
	}).succeeded()
	var list []executor.Variable
	within(c, "Variables", func(ctx context.Context) (err error) {
		list, err = o.tools().Variables(ctx, o.session.ID)
		return err
	})
	byName := map[string]executor.Variable{}
	var order []string
	for _, v := range list {
		byName[v.Name] = v
		order = append(order, v.Name)
		if len([]rune(v.Preview)) > 200 || v.Type == "" {
			c.Errorf("variable %s of type %q has a preview of %d characters", v.Name, v.Type, len([]rune(v.Preview)))
		}
	}
	if !slices.IsSorted(order) || len(list) > 1000 {
		c.Errorf("the order is %q", order)
	}
	kind := "int"
	if c.suite.options.Dialect == DialectFake {
		kind = "str"
	}
	if b := byName["b"]; b.Type != kind || b.Preview != "100" {
		c.Errorf("b is %+v", b)
	}
	if _, ok := byName["c"]; !ok || !strings.Contains(byName["a"].Preview, "xxx") {
		c.Errorf("the variables are %q", order)
	}
	o.says(Program{Python: "print(b)\n", Fake: "get b"}, "100\n")
}

func sessionOutputs(c *Case) {
	o := c.open()
	if !c.caps().Artifacts {
		c.Skipf("the backend does not promise artifacts")
	}
	o.run(writeKept).succeeded()
	job := o.job(Program{Python: "open('out-1.txt', 'w').write('one')\nNone\n", Fake: "write-file out-1.txt one"})
	job.Spec.Outputs = []string{"out-*.txt"}
	r := o.finish(job).succeeded()
	if data, ok := r.file("out-1.txt"); !ok || string(data) != "one" || len(r.result.Artifacts) != 1 {
		c.Errorf("collected %+v", r.result.Artifacts)
	}
	job = o.job(Program{Python: "open('out-2.txt', 'w').write('two')\nNone\n", Fake: "write-file out-2.txt two"})
	job.Spec.OutputsChanged = true
	r = o.finish(job).succeeded()
	if _, ok := r.file("out-2.txt"); !ok || len(r.result.Artifacts) != 1 {
		c.Errorf("changed: %+v", r.result.Artifacts)
	}
}

func sessionFilesChanged(c *Case) {
	o := c.open()
	tell := func(job executor.Job, want ...executor.Artifact) {
		job.Spec.FilesChanged = true
		r := o.finish(job).succeeded()
		if !slices.Equal(r.result.FilesChanged, want) || r.result.FilesOmitted != 0 || len(r.result.Artifacts) != 0 {
			c.Errorf("told %v and %d more, want %v", r.result.FilesChanged, r.result.FilesOmitted, want)
		}
	}
	writes := func(name, text string) Program {
		return Program{
			Python: fmt.Sprintf("import os\nos.makedirs(os.path.dirname(%[1]q) or '.', exist_ok=True)\nopen(%[1]q, 'w').write(%[2]q)\nNone\n", name, text),
			Fake:   "write-file " + name + " " + text,
		}
	}
	if r := o.run(writes("before.txt", "x")).succeeded(); len(r.result.FilesChanged) != 0 {
		c.Errorf("told %v, and nobody asked", r.result.FilesChanged)
	}
	tell(o.job(writes("sub/b.txt", "bb")), executor.Artifact{Path: "sub/b.txt", SizeBytes: 2})
	tell(o.job(writes(".cache/x", "hidden")))
	tell(o.job(writes("a.txt", "aaa")), executor.Artifact{Path: "a.txt", SizeBytes: 3})
	// The next Execution that asks is told about all changes since the last one that asked.
	o.run(writes("unasked.txt", "u")).succeeded()
	if _, err := o.write("sent.txt", 4, strings.NewReader("sent")); err != nil {
		c.Errorf("write: %v", err)
	}
	tell(o.job(writes("a.txt", "longer")), executor.Artifact{Path: "a.txt", SizeBytes: 6},
		executor.Artifact{Path: "sent.txt", SizeBytes: 4}, executor.Artifact{Path: "unasked.txt", SizeBytes: 1})
	if err := o.remove("a.txt"); err != nil {
		c.Errorf("remove: %v", err)
	}
	tell(o.job(setHundred))
	if c.caps().Commands {
		tell(o.command(writes("c.txt", "by a command")), executor.Artifact{Path: "c.txt", SizeBytes: 12})
	}
	const extra = 3
	var many strings.Builder
	for n := range executor.MaxFilesChanged + extra {
		fmt.Fprintf(&many, "write-file many-%04d.txt x\n", n)
	}
	job := o.job(Program{
		Python: fmt.Sprintf("for n in range(%d):\n    open(f'many-{n:04}.txt', 'w').close()\n", executor.MaxFilesChanged+extra),
		Fake:   many.String(),
	})
	job.Spec.FilesChanged = true
	if r := o.finish(job).succeeded().result; len(r.FilesChanged) != executor.MaxFilesChanged || r.FilesOmitted != extra {
		c.Errorf("%d are told and %d more, want %d and %d", len(r.FilesChanged), r.FilesOmitted, executor.MaxFilesChanged, extra)
	}
}

// speaks opens a Session in a language. If the Backend does not have the language, speaks checks the refusal and ends the case.
func (c *Case) speaks(language executor.Language) *opened {
	c.need(c.caps().Sessions, "sessions")
	in := func(s *executor.Session) { s.Language, s.Spec.Language = language, language }
	if slices.Contains(c.caps().Languages, language) {
		return c.open(in)
	}
	s := c.newSession()
	in(&s)
	err := tried(c, "OpenSession", func(ctx context.Context) error {
		_, err := c.sessionsOf(c.suite.backend).OpenSession(ctx, s)
		return err
	})
	if executor.CodeOf(err) != executor.Unimplemented || !names(err, "language") {
		c.Errorf("%s, which is not promised: %v, want code unimplemented that names language", language, err)
	}
	c.Skipf("the backend does not promise %s", language)
	return nil
}

// native returns a Program in a language other than Python.
func native(text, fake string) Program { return Program{Python: text, Fake: fake} }

func sessionJavaScript(c *Case) {
	o := c.speaks(executor.LanguageJavaScript)
	o.says(native("const x = 100; let y = 1; function f() { return x + y }\n", "set x 100"), "")
	o.says(native("y = 1; console.log(f())\n", "add x 1\nget x"), "101\n")
	if shown := o.run(native("x + 1\n", "value x")).succeeded().displays(); len(shown) != 1 || !shown[0].Value || string(shown[0].Data["text/plain"]) != "101" {
		c.Errorf("the value is shown as %+v", shown)
	}
	o.says(native("const v = await Promise.resolve(7); console.log(v)\n", "print 7"), "7\n")
	o.says(native("console.log(v, require('path').basename('/a/b'))\n", "print 7 b"), "7 b\n")
	r := o.run(native("throw new Error('law-7')\n", "raise law-7")).status(executor.StatusFailed).exit(1).kept()
	if !strings.Contains(r.stderr(), "law-7") {
		c.Errorf("stderr is %q", r.stderr())
	}
	c.timesOut(false, o.limited(native("console.log('up'); while (true) {}\n", "print up\nhang"))).kept().prints("up\n")
	o.says(native("console.log(x)\n", "get x"), map[bool]string{true: "101\n", false: "100\n"}[c.suite.options.Dialect == DialectFake])
}

func sessionShell(c *Case) {
	o := c.speaks(executor.LanguageShell)
	o.says(native("x=100; mkdir -p sub && cd sub; double() { echo $(( $1 * 2 )); }\n", "set x 200"), "")
	o.says(native("double $x; basename \"$PWD\"\n", "get x\nprint sub"), "200\nsub\n")
	r := o.run(native("echo out; echo err >&2; (exit 3)\n", "print out\nprint-err err\nexit 3")).status(executor.StatusFailed).exit(3).kept().prints("out\n")
	if r.stderr() != "err\n" {
		c.Errorf("stderr is %q", r.stderr())
	}
	c.timesOut(false, o.limited(native("echo up; sleep 3600\n", "print up\nhang"))).kept().prints("up\n")
	stdin := o.job(native("read -r line; echo \"got $line\"\n", "write \"got \"\nread-line"))
	c.stdin(&stdin, []byte("a line\n"))
	o.finish(stdin).succeeded().prints("got a line\n")
	o.says(native("echo $x\n", "print 100"), fmt.Sprintln("100"))
}
