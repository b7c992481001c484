package cmd

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/cli/internal/app"
)

func TestAFlagOfAnotherKindIsNamedWithItsUnit(t *testing.T) {
	for want, args := range map[string][]string{
		`--memory: must be a number of MB, or a number with M or G (got "2T")`: {"run", "--memory", "2T", "x.py"},
		`--timeout: must be a number of seconds (got "1m")`:                    {"run", "--timeout", "1m", "x.py"},
		`--quiet: must be true or false (got "maybe")`:                         {"run", "--quiet=maybe", "x.py"},
		`--cpu: must be a whole number (got "1.5")`:                            {"run", "--cpu", "1.5", "x.py"},
		`--requirements: must not be empty`:                                    {"session", "new", "--requirements", ""},
		`--requirements: must not be empty (of an install)`:                    {"session", "install", "ctx-1", "idna", "--requirements", ""},
	} {
		want, _, _ = strings.Cut(want, " (of")
		if o := execute(t, t.Context(), app.Bundle{}, "", append(args, "--server", "http://localhost:1")...); o.status == 0 || o.stderr != "python-executor: "+want+"\n" {
			t.Errorf("%v: %+v", args, o)
		}
	}
}
