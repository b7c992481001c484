package archive

import (
	"strings"
	"testing"
)

func TestGlobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		yes, no string
	}{
		{"out.txt", "out.txt", "a/out.txt out.txt.bak"},
		{"out", "out out/a out/b/c", "a/out outer"},
		{"*/plots", "a/plots a/plots/b", "plots/a a/b"},
		{"out*", "out outer", "out/a"},
		{`a\*b`, "a*b/c", "axb/c"},
		{".", "a a/b .c", ""},
		{"*.txt", "a.txt .txt", "a/b.txt a.csv"},
		{"**/*.txt", "a.txt a/b.txt a/b/c/d.txt", "a.csv a/b.csv"},
		{"out/**", "out out/a out/a/b/c", "a/out/b outer/a"},
		{"out/", "out/a out/a/b", "in/a"},
		{"a/**/z", "a/z a/b/z a/b/c/z", "a/b z b/a/z"},
		{"**", "a a/b/c", ""},
		{"**/**/x", "x a/x a/b/c/x", "y"},
		{"a?c/[x-z]*", "abc/x1 abc/z", "abc/a ac/x abc/x/y"},
		{"./a/*.py", "a/b.py", "b.py"},
		{"a/./b//c", "a/b/c", "b/c"},
		{"./", "a a/b", ""},
		{`a\*b`, "a*b", "axb"},
		{"**/a/**/b", "a/b x/a/b x/a/y/z/b", "a x/b"},
	} {
		g, err := ParseGlobs([]string{c.pattern})
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for name := range strings.FieldsSeq(c.yes) {
			if !g.match(name) {
				t.Errorf("%q should match %q", c.pattern, name)
			}
		}
		for name := range strings.FieldsSeq(c.no) {
			if g.match(name) {
				t.Errorf("%q should not match %q", c.pattern, name)
			}
		}
	}
}

func TestBadGlobsAreNamed(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "/etc/*", "../x", "a/../b", "a/[", "x[a-"} {
		if _, err := ParseGlobs([]string{"fine", bad}); err == nil || !strings.Contains(err.Error(), "outputs[1]") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzGlob: no pattern takes long, and a name matches itself.
func FuzzGlob(f *testing.F) {
	f.Add("**/a*/**/b/**/**/c*", "a/b/c")
	f.Fuzz(func(_ *testing.T, pattern, name string) {
		if g, err := ParseGlobs([]string{pattern}); err == nil {
			g.match(name)
		}
	})
}
