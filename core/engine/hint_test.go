package engine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAFailureWithAUsualCauseHasAHint(t *testing.T) {
	t.Parallel()
	lonely := surroundings{offline: true, unfed: true}
	failed := executor.Result{Status: executor.StatusFailed, ExitCode: new(1)}
	for _, c := range []struct {
		stderr string
		about  surroundings
		want   []string // none: no hint
	}{
		{"ModuleNotFoundError: No module named 'sklearn.cluster'\n", lonely, []string{"module sklearn.cluster is missing", "add scikit-learn to", "--requirements"}},
		{"ModuleNotFoundError: No module named 'some_thing'", surroundings{session: true}, []string{"some-thing", "session install"}},
		{"ImportError: Missing optional dependency 'openpyxl'.  Use pip", lonely, []string{"openpyxl"}},
		{"ModuleNotFoundError: No module named 'a'\nDuring …\nModuleNotFoundError: No module named 'b'", lonely, []string{"module b"}},
		{"/usr/bin/python3: No module named pip\n", lonely, []string{"no pip in the sandbox", "requirements_txt"}},
		{"sh: 1: pip: not found", lonely, []string{"no pip"}},
		{"Error: Cannot find module 'lodash/fp'\nRequire stack:", lonely, []string{"lodash/fp", "node_modules", "--include-all"}},
		{"Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'x' imported from /work/a.mjs", lonely, []string{"package x"}},
		{"Error: Cannot find module './own.js'", lonely, nil},
		{"urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>\n", lonely, []string{"no network", "network_disabled", "--network"}},
		{"curl: (6) Could not resolve host: example.com", lonely, []string{"no network"}},
		{"curl: (6) Could not resolve host: example.com", surroundings{}, nil},
		{"EOFError: EOF when reading a line\n", lonely, []string{"standard input", "--stdin FILE"}},
		{"EOFError: EOF when reading a line\n", surroundings{}, nil},
		{"FileNotFoundError: [Errno 2] No such file or directory: 'data/d.csv'\n", lonely, []string{"data/d.csv", "--file"}},
		{"FileNotFoundError: [Errno 2] No such file or directory: '/etc/x'\n", lonely, nil},
		{"OSError: [Errno 30] Read-only file system: '/opt/x'\n", lonely, []string{"/opt/x", "work folder", "/tmp"}},
		{"PermissionError: [Errno 13] Permission denied: '/srv/x'\n", lonely, []string{"/srv/x"}},
		{"PermissionError: [Errno 13] Permission denied: '/srv/x'\n", surroundings{inPlace: true}, nil},
		{"FileNotFoundError: [Errno 2] No such file or directory: 'data/d.csv'\n", surroundings{inPlace: true}, nil},
		{"RuntimeError: can't start new thread", lonely, []string{"config.pids"}},
		{"usage: a.py [-h] file\na.py: error: the following arguments are required: file\n", lonely, []string{"after --"}},
		{"ZeroDivisionError: division by zero\n", lonely, nil},
		{"", lonely, nil},
	} {
		got := hintOf(failed, c.stderr, c.about)
		if c.want == nil && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%s: %q", c.stderr, got)
		}
		for _, part := range c.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q lacks %q", c.stderr, got, part)
			}
		}
		for _, r := range []executor.Result{{Status: executor.StatusSucceeded}, {Status: executor.StatusTimedOut}, {Status: executor.StatusFailed, Failure: &executor.Failure{}}} {
			if got := hintOf(r, c.stderr, c.about); got != "" {
				t.Errorf("%s, %+v: %q", c.stderr, r, got)
			}
		}
	}
	for name := range signals {
		if got := hintOf(executor.Result{Status: executor.StatusFailed, Signal: name}, "", lonely); !strings.HasPrefix(got, name+" ended the program: it ") || executor.SignalNumber(name) == 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTheEndOfAStreamIsKept(t *testing.T) {
	t.Parallel()
	var all []byte
	var kept tail
	for i := range 40 {
		piece := bytes.Repeat([]byte{byte('a' + i%26)}, i*i*7)
		all = append(all, piece...)
		kept.add(piece)
		if want := all[max(0, len(all)-tailBytes):]; !bytes.Equal(kept, want) {
			t.Fatalf("after %d pieces: %d bytes, want %d", i, len(kept), len(want))
		}
	}
}

func TestAHintIsAPartOfTheResult(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		for code, want := range map[string]string{
			"print-err ModuleNotFoundError: No module named 'yaml'\nexit 1": "add pyyaml to", "signal SEGV": "SIGSEGV ended the program",
			"print-err EOFError: EOF when reading a line\nexit 1": "--stdin", "exit 1": "",
		} {
			got := r.result(r.submit(as("alice"), code).ID).Hint
			if !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("%q: %q", code, got)
			}
		}
	})
}
