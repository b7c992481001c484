//go:build linux

package runner

import (
	"archive/tar"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// scripted is a runner that says what a test writes, and keeps what the host says.
type scripted struct {
	*frameWriter
	mu      sync.Mutex
	heard   []frameType
	credit  int64 // for artifacts
	acked   acked
	stopped chan struct{}
}

// runOn runs an empty Start on a scripted runner, which begins to speak when that has come.
func runOn(t *testing.T, sink executor.Sink, speak func(*scripted) error) (executor.Result, *scripted, *Conn, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &scripted{frameWriter: &frameWriter{w: theirs}, stopped: make(chan struct{})}
	c := newConn(ours)
	c.turn <- struct{}{}
	go c.read(newFrameReader(ours))
	started := make(chan struct{})
	go s.listen(theirs, started)
	spoken := make(chan struct{})
	go func() {
		defer close(spoken)
		<-started
		if err := speak(s); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	}()
	res, err := c.Run(t.Context(), Start{}, RunInput{}, sink)
	<-spoken
	_ = c.Close() // also ends listen
	<-s.stopped
	return res, s, c, err
}

func (s *scripted) listen(r io.Reader, started chan struct{}) {
	defer close(s.stopped)
	frames := newFrameReader(r)
	for {
		kind, n, err := frames.header()
		if err != nil {
			return
		}
		p, err := frames.payload(n)
		if err != nil {
			return
		}
		s.mu.Lock()
		switch s.heard = append(s.heard, kind); kind {
		case frameStart:
			close(started)
		case frameCredit:
			if c, n, err := parseCredit(p); err == nil && c == channelArtifact {
				s.credit += n
			}
		case frameAck:
			s.acked, _ = parseAck(p) // zero if it is broken
		default:
		}
		s.mu.Unlock()
	}
}

func (s *scripted) count(t frameType) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.heard {
		if h == t {
			n++
		}
	}
	return n
}

func (s *scripted) artifact(name string, announced int64, pieces ...int) error {
	err := s.json(frameArtifact, artifactHeader{Path: name, Size: announced})
	for _, n := range pieces {
		err = errors.Join(err, s.framed(frameArtifactData, make([]byte, frameHeader+n)))
	}
	return errors.Join(err, s.frame(frameArtifactEnd))
}

func (s *scripted) exit() error {
	return s.json(frameExited, executor.Result{Status: executor.StatusSucceeded})
}

func TestAHostBelievesNoRunnerThatBreaksTheProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says  func(*scripted) error
		wants string
	}{
		"an artifact that is longer than announced":  {func(s *scripted) error { return s.artifact("a", 10, 8, 8) }, "longer than announced"},
		"an artifact that is shorter than announced": {func(s *scripted) error { return s.artifact("a", 10, 8) }, "shorter than announced"},
		"a result within an artifact": {func(s *scripted) error {
			return errors.Join(s.json(frameArtifact, artifactHeader{Path: "a", Size: 10}), s.exit())
		}, "frame type 72 within an artifact"},
		"data without an artifact": {func(s *scripted) error { return s.frame(frameArtifactData, 'x') }, "unexpected frame type 69"},
		"credit for artifacts":     {func(s *scripted) error { return s.frame(frameCredit, creditPayload(channelArtifact, 1)...) }, "grants credit for artifacts"},
		"credit for no channel":    {func(s *scripted) error { return s.frame(frameCredit, 9, 0, 0, 0, 1) }, "channel 9"},
		"what only a host says":    {func(s *scripted) error { return s.frame(frameCancel) }, "sent frame type 7"},
		"a result that is no JSON": {func(s *scripted) error { return s.frame(frameExited, '{') }, "result"},
		"a start that is no JSON":  {func(s *scripted) error { return s.frame(frameStarted, '{') }, "started"},
		"progress that is no JSON": {func(s *scripted) error { return s.frame(frameProgress, '{') }, "progress"},
		"an artifact of no JSON":   {func(s *scripted) error { return s.frame(frameArtifact, '{') }, "artifact"},
		"a display of no JSON":     {func(s *scripted) error { return s.frame(frameDisplay, '{') }, "display"},
		"output on no stream":      {func(s *scripted) error { return s.frame(frameOutput, 3, 0, 0, 0, 0, 0, 0, 0, 0, 'x') }, "stream 3"},
		"output before its begin":  {func(s *scripted) error { return s.frame(frameOutput, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 'x') }, "negative offset"},
		"output without data":      {func(s *scripted) error { return s.frame(frameOutput, 1, 0, 0, 0, 0, 0, 0, 0, 0) }, "output of 9 bytes"},
		"that it is lost":          {func(s *scripted) error { return s.frame(frameLost) }, "does not understand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, _, _, err := runOn(t, newRecord(), c.says)
			if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), c.wants) {
				t.Errorf("got %s, %v, want %q", describe(res), err, c.wants)
			}
		})
	}
}

func TestAFrameWithoutAnExecutionEndsTheConnection(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := newConn(ours)
	c.turn <- struct{}{}
	go c.read(newFrameReader(ours))
	w := &frameWriter{w: theirs}
	must(t, w.frame(frameCredit, creditPayload(channelStdin, 1)...))
	<-c.Done()
	if err := c.Err(); !errors.Is(err, errFrame) || !strings.Contains(err.Error(), "frame type 96 without an Execution") || c.HungUp() {
		t.Errorf("%v, hung up here: %v", err, c.HungUp())
	}
	_ = c.Close() // it is closed
}

