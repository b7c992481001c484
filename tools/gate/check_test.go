package main

import (
	"strings"
	"testing"
)

func TestCheckTestsWhatChangedAndWhatImportsIt(t *testing.T) {
	all := map[string]goPackage{
		".":   {"m", "m", true, []string{"m/a"}},
		"./a": {"m/a", "m/a", true, []string{"fmt", "m/b"}},
		"./b": {"m/b", "m/b", false, nil},
		"./c": {"m/c", "m/c", true, nil},
	}
	for _, c := range []struct{ changed, lint, test string }{
		{"", "", ""},
		{"README.md other/x.go", "", ""},
		{"m/c/c.go", "./c", "./c"},
		{"m/b/b.go", "./b", "./a"},
		{"m/a/a_test.go", "./a", ". ./a"},
		{"m/a/testdata/deep/x", "./a", ". ./a"},
		{"m/main.go", ".", "."},
		{"m/go.sum", ". ./a ./b ./c", ". ./a ./c"},
	} {
		lint, test := affected(all, "m", strings.Fields(c.changed))
		if strings.Join(lint, " ") != c.lint || strings.Join(test, " ") != c.test {
			t.Errorf("%q: lint %v, test %v; want %s, %s", c.changed, lint, test, c.lint, c.test)
		}
	}
}
