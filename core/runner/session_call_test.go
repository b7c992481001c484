//go:build linux

package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

func newCall() *openCall {
	k := &openCall{room: protocol.NewCredit(1)}
	k.cond = sync.NewCond(&k.mu)
	return k
}

func TestAFileThatIsReadKeepsToItsWindow(t *testing.T) {
	t.Parallel()
	k, p := newCall(), make([]byte, protocol.FileWindow)
	p[0] = 'x'
	if err := k.takeData(p); err != nil {
		t.Fatal(err)
	}
	p[0] = 'y' // the reader of frames uses it again
	got, err := k.next()
	if err != nil || len(got) != protocol.FileWindow || got[0] != 'x' {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if err := k.takeData(p); err != nil {
		t.Errorf("the window is not free again: %v", err)
	}
	if err := k.takeData(p[:1]); !errors.Is(err, protocol.ErrFrame) {
		t.Errorf("a byte beyond the window: %v", err)
	}
}

func TestACallIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	k := newCall()
	for _, more := range []bool{true, false} {
		if err := k.takeReply(protocol.SessionReply{More: more}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.takeReply(protocol.SessionReply{}); !errors.Is(err, protocol.ErrFrame) {
		t.Errorf("an answer behind the last one: %v", err)
	}
	if _, err := k.room.Take(1); !errors.Is(err, protocol.ErrStopped) {
		t.Errorf("a file is sent behind the answer: %v", err)
	}
	k = newCall()
	var err error
	for n := 0; err == nil && n <= 2*protocol.MaxListed; n++ {
		err = k.takeReply(protocol.SessionReply{More: true})
	}
	if !errors.Is(err, protocol.ErrFrame) {
		t.Errorf("answers without end: %v", err)
	}
}

func TestACallThatCannotBeAnsweredIsNotSent(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("no time"))
	lost := &Conn{}
	lost.calls.lost(errGone)
	for want, c := range map[string]struct {
		conn *Conn
		ctx  context.Context
	}{"no time": {&Conn{}, ended}, errGone.Error(): {lost, t.Context()}} {
		var sent bytes.Buffer
		c.conn.out = protocol.NewWriter(&sent)
		if _, _, err := c.conn.call(c.ctx, protocol.SessionCall{Op: protocol.CallList}); executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if sent.Len() > 0 {
			t.Errorf("%s: %d bytes were sent", want, sent.Len())
		}
	}
}

func TestACallIsStoppedUnlessItWasAnswered(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		var sent bytes.Buffer
		c := &Conn{out: protocol.NewWriter(&sent)}
		k, done, err := c.call(t.Context(), protocol.SessionCall{Op: protocol.CallList})
		if err != nil {
			t.Fatal(err)
		}
		if answered {
			if err := k.takeReply(protocol.SessionReply{}); err != nil {
				t.Fatal(err)
			}
		}
		done()
		if stopped := bytes.Contains(sent.Bytes(), []byte(`"op":"stop"`)); stopped == answered {
			t.Errorf("answered: %t, stopped: %t", answered, stopped)
		}
		if c.calls.find(k.n) != nil {
			t.Error("the call is kept")
		}
	}
}

func TestCreditThatAReaderDoesNotUseIsKept(t *testing.T) {
	t.Parallel()
	credit := protocol.NewCredit(10)
	pieces := 0
	whole, err := copyChunks(iotest.OneByteReader(strings.NewReader("12345")), credit, nil, func([]byte) bool { pieces++; return true })
	if left, takeErr := credit.Take(100); !whole || err != nil || takeErr != nil || pieces != 5 || left != 5 {
		t.Errorf("%d pieces, %d bytes of credit are left, %t, %v, %v", pieces, left, whole, err, takeErr)
	}
}

// stopping is a reader that fails because the Execution has ended meanwhile.
type stopping struct{ f *follower }

func (s stopping) Read([]byte) (int, error) {
	s.f.stopSending()
	return 0, io.ErrClosedPipe
}

func TestAReadThatTheEndOfTheExecutionHasEndedIsNoError(t *testing.T) {
	t.Parallel()
	f := newFollower(&Conn{out: protocol.NewWriter(io.Discard)})
	if whole, err := f.copy(stopping{f}, f.stdin, protocol.FrameStdin); whole || err != nil {
		t.Errorf("%t, %v", whole, err)
	}
	f = newFollower(&Conn{out: protocol.NewWriter(io.Discard)})
	own := errors.New("mine")
	if whole, err := f.copy(iotest.ErrReader(own), f.stdin, protocol.FrameStdin); whole || !errors.Is(err, own) {
		t.Errorf("%t, %v", whole, err)
	}
}
