package workers

import (
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestTheCapabilitiesAreThoseThatAllWorkersHave(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		s.worker(2, fake.Options{Version: "1", Images: []string{"a", "b"}, Capabilities: capable(attaches, func(can *executor.Capabilities) {
			can.Images, can.PythonVersions, can.Languages = false, []string{"3.13", "3.12"}, []executor.Language{"python", "shell"}
			can.HostDirectories, can.LocalPath = true, true
		})})
		s.worker(3, fake.Options{Version: "2", Images: []string{"b", "c"}, Capabilities: capable(func(can *executor.Capabilities) {
			can.Images, can.PythonVersions, can.Memory, can.Isolation = false, []string{"3.12", "3.11"}, false, executor.IsolationNone
		})})
		s.worker(4, fake.Options{Version: "2", Capabilities: capable(func(can *executor.Capabilities) { can.Isolation, can.PythonVersions = executor.IsolationVM, nil })})
		i := info(t, s.pool())
		can := i.Capabilities
		if can.Attach || can.Memory || can.Images || can.HostDirectories || !can.Disk || !can.Sessions || !can.LocalPath || can.Isolation != executor.IsolationNone {
			t.Errorf("%+v", can)
		}
		if !slices.Equal(can.PythonVersions, []string{"3.12"}) || !slices.Equal(can.Languages, []executor.Language{"python"}) || !slices.Equal(i.Images, []string{"b"}) {
			t.Errorf("%v, %v, %v", can.PythonVersions, can.Languages, i.Images)
		}
		if i.Capacity != 9 || i.Version != "1, 2" || !slices.Contains(i.Warnings, "config.memory_mb is not enforced") || i.Type != "nomad" || i.Name != "nomad" {
			t.Errorf("%+v", i)
		}
	})
}
