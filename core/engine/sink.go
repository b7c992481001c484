package engine

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// progressInterval is the minimum time between two Progress events of one phase.
	progressInterval = 100 * time.Millisecond
	maxMessage       = 4 << 10
	maxHandle        = 4 << 10
)

// sink appends the events of a backend to the log. It enforces their order: Progress, then one Started, then Output without gaps, Display
// and Progress. An event that breaks the order stops the run.
type sink struct {
	engine *Engine
	id     string
	limit  int64 // of each stream; executor.Unlimited: no bound
	// ctx ends when the run is given up. After that nothing is appended to the log.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// violated is called with the error when the backend breaks the contract.
	violated func(error)
	// began is closed at Started.
	began chan struct{}
	// attached: the program started before this sink was made.
	attached bool

	// calls is held during each call of the backend, also while the log blocks it.
	calls     sync.Mutex
	artifacts artifacts
	out       map[executor.Stream]*outputStream
	// handle is the one of Started, for Attach.
	handle []byte
	last   map[executor.Phase]time.Time
	// errors is the end of stderr.
	errors tail

	// mu guards the fields that are read while a call may block.
	mu        sync.Mutex
	broken    error
	lost      error
	startedAt time.Time
	shown     displays
	// blocked is how long calls have waited for the log in all. since is when the present wait began; zero if there is none.
	blocked time.Duration
	since   time.Time
}

// outputStream is one output stream.
type outputStream struct {
	// next is the offset after the last byte that the backend sent; kept, after the last byte in the log.
	next, kept int64
	// before is next of the sink before this one, in the same run.
	before int64
}

func (e *Engine) newSink(x *execution, rec executor.Record) *sink {
	s := &sink{
		engine: e, id: x.id, limit: x.limits.OutputBytes,
		began: make(chan struct{}),
		out: map[executor.Stream]*outputStream{
			executor.Stdout: {next: rec.StdoutBytes, kept: rec.StdoutBytes},
			executor.Stderr: {next: rec.StderrBytes, kept: rec.StderrBytes},
		},
		last: map[executor.Phase]time.Time{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(x.ctx))
	s.violated = func(error) { x.cancel(errViolation) }
	s.artifacts = artifacts{engine: e, id: x.id, limit: x.limits.DiskBytes, bound: "config.disk_mb", durable: x.durable, ctx: s.ctx}
	if most := e.artifactBytes(x.limits); most > 0 {
		s.artifacts.limit, s.artifacts.bound = most, "engine.max_artifact_bytes"
	}
	return s
}

// Emit implements executor.Sink.
func (s *sink) Emit(ev executor.Event) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.closed(); err != nil {
		return err
	}
	body, err := s.check(ev.Body)
	if err != nil {
		return s.fail(err)
	}
	if body == nil {
		return nil
	}
	if err := s.append(body); err != nil {
		return s.notKept(err)
	}
	if started, ok := body.(executor.Started); ok {
		s.mu.Lock()
		s.startedAt, s.handle = time.Now(), started.Handle
		s.mu.Unlock()
		close(s.began)
	}
	return nil
}

// closed returns the reason why no more events are taken; nil if they are.
func (s *sink) closed() error {
	if err := context.Cause(s.ctx); err != nil {
		return executor.Errorf(executor.Conflict, "the execution has ended: %w", err)
	}
	return s.brokenLaw()
}

// resumed makes s go on with a log whose Started was appended at that time.
func (s *sink) resumed(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startedAt, s.attached = at, true
	close(s.began)
}

func (s *sink) append(body executor.Body) error {
	s.mu.Lock()
	s.since = time.Now()
	s.mu.Unlock()
	err := s.engine.store.Append(s.ctx, s.id, executor.Event{Body: body})
	s.mu.Lock()
	s.blocked += time.Since(s.since)
	s.since = time.Time{}
	s.mu.Unlock()
	return err
}

// check returns the part of body that goes into the log, nil for none. An error says how body breaks the contract.
func (s *sink) check(body executor.Body) (executor.Body, error) {
	switch b := body.(type) {
	case executor.Progress:
		return s.progress(b), nil
	case executor.Started:
		if s.attached {
			return nil, nil // the log has the Started of this program
		}
		if s.hasBegun() {
			return nil, fmt.Errorf("a second started event")
		}
		if len(b.Handle) > maxHandle {
			return nil, fmt.Errorf("a handle of %d bytes", len(b.Handle))
		}
		return b, nil
	case executor.Output:
		return s.output(b)
	case executor.Display:
		if !s.hasBegun() {
			return nil, fmt.Errorf("a display event before started")
		}
		s.mu.Lock()
		kept, ok := s.shown.take(b)
		s.mu.Unlock()
		if ok {
			return kept, nil
		}
		return nil, nil
	case executor.Queued, executor.Finished, executor.Unknown:
		return nil, fmt.Errorf("an event of kind %q", b.Kind())
	default:
		return nil, fmt.Errorf("an event of kind %T", body)
	}
}

