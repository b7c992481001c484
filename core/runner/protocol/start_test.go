package protocol

import (
	"reflect"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAStartHasWhatItsSpecSays(t *testing.T) {
	t.Parallel()
	limits := executor.Limits{Timeout: time.Minute, MemoryBytes: 1 << 20}
	spec := executor.Spec{
		Command: []string{"sh"}, Entrypoint: "a.py", Code: "1", Args: []string{"x"}, Env: map[string]string{"A": "b"}, HostDirectory: "/d",
		Outputs: []string{"*.csv"}, OutputsChanged: true, FilesChanged: true, SampleInterval: time.Second, InterruptOnCancel: true,
	}
	want := Start{
		ExecutionID: "id", Command: spec.Command, Entrypoint: "a.py", Code: "1", Args: spec.Args, Env: spec.Env, Directory: "/d",
		Limits: limits, Outputs: spec.Outputs, OutputsChanged: true, SampleInterval: time.Second, Interrupt: true,
	}
	if got := NewStart(executor.Job{ID: "id", Spec: spec, Limits: limits}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	spec.Session = "s"
	want.Session, want.FilesChanged = true, true
	if got := NewStart(executor.Job{ID: "id", Spec: spec, Limits: limits}); !reflect.DeepEqual(got, want) {
		t.Errorf("in a session: got %+v, want %+v", got, want)
	}
}
