package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestEachFaultCanBePutIn holds the table: a change of the code or the rename of a test must take its faults along.
func TestEachFaultCanBePutIn(t *testing.T) {
	t.Parallel()
	faults, err := Load(".", "*")
	if err != nil {
		t.Error(err)
	}
	if len(faults) == 0 {
		t.Fatal("there are no faults")
	}
	for _, fault := range faults {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			if err := Applies(t.Context(), root, fault.Path, true); err != nil {
				t.Errorf("the patch does not apply any more: %v", err)
			}
			for _, test := range fault.Tests {
				if exists, err := test.Exists(root); err != nil || !exists {
					t.Errorf("no test is named by %q (%v)", test, err)
				}
			}
		})
	}
}

func TestAFaultHasAllItsLines(t *testing.T) {
	t.Parallel()
	const diff = "\ndiff --git a/core/x.go b/core/x.go\n--- a/core/x.go\n+++ b/core/x.go\n@@ -1 +1 @@\n-a\n+b\n"
	const tests = "tests: core ./engine -run ^TestX$\n"
	for text, want := range map[string]string{
		"suffers: s\n" + tests + "tier: gate\n" + diff:                      "",
		"suffers: s\n" + tests + tests + "tier: long\n" + diff:              "",
		tests + "tier: gate\n" + diff:                                       "suffers: is missing",
		"suffers: s\ntier: gate\n" + diff:                                   "tests: is missing",
		"suffers: s\n" + tests + diff:                                       "tier: must be gate or long",
		"suffers: s\n" + tests + "tier: gates\n" + diff:                     "tier: must be gate or long",
		"suffers: s\n" + tests + "tier: gate\n":                             "no diff",
		"suffers: s\n" + tests + "tier: gate\n\ndiff --git a/x b/x\n":       "changes no file",
		"suffers: s\nsuffers: s\n" + tests + "tier: gate\n" + diff:          "there twice",
		"suffers: s\n" + tests + "tier: gate\nnote: n\n" + diff:             "not known",
		"suffers: s\ntests: core ./engine\ntier: gate\n" + diff:             "must be MODULE PACKAGE -run REGEX",
		"suffers: s\ntests: backend-uv . -run ^TestX$\ntier: gate\n" + diff: "",
		"suffers: s\ntests: kore . -run ^TestX$\ntier: gate\n" + diff:       "MODULE must be one of",
		"suffers: s\nthe tests notice it\n" + tests + "tier: gate\n" + diff: "not KEY: VALUE",
	} {
		_, err := parse("a-name", []byte(text))
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := parse("A_Name", []byte("suffers: s\n"+tests+"tier: gate\n"+diff)); err == nil {
		t.Error("a name that is not in kebab case is taken")
	}
}

func TestATestIsFoundByItsName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "core/engine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "core/engine/x_test.go"), []byte("package engine\n\nfunc TestThere(t *testing.T) {\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]bool{"^TestThere$": true, "^TestThere$/sub": true, "^TestGone$": false, "There|Gone": true} {
		test := Test{Module: "core", Args: []string{"./engine", "-run", pattern}}
		if exists, err := test.Exists(dir); err != nil || exists != want {
			t.Errorf("%s: %v, %v", pattern, exists, err)
		}
	}
}

// TestACopyIsTakenBack puts a fault into a copy and takes it out again. The tree that was copied stays as it is.
func TestACopyIsTakenBack(t *testing.T) {
	t.Parallel()
	faults, err := Load(".", "*")
	if err != nil || len(faults) == 0 {
		t.Fatal("no faults", err)
	}
	fault := faults[0]
	read := func(root string) string {
		data, err := os.ReadFile(filepath.Join(root, fault.Files[0]))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	before := read(root)
	w, err := Copy(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Remove() //nolint:errcheck // a temporary folder
	undo, err := w.Apply(t.Context(), fault)
	if err != nil {
		t.Fatal(err)
	}
	if read(w.Root) == before {
		t.Error("the fault is not in the copy")
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if read(w.Root) != before || read(root) != before {
		t.Error("the fault was not taken out again")
	}
	if undo, err = w.Write(fault.Files[0], []byte("package x\n")); err != nil || read(w.Root) != "package x\n" {
		t.Fatal(err)
	}
	if err := undo(); err != nil || read(w.Root) != before {
		t.Error("what was written was not taken out again:", err)
	}
}
