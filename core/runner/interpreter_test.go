//go:build linux

package runner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestTheInterpreterOfAPathIsFound(t *testing.T) {
	r := startRunner(t, testConfig(t))
	path := func(programs map[string]string) string {
		dir := workRoot(t)
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run what is there
			t.Fatal(err)
		}
		for name, text := range programs {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const tells = `echo '{"path": "/a/python", "version": "3.12.1"}'`
	for _, c := range []struct {
		name     string
		programs map[string]string
		want     Interpreter
		code     executor.Code
	}{
		{"python3", map[string]string{"python3": tells, "python": "exit 1"}, Interpreter{"/a/python", "3.12.1"}, ""},
		{"python, where python3 is broken", map[string]string{"python3": "exit 1", "python": tells}, Interpreter{"/a/python", "3.12.1"}, ""},
		{"none", nil, Interpreter{}, ""},
		{"one that does not answer", map[string]string{"python3": "exec /bin/sleep 1000"}, Interpreter{}, executor.Unavailable},
	} {
		start := Start{Path: path(c.programs), Limits: limits()}
		if c.code != "" {
			start.Limits.Timeout = 100 * time.Millisecond
		}
		if got, err := r.Interpreter(t.Context(), start); got != c.want || executor.CodeOf(err) != c.code {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	i := Interpreter{"/a/python", "3.12.1"}
	if i.Minor() != "3.12" || i.VersionOrNone() != "3.12.1" || (Interpreter{}).Minor() != "" || (Interpreter{}).VersionOrNone() != "none" {
		t.Errorf("%s, %s", i.Minor(), i.VersionOrNone())
	}
}
