package cmd

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInputThatNobodyReadsIsSeenWithoutReading(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if hasInput(r) {
		t.Error("an empty pipe has input")
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !hasInput(r) {
			t.Error("a pipe with a byte has no input")
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(r); string(raw) != "x" || err != nil {
		t.Errorf("the pipe has %q, %v after the looks", raw, err)
	}
	if hasInput(r) {
		t.Error("a pipe that has ended has input")
	}
	name := filepath.Join(t.TempDir(), "input")
	for text, want := range map[string]bool{"": false, "x": true} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := hasInput(f); got != want {
			t.Errorf("a file with %q has input: %v", text, got)
		}
		_ = f.Close()
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if hasInput(null) || hasInput(strings.NewReader("x")) || hasInput(nil) {
		t.Error("/dev/null, a reader or nil has input")
	}
}
