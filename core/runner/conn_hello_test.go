//go:build linux

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

func TestAReplyToAHelloIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  protocol.FrameType
		reply protocol.HelloReply
		code  executor.Code
		want  string
	}{
		"a reply":                   {protocol.FrameHelloReply, protocol.HelloReply{Version: protocol.Version}, "", ""},
		"another frame":             {protocol.FrameStarted, protocol.HelloReply{Version: protocol.Version}, executor.Unavailable, "frame type 66"},
		"another version":           {protocol.FrameHelloReply, protocol.HelloReply{Version: protocol.Version + 1}, executor.Unavailable, "speaks version 2"},
		"a refusal":                 {protocol.FrameHelloReply, protocol.HelloReply{Version: protocol.Version, Error: "no"}, executor.Invalid, "runner: no"},
		"a refusal that has a code": {protocol.FrameHelloReply, protocol.HelloReply{Version: protocol.Version, Error: "no", Code: executor.NotFound}, executor.NotFound, "runner: no"},
	} {
		raw, err := json.Marshal(c.reply)
		if err != nil {
			t.Fatal(err)
		}
		err = newConn(nil).accept(protocol.NewReader(bytes.NewReader(raw)), c.kind, len(raw))
		if (err == nil) != (c.want == "") || err != nil && (executor.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// listening is a Conn that reads, and the other end of its stream.
func listening(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	c := newConn(ours)
	go c.read(protocol.NewReader(ours))
	return c, theirs
}

func TestAConnKnowsWhoHungUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*Conn, net.Conn) error
		ours bool
		why  error
	}{
		"Close":              {func(c *Conn, _ net.Conn) error { return c.Close() }, true, errClosed},
		"Detach, then Close": {func(c *Conn, _ net.Conn) error { return errors.Join(c.Detach(), c.Close()) }, true, errDetached},
		"the runner":         {func(_ *Conn, theirs net.Conn) error { return theirs.Close() }, false, errGone},
	} {
		c, theirs := listening(t)
		if err := test.end(c, theirs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		<-c.Done()
		if c.HungUp() != test.ours || !errors.Is(c.Err(), test.why) {
			t.Errorf("%s: hung up %t, %v", name, c.HungUp(), c.Err())
		}
		if err := c.begin(newFollower(c)); executor.CodeOf(err) != executor.Unavailable || !errors.Is(err, test.why) {
			t.Errorf("%s: an Execution begins: %v", name, err)
		}
		_ = c.Close()
	}
}

func TestTheRunnersEndEndsACall(t *testing.T) {
	t.Parallel()
	c, theirs := listening(t)
	go func() {
		_, _ = theirs.Read(make([]byte, 1<<16)) // the call
		_ = theirs.Close()
	}()
	if _, err := c.ask(t.Context(), protocol.SessionCall{Op: protocol.CallList}); executor.CodeOf(err) != executor.Unavailable || !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
	_ = c.Close()
}

func TestCloseSaysByeWhereHostsComeAndGo(t *testing.T) {
	t.Parallel()
	c, theirs := listening(t)
	c.reply.Silence = time.Minute
	heard := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(theirs) // its end is an error
		heard <- all
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got, want := <-heard, protocol.AppendFrame(nil, protocol.FrameBye, nil); !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNoTurnIsTakenWhenTheContextHasEnded(t *testing.T) {
	t.Parallel()
	c := newConn(nil)
	c.turn <- struct{}{}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	for range 100 { // a choice between the two would be random
		if c.acquire(ctx) {
			t.Fatal("the turn was taken")
		}
	}
}

func TestAHostThatResumesNamesWhatItHas(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	got := make(chan protocol.Hello, 1)
	go func() {
		frames := protocol.NewReader(theirs)
		var h protocol.Hello
		err := frames.Seek(protocol.Marker(9))
		if err == nil {
			var n int
			if _, n, err = frames.Header(); err == nil {
				err = protocol.ReadJSON(frames, n, &h)
			}
		}
		got <- h
		reply, marshalErr := protocol.AppendJSON(h.Nonce, protocol.FrameHelloReply, protocol.HelloReply{Version: protocol.Version, Events: 3})
		_, writeErr := theirs.Write(reply)
		if err = errors.Join(err, marshalErr, writeErr); err != nil {
			t.Error(err)
		}
	}()
	c, err := ResumeConn(ours, ResumeOptions{Epoch: 9, ExecutionID: "exe_1", Stdout: 5, Stderr: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's own
	if h := <-got; !h.Resume || h.ExecutionID != "exe_1" || h.Stdout != 5 || h.Stderr != 7 || len(h.Nonce) != protocol.MarkerBytes {
		t.Errorf("the hello is %+v", h)
	}
	if want := (protocol.Acknowledged{Streams: [2]int64{5, 7}, Events: 3}); c.current.acked != want {
		t.Errorf("acknowledged is %+v, want %+v", c.current.acked, want)
	}
	c.current.followed = true
	if _, err := c.Follow(t.Context(), nil); executor.CodeOf(err) != executor.Internal {
		t.Errorf("a second Follow: %v", err)
	}
}

func TestARunnerThatIsSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, theirs := listening(t)
		go func() { _, _ = io.Copy(io.Discard, theirs) }() // its end is an error
		c.reply.Silence = 4 * time.Second
		c.heard = time.Now()
		c.alive.Go(c.keepAlive)
		<-time.After(3 * time.Second)
		reply, err := protocol.AppendJSON(nil, protocol.FrameHelloReply, protocol.HelloReply{})
		if err == nil {
			_, err = theirs.Write(reply)
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * time.Second)
		if err := c.Err(); err != nil {
			t.Errorf("3 s after a frame: %v", err)
		}
		<-time.After(3 * time.Second)
		if err := c.Err(); !errors.Is(err, errSilent) {
			t.Errorf("6 s after a frame: %v", err)
		}
		_ = c.Close()
	})
}
