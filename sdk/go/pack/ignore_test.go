package pack

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestIgnoreAgreesWithGit asks git about every name under every set of rules.
func TestIgnoreAgreesWithGit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		if strings.Contains(os.Getenv("PYEXEC_TEST_REQUIRE"), "git") {
			t.Fatal(err)
		}
		t.Skip("SKIPPED: needs git")
	}
	files := []string{"a", "b.py", "c.log", "d/a", "d/b.py", "d/e/a", "d/e/f.log", "foo/bar", "x/foo/bar", "x/y/foo/bar", "a b", "trail ", "#hash",
		"!bang", "[x]", "x1", "x2", "xa", "deep/a/b/c", "deep/b/c", "sp\\ace", "é.txt", "abc/def/g", "build/out", "d/build"}
	for _, rules := range []string{
		"a", "/a", "a/", "*.log", "!*.log\n*.log", "*.log\n!c.log", "d/*", "d/**", "**/foo/bar", "**/bar", "foo/bar", "/foo", "foo/", "x/**/bar",
		"deep/**/c", "a b", "a\\ b", "trail ", "trail\\ ", "\\#hash", "#hash", "\\!bang", "!bang", "\\[x\\]", "[x]", "x[0-9]", "x[!0-9]", "x[^0-9]",
		"x[[:digit:]]", "x[", "?", "??", "*", "*\n!d/", "*\n!d/\n!d/b.py", "/*\n!/d", "d\n!d/a", "**", "**/", "/**", "é*", "abc/**/g", "d/e/", "e", "/d/e",
		"build", "build/", "\ufeffa", "a\r", "  a", "d/*/f.log", "d/*.log", "", "/", "//", "a**c", "**a", "d/**/**/a", "x[]1]", "x[]", "sp\\\\ace",
	} {
		t.Run(rules, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, f := range files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rules+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("git", "-c", "core.quotePath=false", "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others", "--exclude-standard")
			cmd.Dir = dir
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{}
			for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
				if name != "" {
					want[name] = true
				}
			}
			got := map[string]bool{}
			collect(t, dir, "", inherited(dir), got)
			if !maps.Equal(got, want) {
				t.Errorf("rules %q:\n got %q\nwant %q", rules, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

// collect walks as the walker does, without an archive.
func collect(t *testing.T, dir, at string, sets []ruleSet, got map[string]bool) {
	sets = append(slices.Clip(sets), readRules(filepath.Join(dir, at, ".gitignore"), at, "")...)
	entries, err := os.ReadDir(filepath.Join(dir, at))
	if err != nil {
		t.Fatal(err)
	}
	w := walker{real: dir}
	for _, e := range entries {
		name := filepath.Join(at, e.Name())
		switch {
		case w.leftOut(sets, name, e):
		case e.IsDir():
			collect(t, dir, name, sets, got)
		default:
			got[name] = true
		}
	}
}

func FuzzIgnore(f *testing.F) {
	for _, seed := range []string{"*.log", "!a/**/b[!x]", "[", "\\", "**/", "x[[:alpha:]-]"} {
		f.Add(seed, "a/b")
	}
	f.Fuzz(func(_ *testing.T, rules, name string) {
		sets := []ruleSet{{rules: parseRules([]byte(rules))}}
		ignored(sets, name, false)
		ignored(sets, name, true)
	})
}
