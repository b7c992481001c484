package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testsOf returns the names of all tests of the repository.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		raw, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(raw, -1) {
			names[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// transcriptsOf returns the entries of the transcripts, as FILE: NAME.
func transcriptsOf(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob("../tests/testdata/mcp/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var entries []struct{ Name string }
		if err := json.Unmarshal(raw, &entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names[filepath.Base(file)+": "+e.Name] = true
		}
	}
	return names
}

// rulesOf returns the rules of the contract, the scripts of the CLI's tests with the points that their comments name, and the parts of the gate.
func rulesOf(t *testing.T) map[string]bool {
	t.Helper()
	contract, err := os.ReadFile("../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^\| ([A-Z]{2}-\d+) \|`).FindAllSubmatch(contract, -1) {
		names[string(found[1])] = true
	}
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	point := regexp.MustCompile(`(?m)^# (.+)$`)
	for _, script := range scripts {
		raw, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		names[filepath.Base(script)] = true
		commands, _, _ := strings.Cut(string(raw), "\n-- ")
		for _, found := range point.FindAllStringSubmatch(commands, -1) {
			names[filepath.Base(script)+": "+found[1]] = true
		}
	}
	parts, err := os.ReadFile("../tools/gate/parts.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`\{Name: "([a-z0-9-]+)", Tier: Gate`).FindAllSubmatch(parts, -1) {
		names["gate: "+string(found[1])] = true
	}
	return names
}

func TestEveryStatementHasACheckThatExists(t *testing.T) {
	raw, err := os.ReadFile("../docs/specifications.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, transcripts, rules := testsOf(t), transcriptsOf(t), rulesOf(t)
	quoted := regexp.MustCompile("`([^`]+)`")
	result := regexp.MustCompile(`^(holds(: .+)?|open: .+|\[decision \d+\]\((decisions/[0-9a-z-]+\.md)\): .+)$`)
	rows := 0
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| statement |") {
			continue
		}
		rows++
		columns := strings.Split(strings.Trim(line, "|"), " | ")
		if len(columns) != 3 {
			t.Errorf("%d columns, want 3: %s", len(columns), line)
			continue
		}
		checks := quoted.FindAllStringSubmatch(columns[1], -1)
		// What is missing may have nothing that checks it.
		if open := strings.HasPrefix(strings.TrimSpace(columns[2]), "open: "); len(checks) == 0 && (!open || strings.TrimSpace(columns[1]) != "none") {
			t.Errorf("no check: %s", line)
		}
		for _, c := range checks {
			if !tests[c[1]] && !transcripts[c[1]] && !rules[c[1]] {
				t.Errorf("the check %q does not exist: %s", c[1], line)
			}
		}
		found := result.FindStringSubmatch(strings.TrimSpace(columns[2]))
		if found == nil {
			t.Errorf("the result is not holds, open or a decision: %s", line)
		} else if found[3] != "" {
			if _, err := os.Stat(filepath.Join("../docs", found[3])); err != nil {
				t.Error(err)
			}
		}
	}
	if rows < 390 {
		t.Errorf("%d statements, want the table of five documents", rows)
	}
}

// TestNoPageSaysPublished holds as long as nothing is on an index. A release changes the pages and this test.
func TestNoPageSaysPublished(t *testing.T) {
	pages := []string{"../README.md", "../sdk/python/README.md", "../examples/backends/python/README.md"}
	more, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	claim := regexp.MustCompile(`(?i)\bpublished\b|pip install '?python-executor-client|docker pull python-executor`)
	for _, page := range append(pages, more...) {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if claim.MatchString(line) && filepath.Base(page) != "specifications.md" {
				t.Errorf("%s: %s", page, line)
			}
		}
	}
}
