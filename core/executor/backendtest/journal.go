package backendtest

import (
	"archive/tar"
	"bytes"
	"io"
	"slices"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// keptOutput bounds the bytes of each stream that a journal keeps. It only checks the offsets of the rest.
const keptOutput = 4 << 20

// artifact is an Artifact that a run has passed to its Sink.
type artifact struct {
	header *tar.Header
	data   []byte
}

// journal is the Sink of every run. It records all calls and checks the rules EV-….
type journal struct {
	suite *suite
	id    string
	// onEmit, if set, is called for every Event after it was recorded. Emit returns its error.
	onEmit func(executor.Event) error
	// onArtifact, if set, is called for every Artifact in the same way.
	onArtifact func(*tar.Header) error

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	busy     bool
	returned bool
	started  []executor.Started
	progress []executor.Progress
	shown    []executor.Display
	// session reports whether the run is in a Session, and fresh whether output came that is not marked as earlier.
	session, fresh bool
	next           map[executor.Stream]int64
	kept           map[executor.Stream]*bytes.Buffer
	artifacts      []artifact
	collecting     string // the Artifact that onArtifact has
	lateOnes       []string
}

func newJournal(s *suite, id string) *journal {
	j := &journal{
		suite:   s,
		id:      id,
		changed: make(chan struct{}),
		next:    map[executor.Stream]int64{},
		kept:    map[executor.Stream]*bytes.Buffer{executor.Stdout: {}, executor.Stderr: {}},
	}
	s.mu.Lock()
	s.journals = append(s.journals, j)
	s.mu.Unlock()
	return j
}

// enter records the start of a call of the Sink, and a violation if the call is not allowed now.
func (j *journal) enter(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.busy {
		j.suite.violate("EV-06", "%s: %s while another call was under way", j.id, what)
	}
	j.busy = true
	if j.returned {
		j.lateOnes = append(j.lateOnes, what)
	}
}

func (j *journal) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.busy = false
	j.notify()
}

// notify wakes who waits for a change. The caller holds mu.
func (j *journal) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// ended records that Run has returned.
func (j *journal) ended() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.returned = true
	j.notify()
}

// Emit implements executor.Sink.
func (j *journal) Emit(e executor.Event) error {
	j.enter("Emit")
	defer j.leave()
	j.mu.Lock()
	j.note(e)
	j.notify()
	j.mu.Unlock()
	if j.onEmit != nil {
		return j.onEmit(e)
	}
	return nil
}

// maxExpected bounds the memory for an Artifact whose bytes have not come yet.
const maxExpected = 64 << 20

// Artifact implements executor.Sink.
func (j *journal) Artifact(h *tar.Header, r io.Reader) error {
	j.enter("Artifact " + h.Name)
	defer j.leave()
	if j.onArtifact != nil {
		j.mu.Lock()
		j.collecting = h.Name
		j.notify()
		j.mu.Unlock()
		if err := j.onArtifact(h); err != nil {
			return err
		}
	}
	// The size in the header spares copies of a large file, which io.ReadAll makes while it grows.
	content := bytes.NewBuffer(make([]byte, 0, min(max(h.Size, 0), maxExpected)+bytes.MinRead))
	if _, err := content.ReadFrom(r); err != nil {
		return err
	}
	data := content.Bytes()
	j.mu.Lock()
	defer j.mu.Unlock()
	if int64(len(data)) != h.Size {
		j.suite.violate("BE-16", "%s: artifact %q has %d bytes, its header says %d", j.id, h.Name, len(data), h.Size)
	}
	j.artifacts = append(j.artifacts, artifact{h, data})
	return nil
}

