package backendtest

import (
	"fmt"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

func programRules() []rule {
	return []rule{
		{"BE-01", "what a program prints arrives on its own stream, and exit code 0 is success", hello},
		{"BE-02", "the program is the named entrypoint, else main.py, else __main__.py, else the first .py of the archive", entrypoints},
		{"BE-03", "code runs as main.py in the work folder, beside the workspace's files", code},
		{"BE-04", "exit codes come back as they are", exitCodes},
		{"BE-05", "death by a signal has the signal's name and no exit code", signals},
		{"BE-06", "an uncaught exception is a traceback on stderr and exit code 1", uncaught},
		{"BE-07", "any argv can be run where commands are promised", commands},
		{"BE-08", "an argv that does not exist fails in phase start as not_found, unlike a program that exits with 127", commandNotFound},
		{"BE-09", "an argv that cannot be executed fails in phase start as invalid", commandNotExecutable},
		{"BE-18", "an entrypoint that was chosen among several .py files is named first on stderr, and an only one is not", chosenEntrypoint},
	}
}

var helloProgram = Program{
	Python: `
import sys
print("hello")
print("oops", file=sys.stderr)
`,
	Fake: `
print hello
print-err oops
`,
}

func hello(c *Case) {
	r := c.program(helloProgram).succeeded().exit(0).prints("hello\n")
	if r.stderr() != "oops\n" {
		c.Errorf("stderr is %q", r.stderr())
	}
	if !r.hasStarted() {
		c.Errorf("Started did not come")
	}
	if r.result.Failure != nil {
		c.Errorf("a Failure: %+v", r.result.Failure)
	}
}

// say returns a program that prints one word.
func (c *Case) say(word string) string {
	return c.in(Program{Python: fmt.Sprintf("print(%q)\n", word), Fake: "print " + word + "\n"})
}

func entrypoints(c *Case) {
	for _, e := range []struct {
		what       string
		names      []string
		entrypoint string
		want       string
	}{
		{"main.py wins", []string{"a.py", "__main__.py", "main.py"}, "", "main.py"},
		{"__main__.py is next", []string{"a.py", "sub/main.py", "__main__.py"}, "", "__main__.py"},
		{"then the first .py of the archive", []string{"notes.txt", "z/zz.py", "a.py"}, "", "z/zz.py"},
		{"a name may begin with ./", []string{"./a.py", "./main.py"}, "", "./main.py"},
		{"the one named wins", []string{"main.py", "sub/b.py"}, "sub/b.py", "sub/b.py"},
	} {
		var entries []entry
		for _, name := range e.names {
			entries = append(entries, entry{name: name, text: c.say(name)})
		}
		job := c.bare()
		job.Spec.Entrypoint = e.entrypoint
		c.workspace(&job, archive(entries...))
		r := c.run(job)
		if r.stdout() != e.want+"\n" {
			c.Errorf("%s: of %v, %q ran (%s)", e.what, e.names, r.stdout(), r.verdict())
		}
	}
	none := c.bare()
	c.workspace(&none, archive(entry{name: "notes.txt", text: "nothing to run"}))
	c.run(none).failure(executor.PhasePrepare, executor.Invalid)
	missing := c.bare()
	missing.Spec.Entrypoint = "absent.py"
	c.workspace(&missing, archive(entry{name: "main.py", text: c.say("main.py")}))
	c.run(missing).failure(executor.PhasePrepare, executor.Invalid, "absent.py")
	outside := c.bare()
	outside.Spec.Entrypoint = "../outside.py"
	c.workspace(&outside, archive(entry{name: "main.py", text: c.say("main.py")}))
	if r := c.start(outside).wait(); executor.CodeOf(r.err) != executor.Invalid {
		r.failure(executor.PhasePrepare, executor.Invalid, "../outside.py")
	}
}

// chosenEntrypoint runs archives with one and with several candidates. If there are several, stderr begins with a line that
// names the chosen file.
func chosenEntrypoint(c *Case) {
	program := c.in(Program{Python: "import sys\nprint('ran', file=sys.stderr)\n", Fake: "print-err ran\n"})
	for _, e := range []struct {
		names      []string
		entrypoint string
		want       string
	}{
		{[]string{"notes.txt", "z/zz.py", "a.py"}, "", "z/zz.py"},
		{[]string{"-b.py", "a.py", "main.py/main.txt"}, "", "-b.py"},
		{[]string{"line\nbreak.py", "a.py"}, "", `"line\nbreak.py"`},
		{[]string{"a.py", "z/zz.py"}, "z/zz.py", ""},
		{[]string{"a.py", "main.py"}, "", ""},
		{[]string{"a.py", "__main__.py"}, "", ""},
		{[]string{"a.py", "notes.txt", "./a.py"}, "", ""},
	} {
		var entries []entry
		for _, name := range e.names {
			entries = append(entries, entry{name: name, text: program})
		}
		job := c.bare()
		job.Spec.Entrypoint = e.entrypoint
		c.workspace(&job, archive(entries...))
		r := c.run(job).succeeded()
		line, rest, more := strings.Cut(r.stderr(), "\n")
		switch {
		case e.want == "" && r.stderr() != "ran\n":
			c.Errorf("of %q, entrypoint %q: stderr is %q", e.names, e.entrypoint, r.stderr())
		case e.want != "" && (!more || !strings.HasPrefix(line, e.want+" runs: ") || rest != "ran\n"):
			c.Errorf("of %q: stderr is %q, want a line that begins with %q, and then the program's own", e.names, r.stderr(), e.want+" runs: ")
		}
	}
}

func code(c *Case) {
	job := c.job(Program{
		Python: `
import os, sys
print(sys.argv[0].rsplit("/", 1)[-1])
print(open("data/value.txt").read(), end="")
import helper
print(helper.word)
`,
		Fake: `
argv0
cat data/value.txt
cat helper.py
`,
	})
	helper := c.in(Program{Python: "word = 'helped'\n", Fake: "helped\n"})
	c.workspace(&job, archive(entry{name: "data/value.txt", text: "42\n"}, entry{name: "helper.py", text: helper}))
	c.run(job).succeeded().prints("main.py\n42\nhelped\n")

	clash := c.job(helloProgram)
	c.workspace(&clash, archive(entry{name: "main.py", text: c.say("mine")}))
	c.run(clash).failure(executor.PhasePrepare, executor.Invalid, "main.py")

	// The current folder of a program in a sub-folder is the root, and the program can import its siblings.
	sub := c.bare()
	sub.Spec.Entrypoint = "sub/prog.py"
	c.workspace(&sub, archive(
		entry{name: "sub/prog.py", text: c.in(Program{
			Python: "import sibling\nprint(sibling.word, open('top.txt').read())\n",
			Fake:   "write \"near \"\ncat top.txt\nprint \"\"\n",
		})},
		entry{name: "sub/sibling.py", text: c.in(Program{Python: "word = 'near'\n", Fake: "#"})},
		entry{name: "top.txt", text: "top"},
	))
	c.run(sub).succeeded().prints("near top\n")
}

func exitCodes(c *Case) {
	for _, code := range []int{0, 1, 3, 126, 127, 255} {
		r := c.program(Program{
			Python: fmt.Sprintf("import sys\nsys.exit(%d)\n", code),
			Fake:   fmt.Sprintf("exit %d", code),
		}).exit(code)
		if want := executor.StatusFailed; code != 0 {
			r.status(want)
		} else {
			r.succeeded()
		}
		if r.result.Failure != nil {
			c.Errorf("exit code %d of the program itself came with a Failure: %+v", code, r.result.Failure)
		}
	}
}

func signals(c *Case) {
	for _, name := range []string{"SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGUSR1"} {
		r := c.program(Program{
			Python: fmt.Sprintf("import os, signal\nos.kill(os.getpid(), signal.%s)\n", name),
			Fake:   "signal " + name,
		}).status(executor.StatusFailed).signal(name)
		if r.result.Failure != nil {
			c.Errorf("%s of the program itself came with a Failure: %+v", name, r.result.Failure)
		}
	}
}

func uncaught(c *Case) {
	r := c.program(Program{
		Python: "raise RuntimeError('it went wrong')\n",
		Fake:   "raise it went wrong",
	}).status(executor.StatusFailed).exit(1).prints("")
	for _, part := range []string{"Traceback", "RuntimeError: it went wrong", "main.py"} {
		if !strings.Contains(r.stderr(), part) {
			c.Errorf("stderr lacks %q: %q", part, r.stderr())
		}
	}
}

// command returns a Job with an argv. The fake has its own argv.
func (c *Case) command(real, fake []string) executor.Job {
	job := c.bare()
	job.Spec.Command = real
	if c.suite.options.Dialect == DialectFake {
		job.Spec.Command = fake
	}
	return job
}

func commands(c *Case) {
	job := c.command(
		[]string{"sh", "-c", `printf '%s\n' "$1" "$2"; exit 127`, "sh", "one"},
		[]string{"fake", "-c", "print-args\nexit 127", "one"})
	job.Spec.Args = []string{"two  three"}
	if !c.caps().Commands {
		c.refused(job, "command")
		return
	}
	r := c.run(job).status(executor.StatusFailed).exit(127).prints("one\ntwo  three\n")
	if r.result.Failure != nil {
		c.Errorf("the program's own exit code 127 came with a Failure: %+v", r.result.Failure)
	}
	tool := c.command([]string{"./tool"}, []string{"./tool"})
	c.workspace(&tool, archive(entry{name: "tool", mode: 0o755, text: c.in(Program{
		Python: "#!/bin/sh\necho tool\n",
		Fake:   "#!fake\nprint tool\n",
	})}))
	c.run(tool).succeeded().prints("tool\n")
}

func commandNotFound(c *Case) {
	c.need(c.caps().Commands, "commands")
	for _, argv := range [][]string{{"pyexec-no-such-program"}, {"./no-such-file"}, {"/no/such/folder/program", "arg"}} {
		job := c.bare()
		job.Spec.Command = argv
		c.run(job).failure(executor.PhaseStart, executor.NotFound, argv[0])
	}
}

func commandNotExecutable(c *Case) {
	c.need(c.caps().Commands, "commands")
	for _, tool := range []entry{
		{name: "tool", text: "#!/bin/sh\necho never\n", mode: 0o644},
		{name: "tool", text: "\x00\x01\x02 not a program", mode: 0o755},
	} {
		job := c.bare()
		job.Spec.Command = []string{"./tool"}
		c.workspace(&job, archive(tool))
		c.run(job).failure(executor.PhaseStart, executor.Invalid, "./tool")
	}
}
