package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const mutated = `package x

func f(a, b int, s string) int {
	if a <= b && s == "x"+s {
		return a - b
	}
	for a < b {
		a++
	}
	return -a
}
`

// TestMutantsAreReadAndWritten reads a report in gremlins' form and writes each mutant.
func TestMutantsAreReadAndWritten(t *testing.T) {
	t.Parallel()
	w := &Workspace{Root: t.TempDir()}
	file := filepath.Join(w.Root, "core/x.go")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(mutated), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := w.parse([]byte(`{"files":[{"file_name":"_code/core/x.go","mutations":[
		{"type":"CONDITIONALS_BOUNDARY","line":4,"column":7},{"type":"CONDITIONALS_NEGATION","line":4,"column":7},
		{"type":"INVERT_LOGICAL","line":4,"column":12},{"type":"ARITHMETIC_BASE","line":4,"column":23},
		{"type":"ARITHMETIC_BASE","line":5,"column":12},{"type":"INVERT_NEGATIVES","line":5,"column":12},
		{"type":"INCREMENT_DECREMENT","line":8,"column":4},{"type":"INVERT_NEGATIVES","line":10,"column":9},
		{"type":"A_KIND_OF_LATER","line":10,"column":9}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list {
		undo, err := w.Put(m)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(strings.Split(string(data), "\n")[m.Line-1]))
		if err := undo(); err != nil {
			t.Fatal(err)
		}
	}
	// A string is not subtracted, one subtraction is one mutant, and a kind that is not known is left out.
	want := []string{`if a < b && s == "x"+s {`, `if a > b && s == "x"+s {`, `if a <= b || s == "x"+s {`, `return a + b`, `a--`, `return +a`}
	if !slices.Equal(got, want) {
		t.Errorf("mutants:\n%q\nwant\n%q", got, want)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != mutated {
		t.Error("the mutants were not taken out again", err)
	}
}

// TestASeedChoosesTheSameMutantsInAChangedTree moves all lines, and changes one.
func TestASeedChoosesTheSameMutantsInAChangedTree(t *testing.T) {
	t.Parallel()
	order := func(code string, lines ...int) (chosen []string) {
		w := &Workspace{Root: t.TempDir()}
		if err := os.WriteFile(filepath.Join(w.Root, "x.go"), []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
		var list []Mutant
		for _, line := range lines {
			list = append(list, Mutant{File: "x.go", Line: line, Column: 3, Kind: "ARITHMETIC_BASE", From: "+"})
		}
		if err := w.Shuffle(list, 7); err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			chosen = append(chosen, strings.Split(code, "\n")[m.Line-1])
		}
		return chosen
	}
	before := order("a + b\nc + d\ne + f\na + b\ng + h\n", 1, 2, 3, 4, 5)
	after := order("\n\na + b\nc + D\ne + f\na + b\ng + h\n", 3, 4, 5, 6, 7)
	same := func(list []string) []string {
		return slices.DeleteFunc(list, func(line string) bool { return strings.HasPrefix(line, "c") })
	}
	if !slices.Equal(same(before), same(after)) {
		t.Errorf("the order was %q, and is %q", before, after)
	}
}

func TestOnlyProductCodeIsMutated(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"core/engine/engine.go": true, "plugins/backend-uv/slot.go": true, "sdk/go/events.go": true, "cli/main.go": true,
		"core/engine/engine_test.go": false, "core/executor/fake/run.go": false, "core/executor/backendtest/suite.go": false,
		"tests/faults/fault.go": false, "plugins/backend-docker/dockertest/dockertest.go": false, "core/runner/binary/none_other.go": false,
		"core/executor/wire/internal/pb/plugin.pb.go": false, "core/peer/table_other.go": false, "core/peer/table_linux.go": true,
	} {
		if got := isMutable(root, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
