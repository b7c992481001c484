package drivers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/drivers"
)

// habit is what people are used to from notebooks: cells, what they print, the forms that they display, and the end of the last cell.
type habit struct {
	cells    []string
	printed  string
	displays []string // the types of each, sorted
	failed   string   // what the error says
}

// fakes stand for packages that are not here: their modules as far as the driver knows them.
var fakes = map[string]string{
	"matplotlib/pyplot.py": `
figures, current = {}, []
class Figure:
    __module__ = "matplotlib.figure"
    canvas = None
    def __init__(self): self.children = ["background"]
    def get_children(self): return self.children
    def savefig(self, out, **_): out.write(b"picture") if hasattr(out, "write") else None
def figure(number=None):
    number = number or len(figures) + 1
    return figures.setdefault(number, Figure())
def plot(*_): figure(max(figures, default=1)).children.append("axes")
def savefig(name): figure(max(figures, default=1)).savefig(name)
def get_fignums(): return list(figures)
def close(_): figures.clear()
def show(): raise RuntimeError("there is no screen")
`,
	"matplotlib/__init__.py":            "",
	"plotly/__init__.py":                "",
	"plotly/basedatatypes.py":           "class BaseFigure:\n    def show(self): raise RuntimeError('there is no browser')\n    def _repr_html_(self): return '<div>plot</div>'\n",
	"IPython/__init__.py":               "",
	"IPython/core/__init__.py":          "",
	"IPython/core/display_functions.py": "def display(*values, **_): print('IPython', values)\ndef clear_output(wait=False): print('escape codes')\n",
	"IPython/display.py":                "from IPython.core.display_functions import *\nclass HTML:\n    def __init__(self, text): self.text = text\n    def _repr_html_(self): return self.text\n",
}

var habits = map[string]habit{
	"a context variable that a cell with await sets is set in the next cell": {
		cells:   []string{"import asyncio, contextvars\nv = contextvars.ContextVar('v')\nv.set(1)\nNone", "await asyncio.sleep(0); token = v.set(2)\nNone", "print(v.get())", "async def f(): return v.get()\nprint(await f())"},
		printed: "2\n2\n",
	},
	"decimal's precision lasts": {cells: []string{"import asyncio, decimal\nawait asyncio.sleep(0)\ndecimal.getcontext().prec = 3", "print(decimal.Decimal(1) / 3)"}, printed: "0.333\n"},
	"what is made before the first await belongs to the session's loop": {
		cells:   []string{"import asyncio\nasync def f(n): return n\nt = asyncio.gather(f(1), f(2))", "print(await t)", "asyncio.run(f(3))\nNone", "u = asyncio.Queue(); t = asyncio.ensure_future(f(4))", "print(await t)"},
		printed: "[1, 2]\n4\n",
	},
	"a Future of the loop": {cells: []string{"import asyncio\nf = asyncio.Future()", "asyncio.get_running_loop().call_soon(f.set_result, 5)\nprint(await f)\nNone"}, printed: "5\n"},
	"savefig after show displays nothing": {
		cells: []string{"import matplotlib.pyplot as plt\nplt.plot([1]); plt.show(); plt.savefig('a.png')"}, displays: []string{"image/png image/svg+xml text/plain"},
	},
	"an empty figure as a value":   {cells: []string{"import matplotlib.pyplot as plt\nplt.figure()"}, displays: []string{"text/plain"}},
	"two plots":                    {cells: []string{"import matplotlib.pyplot as plt\nplt.plot([1]); plt.show(); plt.plot([2])\nNone"}, displays: []string{"image/png image/svg+xml text/plain", "image/png image/svg+xml text/plain"}},
	"IPython's display":            {cells: []string{"from IPython.display import display, HTML, clear_output\nclear_output(); display(HTML('<b>x</b>'))"}, displays: []string{"text/html text/plain"}},
	"IPython's raw display":        {cells: []string{"import IPython.display\nIPython.display.display({'text/plain': 'x', 'text/html': 'y'}, raw=True)"}, displays: []string{"text/html text/plain"}},
	"plotly's show after a look":   {cells: []string{"import importlib.util as u\nu.find_spec('plotly.basedatatypes')\nimport plotly.basedatatypes as p\np.BaseFigure().show()"}, displays: []string{"text/html text/plain"}},
	"plotly's show":                {cells: []string{"import plotly.basedatatypes as p\np.BaseFigure().show()"}, displays: []string{"text/html text/plain"}},
	"an object displays itself":    {cells: []string{"class A:\n    def _ipython_display_(self): display(7)\nA()"}, displays: []string{"text/plain"}},
	"a form without a text":        {cells: []string{"class A:\n    def __repr__(self): raise ValueError\n    def _repr_html_(self): return '<i>'\nA()"}, displays: []string{"text/html text/plain"}},
	"no form at all":               {cells: []string{"class A:\n    def __repr__(self): raise ValueError('no text')\nA()"}, failed: "ValueError: no text"},
	"a shell's line":               {cells: []string{"name = 'it'\nif name:\n    !echo \"here's {name}\" $name $HOME_OF_NOBODY\n!echo two; exit 3\nprint('%d' %\n 3)"}, printed: "here's it it\ntwo\n3\n"},
	"what a command prints":        {cells: []string{"names = []\nfor n in 1, 2:\n    names += !echo {n} it\nprint(names, 'a=!b')"}, printed: "['1 it', '2 it'] a=!b\n"},
	"a magic that is assigned":     {cells: []string{"x = %timeit 1"}, failed: "%timeit is a magic of IPython"},
	"marks in a string":            {cells: []string{"x = '''\n!echo no\n%pip\n'''\nprint(x)"}, printed: "\n!echo no\n%pip\n\n"},
	"%matplotlib":                  {cells: []string{"%matplotlib inline\nprint(1)"}, printed: "1\n"},
	"%pip":                         {cells: []string{"import sys; sys.modules['pip'] = None  # as in an environment of uv\n%pip install x"}, failed: "pip cannot install here: packages come from the requirements of the session"},
	"pip in a shell's line":        {cells: []string{"import sys; sys.modules['pip'] = None\n!python3 -m pip install x"}, failed: "pip cannot install here"},
	"a shell's line about pip":     {cells: []string{"import sys; sys.modules['pip'] = None\n!echo pip install"}, printed: "pip install\n"},
	"another magic":                {cells: []string{"%timeit 1"}, failed: "%timeit is a magic of IPython, which this session has not: use timeit.timeit"},
	"a magic of a cell":            {cells: []string{"%%writefile a.py\nthis is no Python"}, failed: "%%writefile is a magic of IPython"},
	"a question":                   {cells: []string{"print?"}, failed: "use help(name)"},
	"an encoding that is declared": {cells: []string{"# coding: latin-1\nprint('\u00e4')"}, printed: "\u00e4\n"},
	"an error beside a magic":      {cells: []string{"!true\nx = = 1"}, failed: "SyntaxError"},
	"a file that was edited within the second": {
		cells:   []string{"open('m.py', 'w').write('x = 1')\nimport sys; sys.path.insert(0, '')\nimport m", "open('m.py', 'w').write('x = 2')\nimport importlib, os\nos.utime('m.py', (1, 1)); importlib.reload(m); open('m.py', 'w').write('x = 3'); os.utime('m.py', (1, 1))\nprint(importlib.reload(m).x)"},
		printed: "3\n",
	},
}

