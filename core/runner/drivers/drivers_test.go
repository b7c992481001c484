package drivers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
	"github.com/python-executor/python-executor/core/runner/drivers"
)

// interpreter is one that is spoken to without the runner.
type interpreter struct {
	driver  drivers.Driver
	control *os.File
	answers *bufio.Scanner
	n       int64
}

// start runs a driver in argv, whose output goes to the file it returns, until it is ready.
func start(t *testing.T, language executor.Language, argv ...string) (*interpreter, string) {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil && argv[0] != needtest.Node {
		t.Fatalf("there is no %s here", argv[0]) // `make test` needs it itself
	}
	needtest.Need(t, err == nil, needtest.Node, "no program of that name")
	argv[0] = path
	d, err := drivers.For(language, argv)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control") //nolint:gosec // descriptors
	t.Cleanup(func() { ours.Close() })
	// A channel that nobody answers on ends the test, not the test's patience.
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	context.AfterFunc(awaittest.Context(t), func() { conn.Close() })

	dir := t.TempDir()
	output, err := os.Create(dir + "/output")
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:], d.Command...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	cmd.ExtraFiles = []*os.File{theirs} // descriptor 3
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	for name, value := range d.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
	theirs.Close()

	i := &interpreter{driver: d, control: ours, answers: bufio.NewScanner(conn)}
	i.answers.Buffer(nil, 16<<20)
	i.write(t, d.First)
	i.tell(t, drivers.Operation{Op: "start", MaxData: executor.MaxDisplayData, MaxDisplays: executor.MaxDisplays})
	i.hear(t, "ready")
	return i, output.Name()
}

func (i *interpreter) write(t *testing.T, raw []byte) {
	t.Helper()
	if _, err := i.control.Write(raw); err != nil {
		t.Fatal(err)
	}
}

func (i *interpreter) tell(t *testing.T, o drivers.Operation) {
	t.Helper()
	raw, err := i.driver.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	i.write(t, raw)
}

// hear returns the next answer of a kind; others that come before are dropped.
func (i *interpreter) hear(t *testing.T, op string) drivers.Answer {
	t.Helper()
	for {
		if a := i.next(t); a.Op == op {
			return a
		}
	}
}

func (i *interpreter) next(t *testing.T) (a drivers.Answer) {
	t.Helper()
	if !i.answers.Scan() {
		t.Fatalf("no answer came: %v", i.answers.Err())
	}
	if err := json.Unmarshal(i.answers.Bytes(), &a); err != nil {
		t.Fatalf("%q: %v", i.answers.Text(), err)
	}
	return a
}

// run runs a cell and returns the driver's account of it.
func (i *interpreter) run(t *testing.T, code string) drivers.Answer {
	t.Helper()
	i.n++
	i.tell(t, drivers.Operation{Op: "cell", N: i.n, Count: i.n, Code: code})
	a := i.hear(t, "done")
	if a.N != i.n {
		t.Fatalf("cell %d ended as %d", i.n, a.N)
	}
	return a
}

// What a driver is told arrives as it was, whatever is in it, and state lasts from cell to cell.
func TestADriverRunsCells(t *testing.T) {
	hostile := "back\\slash \\n \\0101 %s %% $HOME `x` \"double\" 'single' ünïcödé 🐍\ttab\r"
	python, _ := json.Marshal(hostile) // a literal in Python and JavaScript, too
	shell := "'" + strings.ReplaceAll(hostile, "'", `'\''`) + "'"
	for _, l := range []struct {
		language   executor.Language
		argv       []string
		set, write string
		fail       string
		code       int
	}{
		{executor.LanguagePython, []string{"python3", "-u"}, "x = " + string(python), "import sys\nsys.stdout.write(x + '\\n\\n')\n\n", "raise ValueError(1)", 1},
		{executor.LanguageJavaScript, []string{"node"}, "const x = " + string(python), "process.stdout.write(x +\n'\\n\\n')\n\n", "throw new Error('1')", 1},
		{executor.LanguageShell, []string{"bash"}, "x=" + shell, "printf '%s\n\n' \"$x\"\n\n", "(exit 7)", 7},
		{executor.LanguageShell, []string{"sh"}, "x=" + shell, "printf '%s\n\n' \"$x\"\n\n", "(exit 7)", 7},
	} {
		t.Run(l.argv[0], func(t *testing.T) {
			i, output := start(t, l.language, l.argv...)
			for n, code := range []string{l.set, l.write, l.fail, l.write} {
				want := 0
				if n == 2 {
					want = l.code
				}
				if a := i.run(t, code); a.Code != want {
					got, _ := os.ReadFile(output)
					t.Fatalf("cell %d: %+v, want code %d; output %q", i.n, a, want, got)
				}
			}
			got, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(got), hostile+"\n\n"); n != 2 {
				t.Errorf("written %d times instead of 2: %q", n, got)
			}
		})
	}
}

