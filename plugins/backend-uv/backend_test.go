package uvbackend

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestHello(t *testing.T) {
	b := backend(t, nil)
	out, result := succeeds(t, b, executor.Spec{Code: "print('hello')"})
	if out != "hello\n" {
		t.Errorf("got %q", out)
	}
	if result.PythonVersion == "" || len(result.Requirements) != 0 {
		t.Errorf("version %q, requirements %q", result.PythonVersion, result.Requirements)
	}
	info, err := b.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", info)
	if !strings.HasPrefix(info.Details["uv"], "not needed") {
		t.Errorf("uv was looked for: %s", info.Details["uv"])
	}
}
