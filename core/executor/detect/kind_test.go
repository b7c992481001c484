package detect

import (
	"bytes"
	"strings"
	"testing"
)

func TestObviouslyWrongKindsAreNoPrograms(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.ipynb", "A.IPYNB", "notes.txt", "x/README.md", "d.json", "d.csv", "c.toml", "c.yaml", "p.png", "i.svg", "x.py.txt", "a.rb", "a.TS", "x/a.cpp", "a.exe", "a.ps1"} {
		if got := NotAProgram(name); !strings.HasPrefix(got, "must be a program") || !strings.Contains(got, ", not ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := NotAProgram("a.ipynb"); !strings.Contains(got, "nbconvert") {
		t.Errorf("a notebook gets no hint: %q", got)
	}
	for _, name := range []string{"main.py", "run", "bin/tool", "a.pyw", "a.pyz", "a.pyc", "a.zip", "a.sh", "a.js", ".hidden", "txt", "a.txt.py", "folder.txt/main", "v1.2"} {
		if got := NotAProgram(name); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAGuessedEntrypointIsCalledOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		files      []string
		entrypoint string
		guessed    bool
	}{
		{[]string{"a.py", "", "b.py", ""}, "a.py", true},
		{[]string{"pkg/a.py", "", "b.py", ""}, "pkg/a.py", true},
		{[]string{"a.py", ""}, "a.py", false},
		{[]string{"a.py", "", "a.py", "again"}, "a.py", false},
		{[]string{"a.py", "", "notes.txt", ""}, "a.py", false},
		{[]string{"a.py", "", "b.py", "", "main.py", ""}, "main.py", false},
		{[]string{"a.py", "", "b.py", "", "__main__.py", ""}, "__main__.py", false},
		{[]string{"a.py", "", "b.py", "", "b.py", "->a.py"}, "a.py", false},
	} {
		found, err := Tar(bytes.NewReader(archive(t, c.files...)), Ask{})
		if err != nil || found.Entrypoint != c.entrypoint || found.Guessed != c.guessed {
			t.Errorf("%q: %+v, %v", c.files, found, err)
		}
	}
	if found, err := Tar(bytes.NewReader(archive(t, "a.py", "", "b.py", "")), Ask{Entrypoint: "b.py"}); err != nil || found.Guessed {
		t.Errorf("an entrypoint that was named: %+v, %v", found, err)
	}
}