// What a driver offers it does: every field of Driver that names an ability is asked for it.
func TestADriverKeepsWhatItOffers(t *testing.T) {
	for _, l := range []struct {
		language executor.Language
		argv     []string
		set      string
	}{
		{executor.LanguagePython, []string{"python3", "-u"}, "seen = 41 + 1"},
		{executor.LanguageJavaScript, []string{"node"}, "let seen = 41 + 1"},
		{executor.LanguageShell, []string{"bash"}, "seen=42"},
		{executor.LanguageShell, []string{"sh"}, "seen=42"},
	} {
		t.Run(l.argv[0], func(t *testing.T) {
			i, _ := start(t, l.language, l.argv...)
			i.n++
			i.tell(t, drivers.Operation{Op: "cell", N: i.n, Count: i.n, Code: l.set})
			if i.driver.Begins {
				i.hear(t, "begun")
			}
			i.hear(t, "done")
			if i.driver.Variables {
				i.n++
				i.tell(t, drivers.Operation{Op: "variables", N: i.n})
				a := i.hear(t, "variables")
				var list []struct{ Name, Preview string }
				if err := json.Unmarshal(a.Variables, &list); err != nil || a.N != i.n {
					t.Fatalf("%+v: %v", a, err)
				}
				if len(list) != 1 || list[0].Name != "seen" || list[0].Preview != "42" {
					t.Errorf("variables: %+v", list)
				}
			}
			if i.driver.Paths {
				dir := t.TempDir()
				if err := os.WriteFile(dir+"/module_of_the_test.py", []byte("value = 7"), 0o600); err != nil {
					t.Fatal(err)
				}
				i.n++
				i.tell(t, drivers.Operation{Op: "path", N: i.n, Dir: dir})
				i.hear(t, "added")
				if a := i.run(t, "import module_of_the_test as m\nassert m.value == 7"); a.Code != 0 {
					t.Errorf("import from an added folder: %+v", a)
				}
			}
		})
	}
}

// A cell reads what its FIFO brings, says when it has it open, and the next one does not.
func TestADriverGivesACellItsStdin(t *testing.T) {
	for _, l := range []struct {
		language executor.Language
		argv     []string
		read     string
	}{
		{executor.LanguagePython, []string{"python3", "-u"}, "import sys; print(repr(sys.stdin.read()))"},
		{executor.LanguageJavaScript, []string{"node"}, "console.log(JSON.stringify(require('fs').readFileSync(0, 'utf8')))"},
		{executor.LanguageShell, []string{"bash"}, `printf "'%s'\n" "$(cat)"`},
		{executor.LanguageShell, []string{"sh"}, `printf "'%s'\n" "$(cat)"`},
	} {
		t.Run(l.argv[0], func(t *testing.T) {
			i, output := start(t, l.language, l.argv...)
			fifo := t.TempDir() + "/stdin"
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			writer, err := os.OpenFile(fifo, os.O_RDWR, 0) // it waits for nobody
			if err != nil {
				t.Fatal(err)
			}
			if _, err := writer.WriteString("for the cell"); err != nil {
				t.Fatal(err)
			}
			i.n++
			i.tell(t, drivers.Operation{Op: "cell", N: i.n, Count: i.n, Code: l.read, Stdin: fifo})
			if a := i.hear(t, "reading"); a.N != i.n {
				t.Errorf("%+v", a)
			}
			writer.Close() // its end
			i.hear(t, "done")
			i.run(t, l.read)
			got, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.ReplaceAll(string(got), `"`, "'"); !strings.Contains(text, "'for the cell'") || !strings.HasSuffix(text, "''\n") {
				t.Errorf("read: %q", got)
			}
		})
	}
}

func TestThereIsNoDriverFor(t *testing.T) {
	for _, c := range []struct {
		language    executor.Language
		interpreter []string
		names       string
	}{
		{executor.LanguagePython, nil, "must be given"},
		{"cobol", []string{"cobol"}, `unknown language "cobol"`},
	} {
		if d, err := drivers.For(c.language, c.interpreter); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %+v, %v", c.language, d, err)
		}
	}
	if d, err := drivers.For(executor.LanguageDefault, []string{"/usr/bin/python3"}); err != nil || !d.Variables {
		t.Errorf("Python is the default: %+v, %v", d, err)
	}
}

