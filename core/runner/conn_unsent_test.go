//go:build linux

package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// starved is a connection of which the kernel takes no more bytes once hungry is set, although its other end lives.
type starved struct {
	net.Conn
	hungry atomic.Bool
	// last is the last frame that the kernel takes.
	last protocol.FrameType
}

func (s *starved) Write(p []byte) (int, error) {
	if s.hungry.Load() {
		return 0, syscall.ENOBUFS
	}
	n, err := s.Conn.Write(p)
	if err == nil && protocol.FrameType(p[protocol.HeaderBytes-1]) == s.last {
		s.hungry.Store(true)
	}
	return n, err
}

// granting is a runner that takes all that comes. hears is called with each frame.
func granting(conn net.Conn, hears func(w *protocol.Writer, t protocol.FrameType)) {
	frames, w := protocol.NewReader(conn), protocol.NewWriter(conn)
	for {
		t, n, err := frames.Header()
		if err == nil {
			_, err = frames.Payload(n)
		}
		if err != nil {
			return
		}
		hears(w, t)
	}
}

// starvedConn returns a Conn to a runner that takes all.
func starvedConn(hears func(w *protocol.Writer, t protocol.FrameType)) (*Conn, *starved) {
	ours, theirs := net.Pipe()
	s := &starved{Conn: ours}
	c := newConn(s)
	c.turn <- struct{}{}
	go c.read(protocol.NewReader(s))
	go granting(theirs, hears)
	return c, s
}

// A frame that cannot be sent is not seen at the other end of a connection that lives. Both ends would wait for ever.
func TestAFrameThatCannotBeSentEndsTheConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at    protocol.FrameType // from this frame on nothing can be sent
		input RunInput
		says  func(w *protocol.Writer) // after the Start
		taken bool                     // the program may have begun
	}{
		"a piece of the workspace": {at: protocol.FrameStart, input: RunInput{Workspace: strings.NewReader("tar")}},
		"the workspace's end":      {at: protocol.FrameWorkspace, input: RunInput{Workspace: strings.NewReader("tar")}},
		"the standard input":       {at: protocol.FrameWorkspaceEnd, input: RunInput{Workspace: strings.NewReader("tar"), Stdin: strings.NewReader("in")}, taken: true},
		"its end":                  {at: protocol.FrameStdin, input: RunInput{Stdin: strings.NewReader("in")}, taken: true},
		"an acknowledgement": {at: protocol.FrameStart, taken: false, says: func(w *protocol.Writer) {
			_ = w.SendJSON(protocol.FrameStarted, protocol.Started{})
			_ = w.SendJSON(protocol.FrameDisplay, executor.Display{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, s := starvedConn(func(w *protocol.Writer, got protocol.FrameType) {
					if got == protocol.FrameStart && test.says != nil {
						test.says(w)
					}
				})
				s.last = test.at
				_, err := c.Run(awaittest.Context(t), Start{}, test.input, newRecord())
				if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), syscall.ENOBUFS.Error()) || errors.Is(err, ErrTaken) != test.taken {
					t.Errorf("Run: %v", err)
				}
				_ = c.Close()
			})
		})
	}
}

func TestACallThatCannotBeSentEndsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := starvedConn(func(*protocol.Writer, protocol.FrameType) {})
		lists := make(chan error, 1)
		go func() {
			_, err := c.ListFiles(t.Context(), ".", false)
			lists <- err
		}()
		synctest.Wait()
		s.hungry.Store(true)
		_, err := c.WriteFile(t.Context(), executor.File{Path: "name", SizeBytes: 2}, strings.NewReader("ab"))
		if first := <-lists; executor.CodeOf(err) != executor.Unavailable || executor.CodeOf(first) != executor.Unavailable {
			t.Errorf("%v, and a call that waited: %v", err, first)
		}
		<-c.Done()
		if !errors.Is(c.Err(), syscall.ENOBUFS) {
			t.Error(c.Err())
		}
		_ = c.Close()
	})
}

// A cancel that cannot be sent has no answer.
func TestACancelThatCannotBeSentEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := starvedConn(func(w *protocol.Writer, got protocol.FrameType) {
			if got == protocol.FrameStart {
				_ = w.SendJSON(protocol.FrameStarted, protocol.Started{})
			}
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			res, err := c.Run(ctx, Start{}, RunInput{}, newRecord())
			if res.Status != executor.StatusKilled {
				err = errors.Join(err, errors.New(describe(res)))
			}
			ended <- err
		}()
		synctest.Wait()
		s.hungry.Store(true)
		cancel(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = c.Close()
	})
}

// A runner that has everything must start the program, or say something, within a bound.
func TestARunnerThatStartsNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		input   RunInput
		after   time.Duration // the time of the last word of the runner
		started bool
		want    time.Duration // when the run ends; 0: when the runner says so
	}{
		"without a word":           {want: startPatience},
		"after its last word":      {after: startPatience - time.Second, want: 2*startPatience - time.Second},
		"a workspace that is late": {input: RunInput{Workspace: &late{first: time.Hour, rest: strings.NewReader("tar")}}, want: time.Hour + startPatience},
		"a program that runs":      {started: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const runs = 10 * time.Hour
				c, _ := starvedConn(func(w *protocol.Writer, got protocol.FrameType) {
					if got != protocol.FrameStart {
						return
					}
					go func() {
						if test.started {
							_ = w.SendJSON(protocol.FrameStarted, protocol.Started{})
						} else if test.after > 0 {
							time.Sleep(test.after)
							_ = w.SendJSON(protocol.FrameProgress, executor.Progress{})
						}
						time.Sleep(runs)
						_ = w.SendJSON(protocol.FrameExited, executor.Result{Status: executor.StatusSucceeded}) // the connection may have ended
					}()
				})
				began := time.Now()
				_, err := c.Run(t.Context(), Start{}, test.input, newRecord())
				took := time.Since(began)
				if test.want == 0 {
					if err != nil || took != runs {
						t.Errorf("after %s: %v", took, err)
					}
				} else if !errors.Is(err, ErrTaken) || took != test.want {
					t.Errorf("after %s, want %s: %v", took, test.want, err)
				}
				_ = c.Close()
				time.Sleep(runs)
			})
		})
	}
}

// late is a reader whose first Read takes its time.
type late struct {
	first time.Duration
	rest  io.Reader
}

func (l *late) Read(p []byte) (int, error) {
	time.Sleep(l.first)
	l.first = 0
	return l.rest.Read(p)
}

// The stream knows whether a descriptor had all bytes, and the descriptor why it has no more.
func TestATakenReaderEndsAsItsStreamDoes(t *testing.T) {
	t.Parallel()
	broken, cut := errors.New("the disk is broken"), errors.New("the sender is gone")
	for name, test := range map[string]struct{ from, rest, want error }{
		"whole":                {io.EOF, io.EOF, io.EOF},
		"a broken descriptor":  {broken, io.EOF, broken},
		"a stream that is cut": {io.EOF, cut, cut},
		"both":                 {broken, cut, cut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := io.ReadAll(&takenReader{from: endsWith("bytes", test.from), rest: endsWith("", test.rest)})
			if want := test.want; string(got) != "bytes" || !errors.Is(err, want) && !errors.Is(want, io.EOF) || errors.Is(want, io.EOF) && err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func endsWith(text string, err error) io.Reader {
	return io.MultiReader(bytes.NewReader([]byte(text)), readerFunc(func([]byte) (int, error) { return 0, err }))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