// note records e and makes the checks that need no later Event. The caller holds mu.
func (j *journal) note(e executor.Event) {
	bad := func(id, format string, args ...any) {
		j.suite.violate(id, "%s: "+format, append([]any{j.id}, args...)...)
	}
	if e.Seq != 0 || !e.Time.IsZero() {
		bad("EV-01", "an event came with Seq %d and Time %v; those are the Store's", e.Seq, e.Time)
	}
	switch b := e.Body.(type) {
	case executor.Progress:
		j.progress = append(j.progress, b)
		if b.Done < 0 || b.Total < 0 || b.Total > 0 && b.Done > b.Total || !knownPhase(b.Phase) {
			bad("EV-08", "progress %+v", b)
		}
	case executor.Started:
		if j.started = append(j.started, b); len(j.started) > 1 {
			bad("EV-02", "Started came %d times", len(j.started))
		}
		if b.PID < 0 || len(b.Handle) > 4<<10 || b.Start != executor.StartExec && b.Start != executor.StartFork {
			bad("EV-07", "PID %d, start %q, a handle of %d bytes", b.PID, b.Start, len(b.Handle))
		}
		if j.suite.info.Capabilities.Attach && len(b.Handle) == 0 {
			bad("EV-07", "no handle, and attach is promised")
		}
	case executor.Output:
		j.output(b, bad)
	case executor.Display:
		j.display(b, bad)
	default:
		bad("EV-01", "an event of type %T", e.Body)
	}
}

func (j *journal) display(b executor.Display, bad func(id, format string, args ...any)) {
	if j.shown = append(j.shown, b); len(j.shown) > executor.MaxDisplays {
		bad("EV-09", "%d displays", len(j.shown))
	}
	if len(j.started) == 0 {
		bad("EV-02", "Display before Started")
	}
	bytes := 0
	for _, data := range b.Data {
		bytes += len(data)
	}
	if bytes > executor.MaxDisplayData || len(b.Data) == 0 && !b.Truncated {
		bad("EV-09", "a display of %d forms with %d bytes", len(b.Data), bytes)
	}
}

func (j *journal) output(b executor.Output, bad func(id, format string, args ...any)) {
	if b.Earlier && (!j.session || j.fresh) {
		bad("EV-10", "%q on %s is said to be earlier", clip(string(b.Data)), b.Stream)
	}
	j.fresh = j.fresh || !b.Earlier
	if len(j.started) == 0 {
		bad("EV-02", "Output before Started")
	}
	if len(b.Data) == 0 || len(b.Data) > executor.MaxOutputData {
		bad("EV-04", "an Output of %d bytes", len(b.Data))
	}
	buf := j.kept[b.Stream]
	if buf == nil {
		bad("EV-04", "an Output of stream %q", b.Stream)
		return
	}
	if b.Offset != j.next[b.Stream] {
		bad("EV-03", "%s goes on at offset %d, expected %d", b.Stream, b.Offset, j.next[b.Stream])
	}
	j.next[b.Stream] = max(j.next[b.Stream], b.Offset+int64(len(b.Data)))
	if buf.Len() < keptOutput {
		buf.Write(b.Data)
	}
}

func knownPhase(p executor.Phase) bool {
	switch p {
	case executor.PhasePrepare, executor.PhaseStart, executor.PhaseRun, executor.PhaseCollect, executor.PhaseQueue:
		return true
	case executor.PhaseNone:
	}
	return false
}

// late returns the calls that came after Run had returned.
func (j *journal) late() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, what := range j.lateOnes {
		j.suite.violate("EV-05", "%s: %s after Run had returned", j.id, what)
	}
	j.lateOnes = nil
}

// text returns the first keptOutput bytes of a stream.
func (j *journal) text(s executor.Stream) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.kept[s].String()
}

func (j *journal) stdout() string { return j.text(executor.Stdout) }
func (j *journal) stderr() string { return j.text(executor.Stderr) }

// displays returns the Displays so far.
func (j *journal) displays() []executor.Display {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.shown)
}

// has reports whether Started has come.
func (j *journal) hasStarted() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.started) > 0
}

// file returns a collected artifact.
func (j *journal) file(path string) ([]byte, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.artifacts {
		if a.header.Name == path {
			return a.data, true
		}
	}
	return nil, false
}
