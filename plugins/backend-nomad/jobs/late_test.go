package jobs

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/job"
)

// flooded returns the file of a runner that has written output, collected two files, and ended if whole.
func flooded(t *testing.T, whole bool) string {
	t.Helper()
	dir := t.TempDir()
	w, err := job.NewWriter(dir, "exe_1")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		data := []byte(strings.Repeat("x", 1000))
		err = errors.Join(err, w.Emit(executor.Event{Body: executor.Output{Stream: executor.Stdout, Offset: int64(n) * 1000, Data: data}}))
	}
	for _, name := range []string{"a.txt", "b.txt"} {
		err = errors.Join(err, w.Artifact(&tar.Header{Name: name, Size: 4, Mode: 0o600}, strings.NewReader("kept")))
		err = errors.Join(err, w.Emit(executor.Event{Body: executor.Progress{Phase: executor.PhaseCollect, Message: "one more"}}))
	}
	if whole {
		err = errors.Join(err, w.Result(executor.Result{Status: executor.StatusKilled, Signal: "SIGTERM"}))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, job.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// ended returns an execution whose allocation is over and whose files have content.
func ended(t *testing.T, content string, sink executor.Sink) *execution {
	t.Helper()
	life, end := context.WithCancelCause(t.Context())
	end(errOver)
	return &execution{Backend: &Backend{cluster: clusterOf(t, &fileServer{content: content})}, tracked: &tracked{life: life}, sink: sink}
}

// names keeps the names of artifacts.
type names struct {
	eventSink
	list []string
}

func (n *names) Artifact(h *tar.Header, r io.Reader) error {
	n.list = append(n.list, h.Name)
	_, err := io.Copy(io.Discard, r)
	return err
}

func TestTheFilesOfAStoppedFloodAreKept(t *testing.T) {
	t.Parallel()
	content := flooded(t, true)
	for _, limit := range []int64{1, 64, 300, 2000, 1 << 20} {
		sink := &names{}
		x := ended(t, content, sink)
		records, err := x.lateRecords(t.Context(), "a", "events", limit)
		if err != nil || len(records) != 5 || !records[4].Last() {
			t.Errorf("of the last %d bytes: %d records, %v", limit, len(records), err)
		}
		last, err := x.passLate(t.Context(), "a", "")
		if err != nil || last.Result == nil || strings.Join(sink.list, " ") != "a.txt b.txt" || len(sink.events) != 0 {
			t.Errorf("%+v %v, artifacts %q", last, err, sink.list)
		}
	}
}

func TestARunnerThatWasKilledHasNoLastRecord(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"before it": flooded(t, false), "within it": strings.TrimSuffix(flooded(t, true), "\n"), "at once": "", "within the first": `{"begin":`,
	} {
		sink := &names{}
		if last, err := ended(t, content, sink).passLate(t.Context(), "a", ""); err != nil || last.Last() || sink.list != nil {
			t.Errorf("%s: %+v, %v, %q", name, last, err, sink.list)
		}
	}
}
