package agent

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/runner/output"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// gate is a stream that can hold a write back.
type gate struct {
	mu      sync.Mutex
	written bytes.Buffer
	// hold, if set, is asked about every write before it goes on.
	hold func(p []byte)
}

func (g *gate) Write(p []byte) (int, error) {
	if g.hold != nil {
		g.hold(p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.written.Write(p)
}

// types are the types of the frames that were written.
func (g *gate) types(t *testing.T) []protocol.FrameType {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []protocol.FrameType
	frames := protocol.NewReader(bytes.NewReader(g.written.Bytes()))
	for {
		kind, n, err := frames.Header()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err == nil {
			_, err = frames.Payload(n)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, kind)
	}
}

// checkNothingBehindExited fails the test if a frame follows Exited, or if there is none.
func (g *gate) checkNothingBehindExited(t *testing.T) {
	t.Helper()
	all := g.types(t)
	if len(all) == 0 || all[len(all)-1] != protocol.FrameExited {
		t.Fatalf("frames of types %v, want type %d last", all, protocol.FrameExited)
	}
}

// runningAgent is an agent that writes to g, with an Execution that runs, has a Stdin, and reads none of it.
func runningAgent(g *gate, silence bool) (*agent, *execution) {
	a := newAgent(nil)
	a.out = protocol.NewWriter(g)
	if silence {
		a.relay = newRelay(g)
		a.out = protocol.NewRelayWriter(a.relay, 0)
	}
	x := newExecution(a, protocol.Start{})
	a.current, a.running = x, true
	if a.relay != nil {
		x.sender = a.relay.follow(x.box.Backlog)
	}
	x.stdin.Swallow()
	return a, x
}

func stdinPiece() protocol.Piece {
	buf := protocol.ChunkPool.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	return protocol.Piece{Buffer: buf, Data: (*buf)[:1000]}
}

func TestNoCreditFollowsTheResult(t *testing.T) {
	t.Run("a piece that comes while the result is written", func(t *testing.T) {
		writing, goOn := make(chan struct{}), make(chan struct{})
		g := &gate{hold: func(p []byte) {
			if protocol.FrameType(p[4]) == protocol.FrameExited {
				close(writing)
				<-goOn
			}
		}}
		a, x := runningAgent(g, false)
		var both sync.WaitGroup
		both.Go(func() { a.answer(x, a.out) })
		<-writing
		begun := make(chan struct{})
		both.Go(func() {
			close(begun)
			if err := x.stdin.Put(stdinPiece()); err != nil { // the reader of frames has asked for x before
				t.Error(err)
			}
		})
		<-begun
		close(goOn)
		both.Wait()
		g.checkNothingBehindExited(t)
	})
	t.Run("a piece that comes after the result", func(t *testing.T) {
		g := &gate{}
		a, x := runningAgent(g, false)
		a.answer(x, a.out)
		if err := x.stdin.Put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
		g.checkNothingBehindExited(t)
	})
	t.Run("a piece of an Execution before the one that runs", func(t *testing.T) {
		g := &gate{}
		a, x := runningAgent(g, false)
		a.answer(x, a.out)
		a.mu.Lock()
		a.current, a.running = newExecution(a, protocol.Start{}), true
		a.mu.Unlock()
		if err := x.stdin.Put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
		g.checkNothingBehindExited(t)
	})
	t.Run("a result that is decided on while a piece waits to be acknowledged", func(t *testing.T) {
		writing, goOn := make(chan struct{}), make(chan struct{})
		g := &gate{hold: func(p []byte) {
			if protocol.FrameType(p[4]) == protocol.FrameProgress { // a long frame
				close(writing)
				<-goOn
			}
		}}
		a, x := runningAgent(g, false)
		var both sync.WaitGroup
		both.Go(func() {
			if err := a.out.Send(protocol.FrameProgress); err != nil {
				t.Error(err)
			}
		})
		<-writing
		both.Go(func() {
			if err := x.stdin.Put(stdinPiece()); err != nil {
				t.Error(err)
			}
		})
		awaittest.Until(t, "a wait for the Writer", func() bool { return awaittest.Blocked("(*Writer)") })
		a.mu.Lock()
		a.running = false // what answer does first
		a.mu.Unlock()
		close(goOn)
		both.Wait()
		if got := g.types(t); len(got) != 1 {
			t.Errorf("frames of types %v", got)
		}
	})
	t.Run("pieces at any time", func(t *testing.T) {
		for range 5000 {
			g := &gate{}
			a, x := runningAgent(g, false)
			var both sync.WaitGroup
			both.Go(func() {
				for range 5 {
					if err := x.stdin.Put(stdinPiece()); err != nil {
						t.Error(err)
					}
				}
			})
			a.answer(x, a.out)
			both.Wait()
			g.checkNothingBehindExited(t)
		}
	})
	t.Run("while it runs credit is granted", func(t *testing.T) {
		g := &gate{}
		_, x := runningAgent(g, false)
		if err := x.stdin.Put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
		if got := g.types(t); len(got) != 1 || got[0] != protocol.FrameCredit {
			t.Errorf("frames of types %v", got)
		}
	})
}

func TestNoCreditFollowsTheResultToAHostThatMayGo(t *testing.T) {
	sent := func(a *agent) *gate {
		g := &gate{}
		a.relay.mu.Lock()
		defer a.relay.mu.Unlock()
		_, _ = g.Write(a.relay.collect(nil))
		return g
	}
	put := func(t *testing.T, x *execution) {
		t.Helper()
		if err := x.stdin.Put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("while it runs credit is granted", func(t *testing.T) {
		a, x := runningAgent(&gate{}, true)
		put(t, x)
		a.answer(x, a.relay.writer())
		if got := sent(a).types(t); len(got) != 2 || got[0] != protocol.FrameCredit || got[1] != protocol.FrameExited {
			t.Errorf("frames of types %v", got)
		}
	})
	t.Run("a piece that comes after the result", func(t *testing.T) {
		a, x := runningAgent(&gate{}, true)
		a.answer(x, a.relay.writer())
		put(t, x)
		sent(a).checkNothingBehindExited(t)
		put(t, x)
		if got := sent(a).types(t); len(got) != 0 {
			t.Errorf("frames of types %v", got)
		}
	})
	t.Run("a piece of the next Execution", func(t *testing.T) {
		a, x := runningAgent(&gate{}, true)
		a.answer(x, a.relay.writer())
		sent(a).checkNothingBehindExited(t)
		x = newExecution(a, protocol.Start{})
		x.sender = a.relay.follow(x.box.Backlog)
		x.stdin.Swallow()
		put(t, x)
		if got := sent(a).types(t); len(got) != 1 || got[0] != protocol.FrameCredit {
			t.Errorf("frames of types %v", got)
		}
	})
	for name, another := range map[string]func(*agent){
		"another host that follows nothing":     func(a *agent) { a.relay.resume(nil, nil) },
		"another host that follows it":          func(a *agent) { a.relay.resume(nil, a.current.box.Backlog) },
		"the next Execution":                    func(a *agent) { a.relay.follow(output.NewBacklog(a.relay.wake)) },
		"credit that was not sent before, then": func(a *agent) { put(t, a.current); a.relay.resume(nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			a, x := runningAgent(&gate{}, true)
			another(a)
			put(t, x)
			if got := sent(a).types(t); len(got) != 0 {
				t.Errorf("frames of types %v", got)
			}
		})
	}
}

func TestStartedIsToldOnceToAHostThatComesMeanwhile(t *testing.T) {
	a, x := runningAgent(&gate{}, true)
	_, out := a.noteStarted(x, protocol.Started{Started: executor.Started{PID: 1}})
	a.relay.resume(nil, x.box.Backlog) // its introduction has Started
	if err := out.SendJSON(protocol.FrameStarted, protocol.Started{}); err != nil {
		t.Fatal(err)
	}
	if a.relay.first.bytes > 0 {
		t.Errorf("Started was sent again: %q", a.relay.first.frames)
	}
}
