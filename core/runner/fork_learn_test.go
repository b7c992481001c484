//go:build linux

package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/needtest"
)

// learning is a Start whose fork server imports what most programs import. The environment has modules, by name.
func learning(t *testing.T, modules map[string]string) Start {
	t.Helper()
	s := withModule(t, "")
	s.Preimport, s.PreimportLearned = nil, true
	for name, text := range modules {
		file := filepath.Join(s.Reach[0], "lib", pythonName(t), "site-packages", name+".py")
		must(t, os.WriteFile(file, []byte(text), 0o644)) //nolint:gosec // programs read it
	}
	return s
}

// found is a program that prints which modules are there before it imports anything of its own.
func found(modules, more string) string {
	return "import sys\nprint(*[m for m in '" + modules + "'.split() if m in sys.modules])\n" + more
}

// until runs start until it is a fork that ends as want says.
func (r *testRunner) until(t *testing.T, start Start, want string) {
	t.Helper()
	awaittest.UntilNil(t, want, func() error {
		if got := r.how(t, start); got != want {
			return errors.New(got)
		}
		return nil
	})
}

func needForks(t *testing.T) *testRunner {
	t.Helper()
	needtest.NeedRoot(t)
	return boxed(t, func(cfg *Config) {
		needtest.Need(t, len(cfg.Cgroups) > 0, needtest.Cgroup, "there are no control groups")
	})
}

func TestModulesThatMostProgramsImportAreImportedBefore(t *testing.T) {
	r := needForks(t)
	often := learning(t, map[string]string{"often": "", "seldom": ""})
	seldom := often
	seldom.Code = found("often seldom json", "import seldom")
	often.Code = found("often seldom json", "import often\nfrom json import dumps")
	r.until(t, seldom, "fork succeeded exit 0")
	r.until(t, often, "fork succeeded exit 0 often json")
	r.wants(t, seldom, "fork succeeded exit 0 often json")
	variables := often
	variables.Env = map[string]string{"A": "1"}
	r.wants(t, variables, "exec succeeded exit 0")
	often.PreimportLearned = false
	for forks := 0; forks < 15; {
		got := r.how(t, often)
		if strings.HasPrefix(got, "fork") {
			forks++
		}
		if !strings.HasSuffix(got, " succeeded exit 0") {
			t.Fatalf("nothing may be learned: %s", got)
		}
	}
}

func TestALearnedModuleThatFailsDoesNotEndForks(t *testing.T) {
	for name, c := range map[string]struct{ text, found, note string }{
		"raises":          {"1 / 0", " json", ""},
		"starts a thread": {"import threading, time; threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", "", "several threads"},
		"breaks copies":   {"import os; os.register_at_fork(after_in_child=lambda: os._exit(0))", "", "there is no copy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := needForks(t)
			s := learning(t, map[string]string{"fails": "import os\nif os.getpid() == 1:\n    " + c.text})
			s.Code = found("fails json", "import fails, json")
			if c.note != "" {
				awaittest.Until(t, c.note, func() bool {
					r.how(t, s)
					return strings.Contains(r.stderr.String(), c.note)
				})
			}
			r.until(t, s, "fork succeeded exit 0"+c.found)
		})
	}
}
