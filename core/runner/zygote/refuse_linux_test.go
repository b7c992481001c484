package zygote

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func TestWhatOnlyANewInterpreterDoesIsRefused(t *testing.T) {
	t.Parallel()
	z := start(t, usual(t.TempDir()))
	z.startupCode = ""
	set := func(kv ...string) func(*Request) {
		return func(r *Request) { r.Env = append(slices.Clone(r.Env), kv...) }
	}
	for name, c := range map[string]struct {
		text   string
		change func(*Request)
		why    string
	}{
		"another entrypoint":       {"", func(r *Request) { r.Argv = []string{python, "other.py"} }, "command line"},
		"options":                  {"", func(r *Request) { r.Argv = []string{python, "-O", "main.py"} }, "command line"},
		"a seed":                   {"", set("PYTHONHASHSEED=1"), "PYTHONHASHSEED"},
		"a locale":                 {"", set("LC_ALL=C"), "LC_ALL"},
		"a library":                {"", set("LD_PRELOAD=x"), "LD_PRELOAD"},
		"a zone of time":           {"", set("TZ=UTC"), "TZ"},
		"no buffers":               {"", func(r *Request) { r.Env = r.Env[:3] }, "PYTHONUNBUFFERED"},
		"a long variable":          {"", set("A=" + strings.Repeat("x", maxRequest)), "more than"},
		"output that is no pipe":   {"", func(r *Request) { r.Files[1] = r.Files[0] }, "descriptor 1"},
		"the collector":            {"import gc", nil, "gc"},
		"a finalizer":              {"class C:\n def __del__(self): pass", nil, "__del__"},
		"no main file":             {"", func(r *Request) { must(t, os.Remove(filepath.Join(z.cfg.Dir, "main.py"))) }, "No such file"},
		"a name that ends like gc": {"mpgc = gcx = 1", nil, ""},
		"other variables":          {"", set("A=gc"), ""},
	} {
		_, err := begin(t, z, c.text, c.change)
		var refused *RefusedError
		if errors.As(err, &refused) != (c.why != "") || c.why == "" && err != nil || c.why != "" && !strings.Contains(refused.Why, c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, z.Empty(awaittest.Context(t)))
	z.startupCode = "a.pth"
	if why := z.Refuses(Request{Argv: z.cfg.argv(), Env: append(z.cfg.Env, "A=1")}); !strings.Contains(why, "a.pth") {
		t.Errorf("variables for code of the environment: %q", why)
	}
}

func TestVariablesThatCountAtTheStartMustBeTheSame(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"PYTHONPATH", "_PYTHON_SYSCONFIGDATA_NAME", "LC_TIME", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "LANG", "LANGUAGE", "LOCPATH", "GCONV_PATH",
		"GLIBC_TUNABLES", "HOME", "TZ", "TZDIR", "SETUPTOOLS_USE_DISTUTILS",
	} {
		with := []string{"A=1", name + "="}
		for _, pair := range [][2][]string{{with, {"A=1"}}, {{"A=1"}, with}, {with, {"A=1", name + "=x"}}} {
			if got := differentAtStart(pair[0], pair[1]); got != name {
				t.Errorf("%q and %q differ in %q", pair[0], pair[1], got)
			}
		}
		if got := differentAtStart(with, []string{name + "=", "A=2", "PATH=/bin"}); got != "" {
			t.Errorf("with the same %s there is another %q", name, got)
		}
	}
}

// userPackages makes a folder for modules of the user whose home is dir, and writes a file there.
func userPackages(t *testing.T, dir, name, text string) {
	t.Helper()
	out, err := exec.Command(python, "-c", "import sys; print('lib/python%d.%d/site-packages' % sys.version_info[:2])").Output()
	must(t, err)
	file := filepath.Join(dir, ".local", strings.TrimSpace(string(out)), name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755)) //nolint:gosec // as installers do
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

// userBase is the variable by which an interpreter finds the packages of userPackages, although its HOME is another one.
func userBase(dir string) string { return "PYTHONUSERBASE=" + filepath.Join(dir, ".local") }

func TestAnInterpreterThatCannotBeForkedSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text, module string
		change             func(*Config)
		want               string
	}{
		"threads":    {"threaded.py", "import threading, time\nthreading.Thread(target=time.sleep, args=[99], daemon=True).start()", "threaded", nil, "threads after the imports of: threaded"},
		"output":     {"loud.py", "print('welcome')", "loud", nil, "writes output: welcome"},
		"an error":   {"broken.py", "1/0", "broken", nil, "ZeroDivisionError"},
		"its end":    {"ending.py", "import os; os._exit(3)", "ending", nil, "has ended"},
		"not there":  {"a.py", "", "", func(c *Config) { c.Interpreter = "/nowhere/python" }, "no such file"},
		"PYTHONPATH": {"a.py", "", "", func(c *Config) { c.Env = append(c.Env, "PYTHONPATH=/x") }, "PYTHONPATH"},
	} {
		dir := t.TempDir()
		userPackages(t, dir, c.file, c.text)
		cfg := usual(dir)
		cfg.Env = append(cfg.Env, userBase(dir))
		cfg.Preimport = []string{c.module}
		if c.change != nil {
			c.change(&cfg)
		}
		z, err := New(awaittest.Context(t), cfg)
		if err == nil {
			must(t, z.Close())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