// progress returns nil for a Progress that comes within progressInterval of another one of its phase, unless it is the last (Done is Total).
func (s *sink) progress(b executor.Progress) executor.Body {
	now := time.Now()
	last, seen := s.last[b.Phase]
	if seen && now.Sub(last) < progressInterval && (b.Total == 0 || b.Done < b.Total) {
		return nil
	}
	switch b.Phase {
	case executor.PhaseNone, executor.PhaseQueue, executor.PhasePrepare, executor.PhaseStart, executor.PhaseRun, executor.PhaseCollect:
		s.last[b.Phase] = now
	default:
		b.Phase = executor.PhaseNone
	}
	b.Message = strings.ToValidUTF8(clip(b.Message, maxMessage), "\uFFFD")
	b.Unit = strings.ToValidUTF8(clip(b.Unit, 64), "\uFFFD")
	return b
}

// output drops bytes that were sent before, refuses a gap, and counts the bytes beyond the limit without keeping them.
func (s *sink) output(b executor.Output) (executor.Body, error) {
	o := s.out[b.Stream]
	switch {
	case o == nil:
		return nil, fmt.Errorf("output on a stream %q", b.Stream)
	case !s.hasBegun():
		return nil, fmt.Errorf("output before started")
	case len(b.Data) == 0 || len(b.Data) > executor.MaxOutputData:
		return nil, fmt.Errorf("output of %d bytes", len(b.Data))
	case b.Offset < 0 || b.Offset > o.next:
		return nil, fmt.Errorf("output on %s at offset %d, expected %d", b.Stream, b.Offset, o.next)
	}
	end := b.Offset + int64(len(b.Data))
	if end <= o.next {
		return nil, nil
	}
	b.Data = b.Data[o.next-b.Offset:]
	b.Offset = o.next
	if s.limit != executor.Unlimited {
		room := max(0, s.limit-b.Offset)
		b.Data = b.Data[:min(int64(len(b.Data)), room)]
	}
	s.mu.Lock()
	o.next = end
	o.kept += int64(len(b.Data))
	s.mu.Unlock()
	if len(b.Data) == 0 {
		return nil, nil
	}
	if b.Stream == executor.Stderr {
		s.errors.add(b.Data)
	}
	return b, nil
}

// Artifact implements executor.Sink.
func (s *sink) Artifact(h *tar.Header, r io.Reader) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.closed(); err != nil {
		return err
	}
	if !s.hasBegun() {
		return s.fail(fmt.Errorf("an artifact before started"))
	}
	err := s.artifacts.add(h, r)
	if bad, ok := errors.AsType[badArtifact](err); ok {
		return s.fail(bad)
	}
	if err != nil {
		return s.notKept(err)
	}
	return nil
}

// notKept notes an error of the log or of the blobs; the first one counts.
func (s *sink) notKept(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = err
	}
	return err
}

// failure is the first error of the log or of the blobs.
func (s *sink) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// fail notes that the backend broke the contract, and stops the run.
func (s *sink) fail(err error) error {
	s.mu.Lock()
	if s.broken == nil {
		s.broken = err
	}
	s.mu.Unlock()
	s.engine.log.Error("a backend broke the order of events", "execution", s.id, "error", err)
	s.violated(err)
	return &executor.Error{Code: executor.Internal, Message: "internal error", Err: err}
}

// brokenLaw is the error of a run whose backend broke the contract; nil if it did not.
func (s *sink) brokenLaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return &executor.Error{Code: executor.Internal, Message: "internal error", Err: s.broken}
	}
	return nil
}

func (s *sink) hasBegun() bool {
	select {
	case <-s.began:
		return true
	default:
		return false
	}
}

// begun returns when the program started; zero before.
func (s *sink) begun() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startedAt
}

// waited returns how long the log has blocked the backend in all.
func (s *sink) waited() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.blocked
	}
	return s.blocked + time.Since(s.since)
}

// displayed returns the Displays so far.
func (s *sink) displayed() displays {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}

// seen returns how many bytes of a stream the backend has sent, and how many of them are in the log.
func (s *sink) seen(name executor.Stream) (sent, kept int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.out[name].next, s.out[name].before), s.out[name].kept
}

// seal ends the sink of a run that has returned, and keeps its artifacts. It is an error if a call of the backend is under way.
func (s *sink) seal() (key string, list []executor.Artifact, err error) {
	if !s.calls.TryLock() {
		s.abandon(errViolation)
		return "", nil, s.fail(errors.New("Run returned before its last event"))
	}
	defer s.calls.Unlock()
	key, list, err = s.artifacts.seal()
	s.cancel(errors.New("the run has returned"))
	return key, list, err
}

// abandon ends the sink of a run that has not returned. A call that waits for the log is cut short, and later calls get an error. An event
// that is appended nevertheless is refused by the Store, which takes nothing after Finished.
func (s *sink) abandon(cause error) {
	s.cancel(cause)
	s.artifacts.abort(cause)
}
