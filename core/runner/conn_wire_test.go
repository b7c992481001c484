//go:build linux

package runner

import (
	"archive/tar"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// scripted is a runner that says what a test writes, and keeps what the host says.
type scripted struct {
	*protocol.Writer
	mu      sync.Mutex
	heard   []protocol.FrameType
	credit  int64 // for artifacts
	acked   protocol.Acknowledged
	stopped chan struct{}
}

// runOn runs an empty Start on a scripted runner, which begins to speak when that has come.
func runOn(t *testing.T, sink executor.Sink, speak func(*scripted) error) (executor.Result, *scripted, *Conn, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &scripted{Writer: protocol.NewWriter(theirs), stopped: make(chan struct{})}
	c := newConn(ours)
	c.turn <- struct{}{}
	go c.read(protocol.NewReader(ours))
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
	frames := protocol.NewReader(r)
	for {
		kind, n, err := frames.Header()
		if err != nil {
			return
		}
		p, err := frames.Payload(n)
		if err != nil {
			return
		}
		s.mu.Lock()
		switch s.heard = append(s.heard, kind); kind {
		case protocol.FrameStart:
			close(started)
		case protocol.FrameCredit:
			if c, n, err := protocol.ParseCredit(p); err == nil && c == protocol.ChannelArtifact {
				s.credit += n
			}
		case protocol.FrameAck:
			s.acked, _ = protocol.ParseAck(p) // zero if it is broken
		default:
		}
		s.mu.Unlock()
	}
}

func (s *scripted) count(t protocol.FrameType) int {
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
	err := s.SendJSON(protocol.FrameArtifact, protocol.ArtifactHeader{Path: name, Size: announced})
	for _, n := range pieces {
		err = errors.Join(err, s.SendBuffer(protocol.FrameArtifactData, make([]byte, protocol.HeaderBytes+n)))
	}
	return errors.Join(err, s.Send(protocol.FrameArtifactEnd))
}

func (s *scripted) exit() error {
	return s.SendJSON(protocol.FrameExited, executor.Result{Status: executor.StatusSucceeded})
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
			return errors.Join(s.SendJSON(protocol.FrameArtifact, protocol.ArtifactHeader{Path: "a", Size: 10}), s.exit())
		}, "frame type 72 within an artifact"},
		"data without an artifact": {func(s *scripted) error { return s.Send(protocol.FrameArtifactData, 'x') }, "unexpected frame type 69"},
		"credit for artifacts": {func(s *scripted) error {
			return s.Send(protocol.FrameCredit, protocol.CreditPayload(protocol.ChannelArtifact, 1)...)
		}, "grants credit for artifacts"},
		"credit for no channel":    {func(s *scripted) error { return s.Send(protocol.FrameCredit, 9, 0, 0, 0, 1) }, "channel 9"},
		"what only a host says":    {func(s *scripted) error { return s.Send(protocol.FrameCancel) }, "sent frame type 7"},
		"a result that is no JSON": {func(s *scripted) error { return s.Send(protocol.FrameExited, '{') }, "result"},
		"a start that is no JSON":  {func(s *scripted) error { return s.Send(protocol.FrameStarted, '{') }, "started"},
		"progress that is no JSON": {func(s *scripted) error { return s.Send(protocol.FrameProgress, '{') }, "progress"},
		"an artifact of no JSON":   {func(s *scripted) error { return s.Send(protocol.FrameArtifact, '{') }, "artifact"},
		"a display of no JSON":     {func(s *scripted) error { return s.Send(protocol.FrameDisplay, '{') }, "display"},
		"output on no stream":      {func(s *scripted) error { return s.Send(protocol.FrameOutput, 3, 0, 0, 0, 0, 0, 0, 0, 0, 'x') }, "stream 3"},
		"output before its begin":  {func(s *scripted) error { return s.Send(protocol.FrameOutput, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 'x') }, "negative offset"},
		"output without data":      {func(s *scripted) error { return s.Send(protocol.FrameOutput, 1, 0, 0, 0, 0, 0, 0, 0, 0) }, "output of 9 bytes"},
		"that it is lost":          {func(s *scripted) error { return s.Send(protocol.FrameLost) }, "cannot follow"},
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
	go c.read(protocol.NewReader(ours))
	w := protocol.NewWriter(theirs)
	must(t, w.Send(protocol.FrameCredit, protocol.CreditPayload(protocol.ChannelStdin, 1)...))
	<-c.Done()
	if err := c.Err(); !errors.Is(err, protocol.ErrFrame) || !strings.Contains(err.Error(), "frame type 96 without an Execution") || c.HungUp() {
		t.Errorf("%v, hung up here: %v", err, c.HungUp())
	}
	_ = c.Close() // it is closed
}

func TestAnArtifactsBytesAreGrantedAgain(t *testing.T) {
	t.Parallel()
	rec := newRecord()
	res, s, _, err := runOn(t, rec, func(s *scripted) error {
		return errors.Join(s.artifact("a", 700_000, protocol.ChunkBytes, protocol.ChunkBytes, 700_000-2*protocol.ChunkBytes), s.artifact("empty", 0), s.artifact("b", 10, 3, 7), s.exit())
	})
	if err != nil || len(res.Artifacts) != 3 || res.Artifacts[0].SizeBytes != 700_000 || len(rec.files["a"]) != 700_000 || len(rec.files["b"]) != 10 {
		t.Errorf("%v %+v", err, res.Artifacts)
	}
	if s.credit != 700_010 {
		t.Errorf("%d bytes were granted again", s.credit)
	}
	// A window is granted in parts: before it is used up, and not with every frame.
	if n := s.count(protocol.FrameCredit); n < 3 || n > 5 {
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
		return errors.Join(s.artifact("a", 5, 5), s.artifact("b", 500_000, protocol.ChunkBytes, 500_000-protocol.ChunkBytes), s.artifact("c", 5, 5), s.exit())
	})
	if !errors.Is(err, full) || len(res.Artifacts) != 1 || res.Artifacts[0].Path != "a" || len(rec.files) != 1 {
		t.Errorf("%v %+v %d", err, res.Artifacts, len(rec.files))
	}
	if s.credit != 500_010 || s.count(protocol.FrameCancel) != 1 {
		t.Errorf("%d bytes granted again, %d cancels", s.credit, s.count(protocol.FrameCancel))
	}
}

func TestOutputIsAcknowledgedBeforeItsWindowIsFull(t *testing.T) {
	t.Parallel()
	rec := newRecord()
	_, s, _, err := runOn(t, rec, func(s *scripted) error {
		var err error
		for n := 0; n < protocol.OutputWindow; n += 1 << 15 {
			for stream := range 2 {
				frame := protocol.AppendOutput(nil, stream, int64(n), make([]byte, 1<<15))
				err = errors.Join(err, s.SendBuffer(protocol.FrameOutput, frame))
			}
		}
		return errors.Join(err, s.exit())
	})
	if err != nil || rec.badOffset || len(rec.stdout()) != protocol.OutputWindow || len(rec.stderr()) != protocol.OutputWindow {
		t.Fatalf("%v, %d and %d bytes", err, len(rec.stdout()), len(rec.stderr()))
	}
	for i, n := range s.acked.Streams {
		if n < protocol.OutputWindow/2 || n > protocol.OutputWindow {
			t.Errorf("stream %d is acknowledged up to %d of %d", i+1, n, protocol.OutputWindow)
		}
	}
	if n := s.count(protocol.FrameAck); n > 16 {
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
