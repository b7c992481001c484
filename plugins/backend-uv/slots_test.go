package uvbackend

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/plugin"
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

// await waits for a line with that message and returns its attributes, for at most 30 s.
func (l *logLines) await(t *testing.T, message string) map[string]any {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
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

func TestARunnerThatDiesIsLoggedWithItsReason(t *testing.T) {
	b, lines := loggingBackend(t)
	take := func() *slot {
		s, _, err := b.slots.take(t.Context(), false)
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
	kill(idle, syscall.SIGABRT) // Go's runtime says so on its standard error
	line := lines.await(t, "an idle runner died")
	checkAttribute(t, line, "folder", idle.dir)
	checkAttribute(t, line, "reason", "the runner went away")
	checkAttribute(t, line, "exit", "exit status 2")
	checkAttribute(t, line, "stderr", "goroutine")

	busy := take()
	kill(busy, syscall.SIGKILL)
	<-busy.exited
	b.slots.put(busy)
	line = lines.await(t, "a runner died at work")
	checkAttribute(t, line, "folder", busy.dir)
	checkAttribute(t, line, "reason", "the runner went away")
	checkAttribute(t, line, "exit", "signal: killed")

	ended := take()
	died := b.slots.died.Load()
	if err := ended.conn.Close(); err != nil {
		t.Fatal(err)
	}
	b.slots.put(ended)
	b.slots.close() // which waits for the burial
	if got := strings.Count(lines.buf.String(), "runner died"); got != 2 {
		t.Errorf("%d runners died according to the log, want 2; %d more were counted\n%s", got, b.slots.died.Load()-died, &lines.buf)
	}
}
