package uvbackend

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
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

// await waits for a line with that message and returns its attributes.
func (l *logLines) await(t *testing.T, message string) (found map[string]any) {
	t.Helper()
	awaittest.UntilNil(t, "a line "+message+" in the log", func() error {
		l.mu.Lock()
		all := l.buf.String()
		l.mu.Unlock()
		for line := range strings.Lines(all) {
			found = nil
			if err := json.Unmarshal([]byte(line), &found); err != nil {
				t.Fatal(err)
			}
			if found["msg"] == message {
				return nil
			}
		}
		return errors.New(all)
	})
	return found
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

// TestASlotIsInTheNetworkOfItsProgram holds for runners in a user namespace without a box. Elsewhere each program has a network of its own.
func TestASlotIsInTheNetworkOfItsProgram(t *testing.T) {
	t.Parallel()
	p := &slots{how: mechanisms{User: true}, idle: []*slot{{slotKind: slotKind{network: true}}, {}}}
	if with, without := p.next(true, ""), p.next(false, ""); with != 0 || without != 1 {
		t.Errorf("programs get the slots %d with a network and %d without, want 0 and 1", with, without)
	}
	if p.idle = p.idle[1:]; p.next(true, "") != -1 {
		t.Error("a program with a network gets a slot without")
	}
	p.how.Box = true
	if p.next(true, "") != 0 {
		t.Error("in a box a program does not get the slot that there is")
	}
}

func TestNoFurtherRunnerIsStartedWhereUIDsAreScarceOrForASingleCall(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	close(closed) // a slot that is started is given back at once
	for _, c := range []struct {
		name       string
		keep, uids int
		want       bool
	}{
		{"a server", keptSlots, forkSlots + 1, true},
		{"a server with a uid too few", keptSlots, forkSlots, false},
		{"a single call", 1, forkSlots + 1, false},
	} {
		r := uids{70000, 70000 + c.uids - 1}
		ids := poolWithoutProcesses(t, r)
		busy := &slot{}
		p := &slots{claim: &workClaim{dir: t.TempDir()}, how: mechanisms{uids: r}, ids: ids, keep: c.keep, log: ids.log, closed: closed, all: map[*slot]struct{}{busy: {}}}
		p.mu.Lock()
		p.addLocked()
		added := p.adding
		p.mu.Unlock()
		p.wg.Wait()
		if added != c.want || p.adding {
			t.Errorf("%s: a runner was started: %v, want %v; one is being started: %v", c.name, added, c.want, p.adding)
		}
	}
}

func TestASlotWeighsWhatItsProgramWeighs(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(two, "cgroup.controllers"), []byte("cpu memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v1, v2 := &slot{groups: sandbox.Cgroups{"cpu": one}}, &slot{groups: sandbox.Cgroups{"unified": two}}
	read := func(path string) string {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(raw)
	}
	for shares, want := range map[int64][2]string{1: {"2", "1"}, 2: {"2", "1"}, 1024: {"1024", "39"}, 262144: {"262144", "10000"}, 300000: {"262144", "10000"}} {
		v1.weigh(shares)
		v2.weigh(shares)
		if got := [2]string{read(filepath.Join(one, "cpu.shares")), read(filepath.Join(two, "cpu.weight"))}; got != want {
			t.Errorf("%d shares: the weights are %q, want %q", shares, got, want)
		}
	}
	// Most programs have the weight of the one before. Each write costs a system call in the way of the program.
	v1.weigh(500)
	if err := os.Remove(filepath.Join(one, "cpu.shares")); err != nil {
		t.Fatal(err)
	}
	if v1.weigh(500); isFile(filepath.Join(one, "cpu.shares")) {
		t.Error("a weight that the slot has was set again")
	}
	if err := weigh(sandbox.Cgroups{"memory": filepath.Join(one, "none")}, 1024, 100); err != nil {
		t.Errorf("without a CPU group: %v", err)
	}
}

func TestARunnersConfigurationFollowsFromTheMechanisms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		how         mechanisms
		network     bool
		own, inside bool
	}{
		{"root with a box", mechanisms{Setuid: true, Network: true, Tmpfs: true, Box: true}, true, true, false},
		{"root without a box", mechanisms{Setuid: true, Network: true}, false, true, false},
		{"a user with a box", mechanisms{User: true, Tmpfs: true, Box: true}, false, true, false},
		{"a user without a box", mechanisms{User: true, Tmpfs: true}, false, false, true},
		{"a user without a box whose programs have a network", mechanisms{User: true, Tmpfs: true}, true, false, false},
		{"nothing", mechanisms{}, true, false, false},
	} {
		got := (&slot{dir: "/work/1", slotKind: slotKind{network: c.network}, open: []string{"10.0.0.0/8"}}).config(c.how, nil)
		wrong := got.NetworkNamespace != c.own || got.InNetworkNamespace != c.inside || got.Tmpfs != c.how.Tmpfs || got.Box != c.how.Box
		if wrong || got.PrivateNetwork || len(got.NetworkOpen) > 0 || got.OwnUID {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	temp := []string(nil)
	if public(os.TempDir()) {
		temp = []string{os.TempDir()}
	}
	got := (&slot{slotKind: slotKind{private: true}, open: []string{"10.0.0.0/8"}, uid: &uidClaim{uid: 61299}}).config(mechanisms{}, nil)
	if !got.PrivateNetwork || !slices.Equal(got.NetworkOpen, []string{"10.0.0.0/8"}) || got.UID != 61299 || got.GID != 61299 || !got.OwnUID || !slices.Equal(got.Private, temp) {
		t.Errorf("a slot with a uid and a network of its own: %+v", got)
	}
}

func TestOnlyTheFirstWritesOfARunnerAreLogged(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	n := newRunnerStderr(slog.New(slog.NewTextHandler(&said, nil)), slog.LevelDebug)
	for range 60 {
		if _, err := n.Write([]byte("again\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(said.String(), "again"); got != 50 {
		t.Errorf("%d writes were logged", got)
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
	options := section(t, map[string]any{"cache_bytes": 1})
	for _, cached := range []bool{false, true} { // a search may ask interpreters in two slots at once
		b, err := newBackend(t.Context(), plugin.Configure{Name: "uv", Instance: t.Name(), Options: options, Embedded: true})
		if err != nil {
			t.Fatal(err)
		}
		succeeds(t, b, executor.Spec{Code: "print(1)"})
		if n := b.slots.started.Load(); cached && n != 1 {
			t.Errorf("%d runners were started", n)
		}
		entries, _ := b.cache.entries()
		if !cached {
			fill(t, b.cache, "old", 1000, time.Hour)
		} else if len(entries) != 1 {
			t.Errorf("%d environments, want the old one, which a single call does not evict", len(entries))
		}
		if b.slots.keep != 1 || b.warm.keep != 0 {
			t.Errorf("%d runners and %d interpreters are kept", b.slots.keep, b.warm.keep)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// settle waits until no slot is being started or has a job, and returns the number of idle slots.
func (p *slots) settle(t *testing.T) (idle int) {
	t.Helper()
	awaittest.Until(t, "the end of all starts", func() bool {
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
