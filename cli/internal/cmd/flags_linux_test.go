package cmd

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/app"
)

func TestAFlagOfAnotherKindIsNamedWithItsUnit(t *testing.T) {
	for want, args := range map[string][]string{
		`--memory: must be ` + sizeRule + ` (got "2X")`:                                        {"run", "--memory", "2X", "x.py"},
		`--disk: must be a whole number of MB (1K is 0.0009766 MB) (got "1K")`:                 {"run", "--disk", "1K", "x.py"},
		`--timeout: must be ` + timeRule + ` (got "1x")`:                                       {"run", "--timeout", "1x", "x.py"},
		`--max-life: must be ` + timeRule + ` (got "soon")`:                                    {"session", "new", "--max-life", "soon"},
		`--cpus: must be a number > 0, such as 1.5 (got "0")`:                                  {"run", "--cpus", "0", "x.py"},
		`--cpus: must not be given with --cpu`:                                                 {"run", "--cpus", "1.5", "--cpu", "3", "x.py"},
		`--quiet: must be true or false (got "maybe")`:                                         {"run", "--quiet=maybe", "x.py"},
		`--cpu: must be a whole number of shares, 1024 for one (--cpus takes 1.5) (got "1.5")`: {"run", "--cpu", "1.5", "x.py"},
		`--requirements: must not be empty`:                                                    {"session", "new", "--requirements", ""},
		`--requirements: must not be empty (of an install)`:                                    {"session", "install", "ctx-1", "idna", "--requirements", ""},
	} {
		want, _, _ = strings.Cut(want, " (of")
		if o := execute(t, t.Context(), app.Bundle{}, "", append(args, "--server", "http://localhost:1")...); o.status == 0 || o.stderr != "python-executor: "+want+"\n" {
			t.Errorf("%v: %+v", args, o)
		}
	}
}
