package jobs

import (
	"archive/tar"
	"io"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// eventSink keeps events.
type eventSink struct{ events []executor.Event }

func (s *eventSink) Emit(e executor.Event) error {
	s.events = append(s.events, e.Clone())
	return nil
}

func (s *eventSink) Artifact(*tar.Header, io.Reader) error { return nil }

func TestEventsOfUnknownKindsArePassedOn(t *testing.T) {
	t.Parallel()
	unknown := executor.Unknown{Name: "weather", Raw: []byte(`{"b":2}`)}
	for resumed, want := range map[bool]int{false: 1, true: 0} { // in the second case it may be in the log
		sink := &eventSink{}
		x := &execution{sink: sink, resumed: resumed}
		if err := x.emit(executor.Event{Seq: 7, Body: unknown}, "alloc"); err != nil {
			t.Fatal(err)
		}
		if len(sink.events) != want {
			t.Errorf("resumed %v: %d events, want %d", resumed, len(sink.events), want)
		}
		if want == 1 && (sink.events[0].Seq != 0 || sink.events[0].Body.Kind() != "weather") {
			t.Errorf("%+v", sink.events[0])
		}
	}
}
