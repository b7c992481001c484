package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// repository is a small one, with a table of its own.
type repository struct {
	t     *testing.T
	dir   string
	parts []Part
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t: t, dir: t.TempDir(), parts: []Part{
		{Name: "long-a", Tier: Long, Dir: "m", Test: []string{"-race", "./a"}},
		{Name: "long-c", Tier: Long, Dir: "m", Test: []string{"./c"}, Inputs: []string{"data/*.txt"}},
		{Name: "script", Tier: Long, Command: []string{"./script"}, Inputs: []string{"script", "scripts/"}},
		{Name: "gate", Tier: Gate, Command: []string{"true"}, Inputs: []string{"gate-only"}},
		{Name: "gate-b", Tier: Gate, Dir: "m", Test: []string{"./b"}},
	}}
	for name, text := range map[string]string{
		"m/go.mod": "module m\n\ngo 1.26\n", "m/a/a.go": "package a\n\nimport _ \"m/b\"\n", "m/a/a_test.go": "package a\n", "m/a/testdata/deep/x": "",
		"m/b/b.go": "package b\n\nimport _ \"embed\"\n\n//go:embed text/x\nvar X string\n", "m/b/text/x": "", "m/c/c.go": "package c\n",
		"data/x.txt": "", "script": "", "scripts/deep/y": "", "gate-only": "", "LICENSE": "", "docs/page.md": "", ledgerPath: "# a comment\n",
	} {
		r.write(name, text)
	}
	r.git("init", "-q", "-b", "main")
	r.commit()
	return r
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@invalid"}, args...)...)
	cmd.Dir = r.dir
	if text, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, text)
	}
}

func (r *repository) commit() {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "change", "--allow-empty")
}

// keys returns the keys of the long parts.
func (r *repository) keys(machine ...string) map[string]string {
	r.t.Helper()
	t, err := readTree(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	keys, err := t.keys(r.parts, machine...)
	if err != nil {
		r.t.Fatal(err)
	}
	delete(keys, "gate")
	delete(keys, "gate-b")
	return keys
}

// changed returns the names of the parts whose keys differ.
func changed(before, after map[string]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func TestAKeyChangesWithWhatAPartReads(t *testing.T) {
	t.Setenv("GOWORK", "off")
	r := newRepository(t)
	before := r.keys("go1", "6.18")
	for _, part := range []string{"long-a", "long-c", "script"} {
		if len(before[part]) != 16 {
			t.Errorf("key of %s: %q", part, before[part])
		}
	}
	if got := changed(before, r.keys("go1", "6.19")); got != "long-a long-c script" {
		t.Errorf("another kernel: %q", got)
	}
	for _, c := range []struct{ file, parts string }{
		{"m/a/a.go", "long-a"}, {"m/a/a_test.go", "long-a"}, {"m/a/new_test.go", "long-a"}, {"m/a/testdata/deep/x", "long-a"},
		{"m/b/b.go", "long-a"}, {"m/b/new.go", "long-a"}, {"m/b/text/x", "long-a"}, {"m/b/b_test.go", ""}, {"m/c/c.go", "long-c"}, {"m/go.mod", "long-a long-c"},
		{"data/x.txt", "long-c"}, {"script", "script"}, {"scripts/deep/y", "script"}, {"scripts/new", "script"},
		{"gate-only", ""}, {"LICENSE", ""}, {"docs/page.md", ""}, {ledgerPath, ""},
		{"nobody-knows-me", "long-a long-c script"},
	} {
		before := r.keys()
		text, _ := os.ReadFile(filepath.Join(r.dir, c.file))
		if strings.HasSuffix(c.file, ".go") && len(text) == 0 {
			text = []byte("package " + filepath.Base(filepath.Dir(c.file)) + "\n")
		}
		r.write(c.file, string(text)+"\n")
		// A part that ran on files that no commit has shows nothing about the commit.
		for name, key := range r.keys() {
			if touched := slices.Contains(strings.Fields(c.parts), name); touched != (key == "") && (touched || key != before[name]) {
				t.Errorf("%s, not committed: key of %s is %q", c.file, name, key)
			}
		}
		r.commit()
		if got := changed(before, r.keys()); got != c.parts {
			t.Errorf("%s: %q have other keys, want %q", c.file, got, c.parts)
		}
		if c.file == "nobody-knows-me" {
			continue
		}
	}
}

func TestALongPartIsDueUntilItHasPassed(t *testing.T) {
	t.Setenv("GOWORK", "off")
	r := newRepository(t)
	due := func() string {
		t.Helper()
		names, _, err := dueParts(r.dir, r.parts)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names, " ")
	}
	run := func(name string, status Status) {
		t.Helper()
		_, before, err := dueParts(r.dir, r.parts)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.parts, func(p Part) bool { return p.Name == name })
		if err := record(r.dir, r.parts, []Result{{Part: r.parts[i], Status: status, Time: 70 * time.Second}}, before); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, want string) {
		t.Helper()
		if got := due(); got != want {
			t.Errorf("%s: due %q, want %q", when, got, want)
		}
	}
	expect("at first", "long-a long-c script")
	run("long-a", Passed)
	run("script", Failed)
	run("gate", Passed)
	expect("after one has passed", "long-c script")
	r.commit() // the ledger
	expect("after the ledger was committed", "long-c script")
	run("script", Passed)
	run("long-c", Passed)
	expect("after all have passed", "")
	run("long-c", Failed)
	expect("after one has failed again", "long-c")
	run("long-c", Passed)
	r.write("script", "other")
	run("script", Passed)
	expect("while an input is not committed", "script")
	r.commit()
	expect("after a change that nothing ran with", "script")
	text, err := os.ReadFile(filepath.Join(r.dir, ledgerPath))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "gate ") || strings.Count(string(text), "\nscript ") != 2 || !strings.Contains(string(text), " 70 ok ") {
		t.Errorf("the ledger:\n%s", text)
	}
}

func TestEveryFileOfTheRepositoryBelongsToAPart(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOWORK", "") // the parts of other modules need the workspace
	tree, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	known, _, err := tree.known(parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range tree.blobs {
		if !matches(known, b.path) {
			t.Errorf("%s belongs to no part (tools/gate/parts.go): it makes every long part due", b.path)
		}
	}
}