func TestHabitsOfNotebooks(t *testing.T) {
	t.Parallel()
	packages := t.TempDir()
	files := fstest.MapFS{}
	for name, text := range fakes {
		files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	if err := os.CopyFS(packages, files); err != nil {
		t.Fatal(err)
	}
	for name, h := range habits {
		t.Run(name, func(t *testing.T) {
			i, output := start(t, executor.LanguagePython, "python3", "-u")
			i.tell(t, drivers.Operation{Op: "path", Dir: packages})
			i.hear(t, "added")
			var displays []string
			var a drivers.Answer
			for _, code := range h.cells {
				a, displays = i.shown(t, code, displays)
			}
			raw, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(raw); h.failed == "" && (got != h.printed || a.Code != 0) || !strings.Contains(got, h.failed) || (h.failed != "") != (a.Code != 0) {
				t.Errorf("the last cell ended with %d\n%s", a.Code, got)
			}
			if got, want := strings.Join(displays, ", "), strings.Join(h.displays, ", "); got != want {
				t.Errorf("displayed %q, want %q", got, want)
			}
		})
		if len(h.cells) > 1 {
			continue
		}
		t.Run(name+", in a program", func(t *testing.T) {
			text := strings.Replace(h.cells[0], "coding: latin-1", "coding: utf-8", 1) // as the runner writes it
			got, displays, code := runProgram(t, text, packages)
			if h.failed == "" && (got != h.printed || code != 0) || !strings.Contains(got, h.failed) || (h.failed != "") != (code != 0) {
				t.Errorf("it ended with %d\n%s", code, got)
			}
			if strings.Contains(got, "<python-executor>") {
				t.Errorf("it shows the driver:\n%s", got)
			}
			if got, want := strings.Join(displays, ", "), strings.Join(h.displays, ", "); got != want {
				t.Errorf("displayed %q, want %q", got, want)
			}
		})
	}
}

// runProgram runs code as a program that displays, and returns what it printed, the types of what it displays, and its exit code.
func runProgram(t *testing.T, code, packages string, args ...string) (printed string, displays []string, exit int) {
	t.Helper()
	dir := t.TempDir()
	place, driver := filepath.Join(dir, "displayed 'so'"), filepath.Join(t.TempDir(), "the 'driver'")
	if err := os.WriteFile(driver, []byte(drivers.ProgramDriver()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte(drivers.Program(code, driver, place)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{"-u", "main.py"}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PYTHONPATH=" + packages}
	out, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(filepath.Join(dir, "main.py")); err != nil || string(now) != code {
		t.Errorf("the main file is then %q, %v", now, err)
	}
	if _, err := os.Lstat(driver); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the driver is there: %v", err)
	}
	raw, err := os.ReadFile(place)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var a struct {
			Display struct{ Data map[string]string }
		}
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		displays = append(displays, strings.Join(slices.Sorted(maps.Keys(a.Display.Data)), " "))
	}
	return string(out), displays, cmd.ProcessState.ExitCode()
}

// shown runs a cell, and adds the types of what it displays.
func (i *interpreter) shown(t *testing.T, code string, displays []string) (drivers.Answer, []string) {
	t.Helper()
	i.n++
	i.tell(t, drivers.Operation{Op: "cell", N: i.n, Count: i.n, Code: code})
	for {
		a := i.next(t)
		switch a.Op {
		case "done":
			return a, displays
		case "display":
			var d struct{ Data map[string]string }
			if err := json.Unmarshal(a.Display, &d); err != nil {
				t.Fatal(err)
			}
			displays = append(displays, strings.Join(slices.Sorted(maps.Keys(d.Data)), " "))
		}
	}
}
