package executor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// noted is a Service that keeps the requests about scripts that were refused.
type noted struct {
	executor.Service
	refused []executor.RefusedScript
}

func (n *noted) Scripts(ctx context.Context) ([]executor.Script, error) {
	if r, ok := executor.RefusedScriptFrom(ctx); ok {
		n.refused = append(n.refused, r)
	}
	return nil, nil
}

func TestARefusedScriptIsNotedWithinBounds(t *testing.T) {
	var n noted
	if _, err := n.Scripts(t.Context()); err != nil || n.refused != nil {
		t.Errorf("a request that was not refused is noted: %v, %v", n.refused, err)
	}
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		path           string
		args           []string
		pathLen, count int
	}{
		{"/s", []string{"a", ""}, 2, 2},
		{long, nil, 4096, 0},
		{"/s", []string{"a", long, "b"}, 2, 1},
		{"/s", []string{strings.Repeat("x", 4095), ""}, 2, 1},
	} {
		executor.NoteRefusedScript(t.Context(), &n, executor.RefusedScript{Tool: "run_script", Path: c.path, Args: c.args, Code: executor.Invalid})
		r := n.refused[len(n.refused)-1]
		if r.Tool != "run_script" || r.Code != executor.Invalid || len(r.Path) != c.pathLen || len(r.Args) != c.count {
			t.Errorf("path of %d bytes and %d args: noted as %.100v", len(c.path), len(c.args), r)
		}
	}
}
