package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
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
func (g *gate) types(t *testing.T) []frameType {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []frameType
	frames := newFrameReader(bytes.NewReader(g.written.Bytes()))
	for {
		kind, n, err := frames.header()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err == nil {
			_, err = frames.payload(n)
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
	if len(all) == 0 || all[len(all)-1] != frameExited {
		t.Fatalf("frames of types %v, want type %d last", all, frameExited)
	}
}

// runningAgent is an agent that writes to g, with an Execution that runs, has a Stdin, and reads none of it.
func runningAgent(g *gate, silence bool) (*agent, *execution) {
	a := &agent{out: &frameWriter{w: g}, resumed: make(chan struct{})}
	if silence {
		a.up = newUplink(g)
		a.out.relay = a.up
	}
	x := newExecution(a, Start{})
	a.current, a.running = x, true
	if a.up != nil {
		x.sender = a.up.follow(x.box.kept)
	}
	x.stdin.swallow()
	return a, x
}

func stdinPiece() piece {
	buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	return piece{buf, (*buf)[:1000]}
}

func TestNoCreditFollowsTheResult(t *testing.T) {
	t.Run("a piece that comes while the result is written", func(t *testing.T) {
		writing, goOn := make(chan struct{}), make(chan struct{})
		g := &gate{hold: func(p []byte) {
			if frameType(p[4]) == frameExited {
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
			if err := x.stdin.put(stdinPiece()); err != nil { // the reader of frames has asked for x before
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
		if err := x.stdin.put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
		g.checkNothingBehindExited(t)
	})
	t.Run("a piece of an Execution before the one that runs", func(t *testing.T) {
		g := &gate{}
		a, x := runningAgent(g, false)
		a.answer(x, a.out)
		a.mu.Lock()
		a.current, a.running = newExecution(a, Start{}), true
		a.mu.Unlock()
		if err := x.stdin.put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
		g.checkNothingBehindExited(t)
	})
	t.Run("a result that is decided on while a piece waits to be acknowledged", func(t *testing.T) {
		g := &gate{}
		a, x := runningAgent(g, false)
		a.out.mu.Lock() // as while a long frame is written
		var putting sync.WaitGroup
		putting.Go(func() {
			if err := x.stdin.put(stdinPiece()); err != nil {
				t.Error(err)
			}
		})
		awaitBlocked(t, "frameWriter")
		a.mu.Lock()
		a.running = false // what answer does first
		a.mu.Unlock()
		a.out.mu.Unlock()
		putting.Wait()
		if got := g.types(t); len(got) > 0 {
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
					if err := x.stdin.put(stdinPiece()); err != nil {
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
		if err := x.stdin.put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
		if got := g.types(t); len(got) != 1 || got[0] != frameCredit {
			t.Errorf("frames of types %v", got)
		}
	})
}

func TestNoCreditFollowsTheResultToAHostThatMayGo(t *testing.T) {
	sent := func(a *agent) *gate {
		g := &gate{}
		a.up.mu.Lock()
		defer a.up.mu.Unlock()
		_, _ = g.Write(a.up.collect(nil))
		return g
	}
	put := func(t *testing.T, x *execution) {
		t.Helper()
		if err := x.stdin.put(stdinPiece()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("while it runs credit is granted", func(t *testing.T) {
		a, x := runningAgent(&gate{}, true)
		put(t, x)
		a.answer(x, a.up.writer())
		if got := sent(a).types(t); len(got) != 2 || got[0] != frameCredit || got[1] != frameExited {
			t.Errorf("frames of types %v", got)
		}
	})
	t.Run("a piece that comes after the result", func(t *testing.T) {
		a, x := runningAgent(&gate{}, true)
		a.answer(x, a.up.writer())
		put(t, x)
		sent(a).checkNothingBehindExited(t)
		put(t, x)
		if got := sent(a).types(t); len(got) != 0 {
			t.Errorf("frames of types %v", got)
		}
	})
	t.Run("a piece of the next Execution", func(t *testing.T) {
		a, x := runningAgent(&gate{}, true)
		a.answer(x, a.up.writer())
		sent(a).checkNothingBehindExited(t)
		x = newExecution(a, Start{})
		x.sender = a.up.follow(x.box.kept)
		x.stdin.swallow()
		put(t, x)
		if got := sent(a).types(t); len(got) != 1 || got[0] != frameCredit {
			t.Errorf("frames of types %v", got)
		}
	})
	for name, another := range map[string]func(*agent){
		"another host that follows nothing":     func(a *agent) { a.up.resume(nil, nil) },
		"another host that follows it":          func(a *agent) { a.up.resume(nil, a.current.box.kept) },
		"the next Execution":                    func(a *agent) { a.up.follow(newKept(a.up.wake)) },
		"credit that was not sent before, then": func(a *agent) { put(t, a.current); a.up.resume(nil, nil) },
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
	_, out := a.noteStarted(x, startedFrame{Started: executor.Started{PID: 1}})
	a.up.resume(nil, x.box.kept) // its introduction has Started
	if err := out.json(frameStarted, startedFrame{}); err != nil {
		t.Fatal(err)
	}
	if a.up.first.bytes > 0 {
		t.Errorf("Started was sent again: %q", a.up.first.frames)
	}
}

func TestAHostThatFollowsNothingGetsNoCredit(t *testing.T) {
	cfg := survivorConfig(t)
	s := newSurvivor(t, cfg)
	conn, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	if err != nil {
		t.Fatal(err)
	}
	// The program reads what the host has sent only after that host has gone.
	start := shell("until [ -e go ]; do sleep 0.01; done; wc -c > counting; mv counting counted")
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = conn.Run(context.Background(), start, RunInput{Stdin: strings.NewReader(strings.Repeat("x", 1<<20))}, s) // it ends with the connection
	})
	<-s.started
	s.detach(t, conn)
	running.Wait()
	holder, err := ResumeConn(s.attach(-1, -1), ResumeOptions{Epoch: s.epoch})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.WorkRoot, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, filepath.Join(cfg.WorkRoot, "counted"))
	if err := errors.Join(holder.Check(t.Context()), holder.Err()); err != nil {
		t.Errorf("the host that holds the runner: %v", err)
	}
	s.detach(t, holder)
}

// awaitBlocked waits until a goroutine waits for a lock in a method of that type.
func awaitBlocked(tb testing.TB, receiver string) {
	tb.Helper()
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "[sync.Mutex.Lock") && strings.Contains(stack, "(*"+receiver+")") {
				return
			}
		}
		if time.Now().After(deadline) {
			tb.Fatalf("no goroutine waits for a lock in %s", receiver)
		}
	}
}

// A runner that ends because the host broke the protocol has no Result of what it kills then.
func TestARunnerThatGivesUpItsHostHasNoResult(t *testing.T) {
	r, host := startProcess(t, nil)
	conn, err := NewConn(host, testConfig(t))
	if err != nil {
		t.Fatalf("hello: %v\n%s", err, r.stderr)
	}
	rec := newRecord()
	rec.emit = func(e executor.Event) error {
		if e.Body.Kind() == executor.KindStarted {
			return conn.out.frame(frameType(200))
		}
		return nil
	}
	res, err := conn.Run(t.Context(), shell("sleep 60"), RunInput{}, rec)
	if executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("got %s, %v", describe(res), err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := r.cmd.Wait(); err == nil || !strings.Contains(r.stderr.String(), "unknown frame type 200") {
		t.Errorf("the runner: %v\n%s", err, r.stderr)
	}
}

// awaitFile waits until a file is there, for at most 30 s.
func awaitFile(tb testing.TB, name string) {
	tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s did not come", name)
		}
	}
}
