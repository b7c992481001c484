package zygote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAProgramEndsEarlyUnlessAnObjectOrAModuleHasAnEnd(t *testing.T) {
	t.Parallel()
	const early = "objects_harmless\n"
	// The trace of an imported module shows how the process ends.
	const traced = `
import sys
def trace(frame, event, arg, out=sys.stderr):
    if frame.f_code.co_name in ("nothing_left", "objects_harmless", "quit"): print(frame.f_code.co_name, file=out)
sys.settrace(trace)
`
	// A module of C has the name of one of a library.
	library := func(name string) string {
		return "import _multibytecodec as m\nm.__spec__.name = '" + name + "._core'"
	}
	const numpy = "import sys, json\nsys.modules['numpy'] = json\n"
	for name, c := range map[string]struct {
		preimport, own, text string
		early                bool
	}{
		"nothing":                    {"", "", "import traced\n", true},
		"modules imported before":    {"json", "", "import traced\n", true},
		"a file imported before":     {"own", "import os\nf = open(os.devnull)", "import traced\n", false},
		"harmless modules":           {"", "", "import traced, json, re, dataclasses, subprocess, random\n", true},
		"a file":                     {"", "import os\nf = open(os.devnull)", "import own, traced\n", false},
		"a generator with finally":   {"", "def g():\n    try: yield\n    finally: pass\ng = g()\nnext(g)", "import own, traced\n", false},
		"a generator without":        {"", "def g():\n    yield\ng, h = g(), g()\nnext(g)", "import own, traced\n", true},
		"files that are closed":      {"", "with open('a', 'w'), open('a', 'rb+'), open('a', 'rb', 0): pass", "import own, traced\n", true},
		"a wrapper of the input":     {"", "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)", "import own, traced\n", true},
		"a buffer of the output":     {"", "f = open(1, 'wb', 100, closefd=False)", "import own, traced\n", false},
		"files in memory":            {"", "import io\ns, b = io.StringIO(), io.BytesIO()", "import own, traced\n", true},
		"bytes in use":               {"", "import io\nb = io.BytesIO(b'a')\nv = b.getbuffer()", "import own, traced\n", false},
		"an attribute of a stream":   {"", "import sys\nsys.stdin.close = print", "import own, traced\n", false},
		"a finalizer":                {"", "class C:\n    def __del__(self): pass\nc = C()", "import own, traced\n", false},
		"a module of C":              {"", "import mmap", "import own, traced\n", false},
		"a module of C at the start": {"mmap", "", "import traced\n", false},
		"a module of a library":      {"", library("numpy"), "import own, traced\n", true},
		"one of another library":     {"", library("numbers"), "import own, traced\n", false},
		"a library with ctypes":      {"", numpy + "import ctypes", "import own, traced\n", true},
		"ctypes alone":               {"", "import ctypes", "import own, traced\n", false},
		"a function of ctypes":       {"", numpy + "import ctypes\nf = ctypes.pythonapi.Py_AtExit", "import own, traced\n", false},
		"text in a stream of C":      {"", numpy + "import ctypes, gc\nctypes.CDLL(None).printf(b'a')\ngc.collect()", "import own, traced\n", true},
		"a library by ctypes":        {"", numpy + "import ctypes\nc = ctypes.CDLL('libc.so.6')", "import own, traced\n", false},
		"the main file has ctypes":   {"", numpy, "import own, traced, ctypes\n", false},
		"an array to write back":     {"", "", "import traced\n# updateifcopy\n", false},
		"modules of Cython":          {"", "import sys, types\nsys.modules['_cython_3_1_0'] = types.ModuleType('_cython_3_1_0')", "import own, traced\n", true},
		"a module from nowhere":      {"", "import sys, types\nsys.modules['a'] = types.ModuleType('a')", "import own, traced\n", false},
		"an exception":               {"", "", "import traced\n1 / 0\n", true},
		"an exit after an exception": {"", "", "import traced\ntry: 1 / 0\nfinally: raise SystemExit(1)", false},
		"an interrupt":               {"", "", "import traced\nraise KeyboardInterrupt\n", false},
		"event loops and queues":     {"", "import asyncio, queue\nasync def f(): pass\nasyncio.run(f())", "import own, traced\n", true},
		"calls of the collector":     {"", "import gc\ngc.callbacks.append(lambda *_: None)", "import own, traced\n", false},
		"an exit":                    {"", "", "import traced\nraise SystemExit\n", false},
	} {
		cfg := usual(t.TempDir())
		must(t, os.WriteFile(filepath.Join(cfg.Dir, "traced.py"), []byte(traced), 0o600))
		if c.preimport != "" {
			cfg.Preimport = []string{c.preimport}
		}
		packages := t.TempDir()
		if c.preimport == "own" {
			userPackages(t, packages, "own.py", c.own)
			cfg.Env = append(cfg.Env, userBase(packages))
		} else {
			must(t, os.WriteFile(filepath.Join(cfg.Dir, "own.py"), []byte(c.own), 0o600))
		}
		z := start(t, cfg)
		must(t, os.RemoveAll(filepath.Join(packages, ".local"))) // a copy would refuse to begin
		p, err := begin(t, z, c.text, nil)
		must(t, err)
		_, errs, _ := p.finish(t)
		if got := strings.HasSuffix(errs, "quit\n") && strings.Contains(errs, early); got != c.early {
			t.Errorf("%s: early %v\n%s", name, got, errs)
		}
	}
}
