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
	// An imported module finds the copy's own End, and makes it tell how the process ends.
	const told = `
import gc, sys, weakref
reached = [r.__callback__ for o in (sys.__interactivehook__, *sys.path_importer_cache.values()) for r in weakref.getweakrefs(o)]
kinds = []
while reached and not kinds:
    reached = gc.get_referents(*reached)
    kinds = [type(o) for o in reached if type(o).__name__ == "End"]
del reached
def tell(name, usual, out=sys.stderr):
    def method(*args):
        print(name, file=out)
        return usual(*args)
    setattr(kind, name, method)
for kind in kinds:
    for name in ("nothing_left", "objects_harmless", "quit"): tell(name, getattr(kind, name))
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
		"nothing":                    {"", "", "import told\n", true},
		"modules imported before":    {"json", "", "import told\n", true},
		"a file imported before":     {"own", "import os\nf = open(os.devnull)", "import told\n", false},
		"harmless modules":           {"", "", "import told, json, re, dataclasses, subprocess, random\n", true},
		"a file":                     {"", "import os\nf = open(os.devnull)", "import own, told\n", false},
		"a generator with finally":   {"", "def g():\n    try: yield\n    finally: pass\ng = g()\nnext(g)", "import own, told\n", false},
		"a generator without":        {"", "def g():\n    yield\ng, h = g(), g()\nnext(g)", "import own, told\n", true},
		"files that are closed":      {"", "with open('a', 'w'), open('a', 'rb+'), open('a', 'rb', 0): pass", "import own, told\n", true},
		"a wrapper of the input":     {"", "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)", "import own, told\n", true},
		"a buffer of the output":     {"", "f = open(1, 'wb', 100, closefd=False)", "import own, told\n", false},
		"files in memory":            {"", "import io\ns, b = io.StringIO(), io.BytesIO()", "import own, told\n", true},
		"bytes in use":               {"", "import io\nb = io.BytesIO(b'a')\nv = b.getbuffer()", "import own, told\n", false},
		"an attribute of a stream":   {"", "import sys\nsys.stdin.close = print", "import own, told\n", false},
		"a finalizer":                {"", "class C:\n    def __del__(self): pass\nc = C()", "import own, told\n", false},
		"a module of C":              {"", "import mmap", "import own, told\n", false},
		"a module of C at the start": {"mmap", "", "import told\n", false},
		"a module of a library":      {"", library("numpy"), "import own, told\n", true},
		"one of another library":     {"", library("numbers"), "import own, told\n", false},
		"a library with ctypes":      {"", numpy + "import ctypes", "import own, told\n", true},
		"ctypes alone":               {"", "import ctypes", "import own, told\n", false},
		"a function of ctypes":       {"", numpy + "import ctypes\nf = ctypes.pythonapi.Py_AtExit", "import own, told\n", false},
		"text in a stream of C":      {"", numpy + "import ctypes, gc\nctypes.CDLL(None).printf(b'a')\ngc.collect()", "import own, told\n", true},
		"a function by its name":     {"", numpy + "import ctypes\nf = ctypes.pythonapi['Py_AtExit']", "import own, told\n", false},
		"the library of the process": {"", numpy + "import ctypes\nc = ctypes.CDLL(None)\nc['printf']", "import own, told\n", false},
		"a trace":                    {"", "import sys\nsys.settrace(lambda *_: None)", "import told, own\n", false},
		"a trace that is false":      {"", "import sys\nclass T(list):\n    def __call__(self, *_): pass\nsys.settrace(T())", "import told, own\n", false},
		"a profile":                  {"", "import sys\nsys.setprofile(lambda *_: None)", "import told, own\n", false},
		"a library by ctypes":        {"", numpy + "import ctypes\nc = ctypes.CDLL('libc.so.6')", "import own, told\n", false},
		"the main file has ctypes":   {"", numpy, "import own, told, ctypes\n", false},
		"an array to write back":     {"", "", "import told\n# updateifcopy\n", false},
		"modules of Cython":          {"", "import sys, types\nsys.modules['_cython_3_1_0'] = types.ModuleType('_cython_3_1_0')", "import own, told\n", true},
		"a module from nowhere":      {"", "import sys, types\nsys.modules['a'] = types.ModuleType('a')", "import own, told\n", false},
		"an exception":               {"", "", "import told\n1 / 0\n", true},
		"an exit after an exception": {"", "", "import told\ntry: 1 / 0\nfinally: raise SystemExit(1)", false},
		"an interrupt":               {"", "", "import told\nraise KeyboardInterrupt\n", false},
		"event loops and queues":     {"", "import asyncio, queue\nasync def f(): pass\nasyncio.run(f())", "import own, told\n", true},
		"calls of the collector":     {"", "import gc\ngc.callbacks.append(lambda *_: None)", "import own, told\n", false},
		"an exit":                    {"", "", "import told\nraise SystemExit\n", false},
	} {
		cfg := usual(t.TempDir())
		must(t, os.WriteFile(filepath.Join(cfg.Dir, "told.py"), []byte(told), 0o600))
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
