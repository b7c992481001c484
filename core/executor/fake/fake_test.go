package fake_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// log is a Sink that records.
type log struct {
	mu     sync.Mutex
	events []executor.Event
	emit   func(executor.Event) error
}

func (l *log) Emit(e executor.Event) error {
	l.mu.Lock()
	l.events = append(l.events, e)
	l.mu.Unlock()
	if l.emit != nil {
		return l.emit(e)
	}
	return nil
}

func (l *log) Artifact(_ *tar.Header, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func (l *log) stream(s executor.Stream) string {
	var b strings.Builder
	for _, e := range l.events {
		if out, ok := e.Body.(executor.Output); ok && out.Stream == s {
			b.Write(out.Data)
		}
	}
	return b.String()
}

func job(code string) executor.Job {
	return executor.Job{
		ID: "exe_1", Owner: "me", Attempt: 1,
		Spec: executor.Spec{Code: code},
		Limits: executor.Limits{
			Timeout: time.Minute, MemoryBytes: 64 << 20, DiskBytes: 1 << 20, CPUShares: 1024, PIDs: 32,
			OutputBytes: 1 << 20, KillGrace: time.Second,
		},
	}
}

func TestProgramsEndAsTheySay(t *testing.T) {
	for name, c := range map[string]struct {
		code   string
		stdout string
		status executor.Status
		exit   int
		signal string
	}{
		"prints":                        {"print hello", "hello\n", executor.StatusSucceeded, 0, ""},
		"exits":                         {"exit 3", "", executor.StatusFailed, 3, ""},
		"dies of a signal":              {"signal SEGV", "", executor.StatusFailed, 0, "SIGSEGV"},
		"sleeps on the fake clock":      {"sleep 59s\nprint done", "done\n", executor.StatusSucceeded, 0, ""},
		"times out":                     {"print on\nhang", "on\n", executor.StatusTimedOut, 0, "SIGTERM"},
		"ignores SIGTERM":               {"ignore-term\nhang", "", executor.StatusTimedOut, 0, "SIGKILL"},
		"exits within the grace":        {"on-term 0\nhang", "", executor.StatusTimedOut, 0, ""},
		"needs too much memory":         {"alloc 1GB", "", executor.StatusOutOfMemory, 0, "SIGKILL"},
		"does not know a directive":     {"jump", "", executor.StatusFailed, 1, ""},
		"leaves a grandchild":           {"spawn-grandchild boo\nprint bye", "bye\n", executor.StatusSucceeded, 0, ""},
		"reads a standard input of nil": {"count-stdin", "0\n", executor.StatusSucceeded, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &log{}
				res, err := fake.New(fake.Options{}).Run(t.Context(), job(c.code), l)
				if err != nil {
					t.Fatal(err)
				}
				if res.Status != c.status || res.Signal != c.signal || l.stream(executor.Stdout) != c.stdout {
					t.Fatalf("got %+v, stdout %q", res, l.stream(executor.Stdout))
				}
				if (res.ExitCode == nil) != (c.signal != "") || res.ExitCode != nil && *res.ExitCode != c.exit {
					t.Fatalf("exit code %v", res.ExitCode)
				}
			})
		})
	}
}

func TestCancelStopsARunWhereverItIs(t *testing.T) {
	for name, j := range map[string]func() executor.Job{
		"while silent": func() executor.Job { return job("hang") },
		"while flooding": func() executor.Job {
			j := job("flood stdout 10GB")
			j.Limits.OutputBytes = executor.Unlimited
			return j
		},
		"while installing": func() executor.Job {
			j := job("print never")
			j.Spec.Requirements = "slow-package"
			return j
		},
		"while the workspace does not come": func() executor.Job {
			j := job("print never")
			r, _ := io.Pipe()
			j.Workspace = &executor.Source{Open: func() (io.ReadCloser, error) { return r, nil }, SizeBytes: -1}
			return j
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Millisecond, func() { cancel(errors.New("enough")) })
				l := &log{emit: func(executor.Event) error { time.Sleep(time.Microsecond); return nil }}
				b := fake.New(fake.Options{})
				res, err := b.Run(ctx, j(), l)
				if err != nil || res.Status != executor.StatusKilled {
					t.Fatalf("got %+v, %v", res, err)
				}
				if len(b.Running()) != 0 {
					t.Fatal("something runs")
				}
			})
		})
	}
}