// A zero byte ends a field of a shell's operation: it is refused, not cut. JSON has a form for it.
func TestAZeroByte(t *testing.T) {
	for _, c := range []struct {
		language    executor.Language
		interpreter string
		refused     bool
	}{
		{executor.LanguagePython, "python3", false},
		{executor.LanguageJavaScript, "node", false},
		{executor.LanguageShell, "/bin/bash", true},
		{executor.LanguageShell, "/bin/dash", true},
		{executor.LanguageShell, "/bin/busybox", true},
	} {
		d, err := drivers.For(c.language, []string{c.interpreter})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []drivers.Operation{{Op: "cell", N: 1, Code: "a\x00b"}, {Op: "cell", N: 1, Stdin: "a\x00b"}} {
			if _, err := d.Encode(o); (err != nil) != c.refused {
				t.Errorf("%s: %+v: %v", c.interpreter, o, err)
			}
		}
	}
}

// The fields of an operation, as a POSIX shell and bash read them.
func TestTheFieldsOfAShell(t *testing.T) {
	o := drivers.Operation{Op: "cell", N: 7, Count: 3, Stdin: "/in", Code: "a\\n\nb"}
	for interpreter, want := range map[string]string{
		"bash": "cell\x007\x003\x00/in\x00a\\n\nb\x00",
		"dash": "cell\n7\n3\n/in\n" + `a\\n\nb` + "\n",
	} {
		d, err := drivers.For(executor.LanguageShell, []string{interpreter})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.Encode(o); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", interpreter, got, err, want)
		}
	}
}

// consoleCells are inputs of a console. open wants another line; whole does not, and none of its proper beginnings of several
// lines is whole; wrong cannot be mended by a line, so the interpreter is to say what is wrong.
var consoleCells = map[executor.Language]struct {
	interpreter        string
	open, whole, wrong []string
}{
	executor.LanguagePython: {
		"python3",
		[]string{"(", "f(1,", "x = [", "'''", "'''a\nb", "x = 1 \\", "if x:", "if x:\n  y", "def f():", "@dec", "@dec\ndef f():\n  x", "class A: pass", "for i in r: print(i)", "if x:\n  y\nelse:", "while 1: # c",
			"try:\n  1", "match x:", "{'a': 1,", "if x:\n\n  f(\n", "with a as b,\\", "async def f():", "async with a:\n  b", "f'''", "'a\\", "await f("},
		[]string{"1", "x = 1", "# only a comment", "d = {'a':\n1}", "f(1,\n  2)", "x = [\n1,\n\n2]", "s = '''a\nb'''", "x = 1 + \\\n2", "if x:\n  y\n", "if x: y\n", "for i in []:\n  a\n\t",
			"def f(a,\n      b):\n  return a\n", "class A:\n  x: int = 1\n", "async def f():\n  await g()\n", "async with a:\n  b\n", "try:\n  1\nexcept E:\n  2\nfinally:\n  3\n", "x = y[1:2]", "if x:\n  '''\n\n'''\n",
			"def f():\n  # c\n  return {\n    1: 2,\n  }\n", "[x for x in\n y if\n x]", "await f(\n1)", "x = 'é'", "_ = 3"},
		[]string{")", "x = 'abc", "(1]2)\n)", "f(1))", "x = \\ 1", "(']')]"},
	},
	executor.LanguageJavaScript: {
		"node",
		[]string{"(", "{", "f(1,", "f(1", "f(g(1", "`a", "`a${", "`a${b", "`${`", "/* a", "if (x)", "if (x) {", "x = 1 +", "x =", "a =>", "a &&", "for (;;)", "function f()", "function f", "class A", "class A extends B", "do", "do {", "a.",
			"a,", "const", "a ? b :", "'a\\", "\"a\\", "while (x)", "try", "!", "await f(1"},
		[]string{"1", "// c", "var x = {\na: 1,\nb: [1,\n2]\n}", "f(\n1)", "f(1\n)", "function f(a, b) {\n  return a\n}", "const f = a =>\n  a", "`a\n${0 + `c\n${0}`}\ne`", "/* a\nb */ 1", "'it\\'s'", "/[/]\"(/.test(0)", "if (0) {\n y\n} else {\n z\n}",
			"class A {\n  #p = 1\n  m() { return this.#p }\n}", "'a\\\nb'", "await 0", "const g = async () => {\n  for await (const x of y) {\n  }\n}", "throw new SyntaxError('Unexpected end of input')", "new Function('(')"},
		[]string{")", "}", "f(]", "'abc", "x = /abc", "(}", "`${]", "f(1 2", "else"},
	},
}

