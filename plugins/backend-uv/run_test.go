package uvbackend

import (
	"archive/tar"
	"io"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner"
)

// trailingJournal is a Sink that takes trailing events apart from the others.
type trailingJournal struct{ journal, trailing journal }

func (j *trailingJournal) Emit(e executor.Event) error               { return j.journal.Emit(e) }
func (j *trailingJournal) Artifact(h *tar.Header, r io.Reader) error { return j.journal.Artifact(h, r) }
func (j *trailingJournal) Trail(e executor.Event) error              { return j.trailing.Emit(e) }

func TestATrailingEventStaysOne(t *testing.T) {
	t.Parallel()
	start := &runner.Start{PythonVersion: "3.12.1", Requirements: []string{"six==1.16.0"}}
	plain, trailing := &journal{}, &trailingJournal{}
	for name, c := range map[string]struct {
		sink executor.Sink
		into *journal
	}{"a sink that takes it": {trailing, &trailing.trailing}, "another sink": {plain, plain}} {
		w := &watchedSink{Sink: c.sink, start: start}
		if err := w.Trail(executor.Event{Body: executor.Started{}}); err != nil || !w.touched {
			t.Errorf("%s: %v, touched: %v", name, err, w.touched)
		}
		if s := c.into.started(); s == nil || s.PythonVersion != "3.12.1" || len(s.Requirements) != 1 {
			t.Errorf("%s: got %+v", name, s)
		}
	}
	if len(trailing.journal.events) > 0 {
		t.Error("the trailing event was emitted, too")
	}
}