func TestAProgramOutlivesAnAbandonedBackend(t *testing.T) {
	caps := fake.DefaultCapabilities()
	caps.Attach = true
	b := fake.New(fake.Options{Capabilities: &caps})
	j := job("print one\nwait gate\nprint two")
	started := make(chan executor.Started, 1)
	first := &log{}
	first.emit = func(e executor.Event) error {
		switch body := e.Body.(type) {
		case executor.Started:
			started <- body
		case executor.Output:
			b.Abandon()
		}
		return nil
	}
	_, err := b.Run(t.Context(), j, first)
	if executor.CodeOf(err) != executor.Unavailable {
		t.Fatalf("got %v", err)
	}
	next := b.Abandon()
	next.Release("gate")
	second := &log{}
	res, err := next.Attach(t.Context(), j, executor.Resume{Handle: (<-started).Handle, Stdout: 4}, second)
	if err != nil || res.Status != executor.StatusSucceeded || second.stream(executor.Stdout) != "two\n" || res.StdoutBytes != 8 {
		t.Fatalf("got %+v, %v, %q", res, err, second.stream(executor.Stdout))
	}
	if err := next.Remove(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Attach(t.Context(), j, executor.Resume{}, second); executor.CodeOf(err) != executor.NotFound {
		t.Fatalf("got %v", err)
	}
}

func TestHostileTarsAreTheUsersFault(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"parent":           {Name: "../x", Typeflag: tar.TypeReg},
		"parent in middle": {Name: "a/../../x", Typeflag: tar.TypeReg},
		"absolute":         {Name: "/x", Typeflag: tar.TypeReg},
		"link out":         {Name: "x", Typeflag: tar.TypeSymlink, Linkname: "../y"},
		"hard link out":    {Name: "x", Typeflag: tar.TypeLink, Linkname: "../y"},
		"device":           {Name: "x", Typeflag: tar.TypeBlock},
		"fifo":             {Name: "x", Typeflag: tar.TypeFifo},
	} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			w := tar.NewWriter(&buf)
			if err := errors.Join(w.WriteHeader(&h), w.Close()); err != nil {
				t.Fatal(err)
			}
			j := job("print never")
			j.Workspace = &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(&buf), nil }, SizeBytes: -1}
			res, err := fake.New(fake.Options{}).Run(t.Context(), j, &log{})
			if err != nil || res.Status != executor.StatusFailed || res.Failure == nil || res.Failure.Code != executor.Invalid ||
				!strings.Contains(res.Failure.Message, h.Name) {
				t.Fatalf("got %+v %+v, %v", res, res.Failure, err)
			}
		})
	}
}

func TestHooksBreakIt(t *testing.T) {
	release := make(chan struct{})
	close(release)
	for name, c := range map[string]struct {
		hook fake.Hook
		code executor.Code
	}{
		"fail":      {fake.Fail(executor.Errorf(executor.Internal, "broken")), executor.Internal},
		"hang":      {fake.Hang(release), executor.Unavailable},
		"die after": {fake.DieAfter(2), executor.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.New(fake.Options{Hook: c.hook})
			if _, err := b.Run(t.Context(), job("print 1\nprint 2"), &log{}); executor.CodeOf(err) != c.code {
				t.Fatalf("got %v", err)
			}
			if len(b.Running()) != 0 {
				t.Fatal("something runs")
			}
		})
	}
}
