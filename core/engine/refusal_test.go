package engine

import (
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// A refusal has the reason that the backend itself gives for a limit, and the versions of Python that are at hand and that can be installed.
func TestARefusalGivesTheReasonOfTheBackend(t *testing.T) {
	t.Parallel()
	info := executor.Info{Name: "cluster", Warnings: []string{"disk_mb is not enforced: set job.work: memory"}}
	info.Capabilities.PythonVersions, info.Capabilities.PythonDownloads = []string{"3.12"}, []string{"3.14", "3.9"}
	for _, test := range []struct {
		spec executor.Spec
		want string
	}{
		{executor.Spec{Limits: executor.Limits{DiskBytes: 1}}, "config.disk_mb: not available on backend cluster: disk_mb is not enforced: set job.work: memory"},
		{executor.Spec{Limits: executor.Limits{PIDs: 1}}, "config.pids: not available on backend cluster on this host (python-executor doctor says why)"},
		{executor.Spec{Command: []string{"ls"}}, "command: not available on backend cluster"},
		{executor.Spec{PythonVersion: "3.9"}, ""},
		{executor.Spec{PythonVersion: "3.1"}, `python_version: must be one of 3.12 (at hand), or 3.14, 3.9 (installed when it is asked for) on backend cluster (got "3.1")`},
		{executor.Spec{Image: "python:3.14-slim"}, ""},
	} {
		var invalid, missing executor.Problems
		capable(test.spec, info, &invalid, &missing)
		got := ""
		for _, f := range slices.Concat(invalid, missing) {
			got += f.Field + ": " + f.Message
		}
		if got != test.want {
			t.Errorf("%+v: %s\nwant %s", test.spec, got, test.want)
		}
	}
}
