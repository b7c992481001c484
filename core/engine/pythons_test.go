package engine

import (
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestAPythonThatIsInstalledWhenItIsAskedForIsTaken(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		caps := fake.DefaultCapabilities()
		caps.Images, caps.PythonVersions, caps.PythonDownloads = false, []string{"3.12", "3.11"}, []string{"3.15", "3.14"}
		r := newRig(t, setup{backend: infoBackend{capabilities: &caps}})
		requires := func(versions string) string { return "# /// script\n# requires-python = '" + versions + "'\n# ///" }
		for want, spec := range map[string]executor.Spec{
			"3.15": {Code: "x", PythonVersion: "3.15"},
			"3.12": {Code: requires(">=3.11")}, // one at hand comes first
			"3.14": {Code: requires(">=3.13,<3.15")},
			"":     {Code: "x", Image: "python:3.14-slim"},
		} {
			if x, err := r.Submit(t.Context(), spec, executor.Input{}); err != nil || x.Spec.PythonVersion != want {
				t.Errorf("%+v has Python %q, %v, want %q", spec, x.Spec.PythonVersion, err, want)
			}
		}
		const versions = "3.12, 3.11 (at hand), or 3.15, 3.14 (installed when it is asked for)"
		for _, spec := range []executor.Spec{{Code: "x", PythonVersion: "3.9"}, {Code: "x", Image: "python:3.9"}, {Code: requires("<3")}} {
			if _, err := r.Submit(t.Context(), spec, executor.Input{}); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), versions) {
				t.Errorf("%+v: %v, want %s", spec, err, versions)
			}
		}
	})
}
