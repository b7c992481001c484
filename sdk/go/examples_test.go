package pyexec_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheExamplesCompileAndRun builds the programs of examples/go, which are a module of their own, and runs them.
func TestTheExamplesCompileAndRun(t *testing.T) {
	t.Parallel()
	source, err := filepath.Abs(filepath.Join("..", "..", "examples", "go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err != nil {
		t.Skipf("the examples are not here (a module outside its repository): %v", err)
	}
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./...") //nolint:gosec // our own sources
	build.Dir, build.Env = source, append(os.Environ(), "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	project := t.TempDir()
	if err := os.WriteFile(filepath.Join(project, "main.py"), []byte("print(1)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wants := map[string]string{
		"hello":   "42\n",
		"project": "working\n",
		"session": "10\n",
		"jobs":    "job 0 succeeded\njob 1 succeeded\njob 2 succeeded\njob 3 succeeded\n",
	}
	server := pretend()
	defer server.Close()
	programs, err := os.ReadDir(bin)
	if err != nil || len(programs) != len(wants) {
		t.Fatalf("%d programs, error %v", len(programs), err)
	}
	for _, program := range programs {
		name := strings.TrimSuffix(program.Name(), ".exe")
		var args []string
		if name == "project" {
			args = []string{project}
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, program.Name()), args...) //nolint:gosec // built above
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PYEXEC_SERVER="+server.URL)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		stdout, err := cmd.Output()
		if err != nil || string(stdout) != wants[name] {
			t.Errorf("%s printed %q, want %q, error %v\n%s", name, stdout, wants[name], err, stderr.String())
		}
		if name == "project" {
			if raw, err := os.ReadFile(filepath.Join(cmd.Dir, "out", "out.txt")); err != nil || string(raw) != "42\n" {
				t.Errorf("project saved %q, error %v", raw, err)
			}
		}
	}
}