// TestADriverAsksAndCompletesForAConsole: input() of a console's cell asks by a display, and its answer is a file.
func TestADriverAsksAndCompletesForAConsole(t *testing.T) {
	i, output := start(t, executor.LanguagePython, "python3")
	cell := func(code string, shown func(d executor.Display)) (exit int) {
		t.Helper()
		i.n++
		i.tell(t, drivers.Operation{Op: "cell", N: i.n, Count: i.n, Code: code})
		for i.answers.Scan() {
			var a drivers.Answer
			if err := json.Unmarshal(i.answers.Bytes(), &a); err != nil {
				t.Fatal(err)
			}
			if a.Op == "display" {
				var d executor.Display
				if err := json.Unmarshal(a.Display, &d); err != nil {
					t.Fatal(err)
				}
				shown(d)
			}
			if a.Op == "done" {
				return a.Code
			}
		}
		t.Fatal(i.answers.Err())
		return 0
	}
	answer := func(text string) func(executor.Display) {
		return func(d executor.Display) {
			var ask executor.Ask
			if err := json.Unmarshal(d.Data[executor.AskType], &ask); err != nil || ask.Prompt != "who? " {
				t.Fatalf("%q: %v", d.Data, err)
			}
			name := filepath.Join(filepath.Dir(output), ask.File)
			if err := errors.Join(os.WriteFile(name+".part", []byte(text), 0o600), os.Rename(name+".part", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := cell(executor.ConsoleCell(executor.LanguagePython, "name = input('who? '); assert name == 'é x', name"), answer("é x\n")); code != 0 {
		t.Errorf("an answer: exit code %d", code)
	}
	if code := cell(executor.ConsoleCell(executor.LanguagePython, "input('who? ')"), answer("")); code != 1 {
		t.Errorf("no answer: exit code %d", code)
	}
	if code := cell("input('who? ')", func(d executor.Display) { t.Errorf("without a console it shows %q", d.Data) }); code != 1 {
		t.Errorf("without a console: exit code %d", code)
	}
	var found []string
	if code := cell(executor.CompletionCell("nam"), func(d executor.Display) { found = append(found, string(d.Data[executor.CompletionType])) }); code != 0 || len(found) != 1 || !strings.Contains(found[0], `"name"`) {
		t.Errorf("completions: %d, %q", code, found)
	}
}

func TestADriverKnowsWhatAConsoleLacks(t *testing.T) {
	for language, cells := range consoleCells {
		t.Run(string(language), func(t *testing.T) {
			i, output := start(t, language, cells.interpreter)
			// wants reports whether a cell displays that it is incomplete, and fails t if it does anything else then.
			wants := func(code string) bool {
				t.Helper()
				i.n++
				i.tell(t, drivers.Operation{Op: "cell", N: i.n, Count: i.n, Code: executor.ConsoleCell(language, code)})
				incomplete := false
				for i.answers.Scan() {
					var a drivers.Answer
					if err := json.Unmarshal(i.answers.Bytes(), &a); err != nil {
						t.Fatal(err)
					}
					incomplete = incomplete || a.Op == "display" && strings.Contains(string(a.Display), executor.IncompleteType)
					if a.Op == "done" {
						if incomplete && a.Code != 0 {
							t.Errorf("%q: incomplete, and exit code %d", code, a.Code)
						}
						return incomplete
					}
				}
				t.Fatal(i.answers.Err())
				return false
			}
			size := func() int64 {
				info, err := os.Stat(output)
				if err != nil {
					t.Fatal(err)
				}
				return info.Size()
			}
			for _, code := range cells.open {
				before := size()
				if !wants(code) {
					t.Errorf("%q is taken for whole", code)
				} else if size() != before {
					t.Errorf("%q: incomplete code has output", code)
				}
			}
			for _, code := range cells.whole {
				lines := strings.Split(code, "\n")
				for n := range lines {
					if part := strings.Join(lines[:n+1], "\n"); wants(part) != (n < len(lines)-1) && strings.TrimSpace(lines[n]) != "" {
						t.Errorf("%q of %q: wants more is %t", part, code, n == len(lines)-1)
					}
				}
			}
			for _, code := range cells.wrong {
				before := size()
				if wants(code) {
					t.Errorf("%q waits for another line", code)
				} else if size() == before {
					t.Errorf("%q: no word of what is wrong", code)
				}
			}
			// The same code from elsewhere is an error as ever.
			if a := i.run(t, cells.open[0]); a.Code == 0 {
				t.Errorf("%q without a console succeeded", cells.open[0])
			}
		})
	}
}