func TestAnArtifactsBytesAreGrantedAgain(t *testing.T) {
	t.Parallel()
	rec := newRecord()
	res, s, _, err := runOn(t, rec, func(s *scripted) error {
		return errors.Join(s.artifact("a", 700_000, chunkBytes, chunkBytes, 700_000-2*chunkBytes), s.artifact("empty", 0), s.artifact("b", 10, 3, 7), s.exit())
	})
	if err != nil || len(res.Artifacts) != 3 || res.Artifacts[0].SizeBytes != 700_000 || len(rec.files["a"]) != 700_000 || len(rec.files["b"]) != 10 {
		t.Errorf("%v %+v", err, res.Artifacts)
	}
	if s.credit != 700_010 {
		t.Errorf("%d bytes were granted again", s.credit)
	}
	// A window is granted in parts: before it is used up, and not with every frame.
	if n := s.count(frameCredit); n < 3 || n > 5 {
		t.Errorf("granted %d times", n)
	}
}

// refusing is a Sink that takes no artifact of that name.
type refusing struct {
	*record
	name string
	err  error
}

func (r refusing) Artifact(h *tar.Header, body io.Reader) error {
	if h.Name == r.name {
		return r.err
	}
	return r.record.Artifact(h, body)
}

func TestAnArtifactThatTheSinkRefusesIsReadAllTheSame(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	rec := newRecord()
	res, s, _, err := runOn(t, refusing{rec, "b", full}, func(s *scripted) error {
		return errors.Join(s.artifact("a", 5, 5), s.artifact("b", 500_000, chunkBytes, 500_000-chunkBytes), s.artifact("c", 5, 5), s.exit())
	})
	if !errors.Is(err, full) || len(res.Artifacts) != 1 || res.Artifacts[0].Path != "a" || len(rec.files) != 1 {
		t.Errorf("%v %+v %d", err, res.Artifacts, len(rec.files))
	}
	if s.credit != 500_010 || s.count(frameCancel) != 1 {
		t.Errorf("%d bytes granted again, %d cancels", s.credit, s.count(frameCancel))
	}
}

func TestOutputIsAcknowledgedBeforeItsWindowIsFull(t *testing.T) {
	t.Parallel()
	rec := newRecord()
	_, s, _, err := runOn(t, rec, func(s *scripted) error {
		var err error
		for n := 0; n < outputWindow; n += 1 << 15 {
			for stream := range 2 {
				frame := appendOutput(nil, stream, int64(n), make([]byte, 1<<15))
				err = errors.Join(err, s.framed(frameOutput, frame))
			}
		}
		return errors.Join(err, s.exit())
	})
	if err != nil || rec.badOffset || len(rec.stdout()) != outputWindow || len(rec.stderr()) != outputWindow {
		t.Fatalf("%v, %d and %d bytes", err, len(rec.stdout()), len(rec.stderr()))
	}
	for i, n := range s.acked.streams {
		if n < outputWindow/2 || n > outputWindow {
			t.Errorf("stream %d is acknowledged up to %d of %d", i+1, n, outputWindow)
		}
	}
	if n := s.count(frameAck); n > 16 {
		t.Errorf("acknowledged %d times", n)
	}
}

func TestTheNextRunHasTheTurnWhenOneHasEnded(t *testing.T) {
	t.Parallel()
	_, _, c, err := runOn(t, newRecord(), (*scripted).exit)
	if err != nil || len(c.turn) != 1 || c.current != nil {
		t.Errorf("%v, %d turns, current %v", err, len(c.turn), c.current)
	}
}

func TestAnInboxCountsWhatWasReadAndNotGranted(t *testing.T) {
	t.Parallel()
	granted := 0
	box := newInbox(100, func(n int) { granted += n })
	put := func(n int) error {
		buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
		return box.put(piece{buf, (*buf)[:n]})
	}
	read := func(n int) {
		if got, err := box.Read(make([]byte, n)); got != n || err != nil {
			t.Fatal(got, err)
		}
	}
	must(t, put(60))
	read(24)
	if granted != 0 {
		t.Errorf("%d bytes were granted although a quarter of the window was not read", granted)
	}
	if err := put(41); !errors.Is(err, errFrame) {
		t.Errorf("24 bytes that were not granted again were used: %v", err)
	}
	box = newInbox(100, func(n int) { granted += n })
	must(t, put(60))
	read(24)
	read(1)
	if granted != 25 {
		t.Errorf("%d bytes were granted when a quarter of the window was read", granted)
	}
	read(5)
	box.swallow()
	if granted != 60 {
		t.Errorf("%d of 60 bytes were granted when nobody reads on", granted)
	}
	box = newInbox(100, func(int) { t.Error("granted after the end was told") })
	must(t, put(10))
	box.abort(errStopped)
	must(t, put(10))
	if n, err := box.Read(make([]byte, 5)); n != 0 || !errors.Is(err, errStopped) {
		t.Errorf("%d bytes of what was dropped, %v", n, err)
	}
}

func TestAFileThatCannotBeReadIsNoEnd(t *testing.T) {
	t.Parallel()
	box := newInbox(100, func(int) {})
	folder, err := os.Open(t.TempDir())
	must(t, err)
	must(t, box.open(folder))
	box.end(io.EOF)
	if n, err := box.Read(make([]byte, 10)); n != 0 || !errors.Is(err, unix.EISDIR) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestADeadlineTakesThePlaceOfTheOneBefore(t *testing.T) {
	t.Parallel()
	a := &agent{}
	var timer *time.Timer
	for _, next := range []time.Duration{time.Hour, 0} {
		a.setDeadline(&timer, time.Hour)
		before := timer
		a.setDeadline(&timer, next)
		if before.Stop() {
			t.Errorf("the deadline before still holds beside one of %s", next)
		}
	}
	if timer != nil {
		t.Error("there is a deadline although none was asked for")
	}
}
