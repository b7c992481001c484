package uvbackend

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/runner/sandbox"
)

// logLines is a log that a test reads.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// await waits for a line with that message and returns its attributes, for at most two minutes.
func (l *logLines) await(t *testing.T, message string) map[string]any {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		all := l.buf.String()
		l.mu.Unlock()
		for line := range strings.Lines(all) {
			var attributes map[string]any
			if err := json.Unmarshal([]byte(line), &attributes); err != nil {
				t.Fatal(err)
			}
			if attributes["msg"] == message {
				return attributes
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no line %q in the log:\n%s", message, all)
		}
	}
}

// checkAttribute fails the test if the attribute does not contain want.
func checkAttribute(t *testing.T, attributes map[string]any, name, want string) {
	t.Helper()
	if got, _ := attributes[name].(string); !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want %q in it", name, got, want)
	}
}

func loggingBackend(t *testing.T) (*Backend, *logLines) {
	t.Helper()
	lines := &logLines{}
	b, err := newBackend(t.Context(), plugin.Configure{
		Name: "uv", Instance: t.Name(), Options: section(t, nil), Log: slog.New(slog.NewJSONHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, lines
}

// The reason of a crash is the first line of a long trace. The start of the output is kept as well as its end.
func TestTheStartAndTheEndOfStderrAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":      {nil, ""},
		"short":        {[]string{" panic: ", "here\n"}, "panic: here"},
		"exactly both": {[]string{strings.Repeat("a", stderrHalf), strings.Repeat("b", stderrHalf)}, strings.Repeat("a", stderrHalf) + strings.Repeat("b", stderrHalf)},
		"one write":    {[]string{"panic: first" + strings.Repeat("x", 5000) + "last"}, "panic: first" + strings.Repeat("x", stderrHalf-12) + "\n…\n" + strings.Repeat("x", stderrHalf-4) + "last"},
		"many writes":  {[]string{"first", strings.Repeat("y", 3000), strings.Repeat("z", 10), "last"}, "first" + strings.Repeat("y", stderrHalf-5) + "\n…\n" + strings.Repeat("y", stderrHalf-14) + strings.Repeat("z", 10) + "last"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newRunnerStderr(slog.New(slog.DiscardHandler), slog.LevelDebug)
			for _, w := range c.writes {
				if k, err := n.Write([]byte(w)); k != len(w) || err != nil {
					t.Fatal(k, err)
				}
			}
			if got := n.lines(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestARunnerThatDiesIsLoggedWithItsReason(t *testing.T) {
	b, lines := loggingBackend(t)
	take := func() *slot {
		s, _, err := b.slots.take(t.Context(), false, "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	kill := func(s *slot, sig syscall.Signal) {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	idle := take()
	b.slots.put(idle)
	kill(idle, syscall.SIGABRT) // Go's runtime writes a trace to standard error
	line := lines.await(t, "an idle runner died")
	checkAttribute(t, line, "folder", idle.dir)
	checkAttribute(t, line, "reason", "the runner went away")
	checkAttribute(t, line, "exit", "exit status 2")
	checkAttribute(t, line, "stderr", "SIGABRT: abort")

	busy := take()
	kill(busy, syscall.SIGKILL)
	<-busy.exited
	b.slots.put(busy)
	line = lines.await(t, "a runner died during a job")
	checkAttribute(t, line, "folder", busy.dir)
	checkAttribute(t, line, "reason", "the runner went away")
	checkAttribute(t, line, "exit", "signal: killed")

	ended := take()
	died := b.slots.died.Load()
	if err := ended.conn.Close(); err != nil {
		t.Fatal(err)
	}
	b.slots.put(ended)
	b.slots.close() // waits until put has given the slot back
	if got := strings.Count(lines.text(), "runner died"); got != 2 {
		t.Errorf("%d runners died according to the log, want 2; %d more were counted\n%s", got, b.slots.died.Load()-died, lines.text())
	}
}

func TestASlotWithTheForkServerOfAProgramIsPreferred(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		idle []string
		fork string
		want int
	}{
		{[]string{"a", "b", "a"}, "a", 0},
		{[]string{"a", "b", "a"}, "b", 1},
		{[]string{"a", "b", "a"}, "c", 0}, // the oldest one
		{[]string{"a", "b", "a"}, "", 0},
		{[]string{"a", "", "b"}, "", 1},
		{[]string{"", "b", "a"}, "a", 0}, // the last one may still be clearing up
		{[]string{"", "b", "a"}, "c", 0},
		{[]string{"b", "c", "a"}, "a", 2},
		{nil, "a", -1},
	} {
		p := &slots{}
		for _, fork := range c.idle {
			p.idle = append(p.idle, &slot{fork: fork})
		}
		if got := p.next(false, c.fork); got != c.want {
			t.Errorf("a program of %q gets slot %d of %q, want %d", c.fork, got, c.idle, c.want)
		}
	}
}

func TestNotesOfARunnerAreNoWarnings(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	n := newRunnerStderr(slog.New(slog.NewTextHandler(&said, nil)), slog.LevelDebug)
	if _, err := n.Write([]byte(sandbox.NotePrefix + "no fork\nrunner: broken\n")); err != nil {
		t.Fatal(err)
	}
	if text := said.String(); strings.Contains(text, "no fork") || !strings.Contains(text, "runner: broken") || n.lines() != "runner: broken" {
		t.Errorf("logged %q, kept %q", text, n.lines())
	}
}

// TestASingleCallStartsOneRunner holds although the program comes before the runner is ready.
func TestASingleCallStartsOneRunner(t *testing.T) {
	options := section(t, nil)
	for _, cached := range []bool{false, true} { // a search may ask interpreters in two slots at once
		b, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name(), Options: options, Embedded: true})
		if err != nil {
			t.Fatal(err)
		}
		succeeds(t, b, executor.Spec{Code: "print(1)"})
		if n := b.slots.started.Load(); cached && n != 1 {
			t.Errorf("%d runners were started", n)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// settle waits until no slot is being started or has a job, and returns the number of idle slots.
func (p *slots) settle(t *testing.T) (idle int) {
	t.Helper()
	eventually(t, "the end of all starts", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		idle = len(p.idle)
		return !p.adding && len(p.all) == idle && idle > 0
	})
	return idle
}

// TestProgramsThatComeInTurnsKeepTheirForkServers takes slots for programs of as many kinds as may have one each.
func TestProgramsThatComeInTurnsKeepTheirForkServers(t *testing.T) {
	b := openBackend(t, map[string]any{"warm_sessions": -1})
	p := b.slots
	settle := func() int { return p.settle(t) }
	settle()
	// run reports whether there was a slot for programs of a kind.
	run := func(fork string) bool {
		p.mu.Lock()
		had := slices.ContainsFunc(p.idle, func(s *slot) bool { return s.fork == fork })
		p.mu.Unlock()
		s, _, err := p.take(t.Context(), false, fork)
		if err != nil {
			t.Fatal(err)
		}
		p.put(s)
		return had
	}
	for kept, round := 0, 0; kept < forkSlots; round++ {
		if round > 5 {
			t.Fatalf("in the last of %d rounds, %d kinds of %d kept their slots; %d slots are idle", round, kept, forkSlots, settle())
		}
		kept = 0
		for n := range forkSlots {
			if run(strconv.Itoa(n)) {
				kept++
			}
			settle()
		}
	}
	run("one more")
	if got := settle(); got != forkSlots {
		t.Errorf("%d slots are idle after a program of a further kind, want %d", got, forkSlots)
	}
}

func TestASlotThatWasNotGivenBackInTimeGetsTimeAgain(t *testing.T) {
	t.Parallel()
	first, second := &slot{}, &slot{}
	p := &slots{keep: 1, idle: []*slot{first, second}}
	p.limitLocked()
	first.idle.Stop()
	p.idle = []*slot{first}
	p.shrink(first) // the second one is in use
	p.idle = []*slot{first, second}
	p.limitLocked()
	if first.idle == nil || !first.idle.Stop() {
		t.Error("no timer runs for the oldest idle slot")
	}
}
