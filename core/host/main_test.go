package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/leaktest"
	"github.com/python-executor/python-executor/core/executor/plugin"
	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/host"
)

func TestMain(m *testing.M) {
	if plugin.Requested() && os.Args[2] == "diary" {
		plugin.ServeFrontend("diary", "test", newDiary)
		os.Exit(0)
	}
	plugintest.Main(map[string]plugin.Factory{"waiter": newWaiter})
	if dir := os.Getenv(killEnv); dir != "" {
		beKilled(dir)
	}
	leaktest.Main(m)
}

// waiter runs until it is told to stop, or exits with its process.
type waiter struct {
	Refuse bool   `json:"refuse"`
	Crash  string `json:"crash"` // while this file exists, making the backend exits
	Slow   bool   `json:"slow"`  // making the backend ends with its ctx only
	Made   string `json:"made"`  // making the backend adds a line to this file
	name   string
	// configure has the instance, embedded and the data folder of its Configure.
	configure string
}

func newWaiter(ctx context.Context, c plugin.Configure) (executor.Backend, error) {
	w := &waiter{name: c.Name, configure: fmt.Sprintf("%s %t %s", c.Instance, c.Embedded, c.DataDir)}
	if err := json.Unmarshal(c.Options, w); err != nil {
		return nil, err
	}
	if w.Refuse {
		return nil, executor.FieldErrorf(executor.Invalid, "backends."+c.Name+".refuse", "is set")
	}
	if w.Crash != "" {
		if _, err := os.Stat(w.Crash); err == nil {
			os.Exit(3)
		}
	}
	if w.Made != "" {
		f, err := os.OpenFile(w.Made, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		if _, err := f.WriteString("made\n"); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	if w.Slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return w, nil
}

func (w *waiter) Info(context.Context) (executor.Info, error) {
	return executor.Info{Healthy: true, Details: map[string]string{"dir": mustWd(), "configure": w.configure}}, nil
}

func mustWd() string {
	dir, err := os.Getwd()
	if err != nil {
		return err.Error()
	}
	return dir
}

func (w *waiter) Run(ctx context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
	if err := sink.Emit(executor.Event{Body: executor.Started{PID: os.Getpid()}}); err != nil {
		return executor.Result{}, err
	}
	if job.Spec.Code == "wait" {
		<-ctx.Done()
		return executor.Result{Status: executor.StatusKilled}, nil
	}
	return executor.Result{Status: executor.StatusSucceeded}, nil
}

func (w *waiter) Attach(context.Context, executor.Job, executor.Resume, executor.Sink) (executor.Result, error) {
	return executor.Result{}, executor.Errorf(executor.NotFound, "nothing to attach to")
}

func (w *waiter) Remove(_ context.Context, id string) error { return w.know(id) }

func (w *waiter) know(id string) error {
	if id != "ctx-1" && id != "exe_1" {
		return executor.Errorf(executor.NotFound, "no %s", id)
	}
	return nil
}

func (w *waiter) OpenSession(_ context.Context, s executor.Session) (executor.OpenedSession, error) {
	return executor.OpenedSession{Handle: []byte(s.ID)}, w.know(s.ID)
}

func (w *waiter) AdoptSession(_ context.Context, s executor.Session, _ []byte) (executor.OpenedSession, error) {
	return executor.OpenedSession{}, w.know(s.ID)
}

func (w *waiter) RestartSession(_ context.Context, id string, _ bool) error { return w.know(id) }
func (w *waiter) CloseSession(_ context.Context, id string) error           { return w.know(id) }

func (w *waiter) Variables(_ context.Context, id string) ([]executor.Variable, error) {
	return nil, w.know(id)
}

func (w *waiter) AddRequirements(_ context.Context, id, _ string) ([]string, error) {
	return nil, w.know(id)
}

func (w *waiter) ListFiles(_ context.Context, id, _ string, _ bool) ([]executor.File, error) {
	return nil, w.know(id)
}

func (w *waiter) ReadFile(_ context.Context, id, _ string) (executor.File, io.ReadCloser, error) {
	return executor.File{}, io.NopCloser(strings.NewReader("of " + id)), w.know(id)
}

func (w *waiter) WriteFile(_ context.Context, id string, _ executor.File, _ io.Reader) (executor.File, error) {
	return executor.File{}, w.know(id)
}

func (w *waiter) RemoveFile(_ context.Context, id, _ string) error { return w.know(id) }

// pidSink passes on the pid of Started.
type pidSink struct {
	executor.Sink
	pid chan int
}

func newSink() *pidSink { return &pidSink{pid: make(chan int, 1)} }

func (s *pidSink) Emit(e executor.Event) error {
	if started, ok := e.Body.(executor.Started); ok {
		s.pid <- started.PID
	}
	return nil
}

func entries(options map[string]string) map[string]config.Backend {
	all := map[string]config.Backend{}
	for name, o := range options {
		all[name] = config.Backend{Type: "waiter", Options: json.RawMessage(o)}
	}
	return all
}

// started returns a Host that runs, and is closed with t.
func started(t *testing.T, o host.Options) *host.Host {
	t.Helper()
	if o.Command == nil {
		o.Command = plugintest.Command
	}
	if o.RunDir == "" {
		o.RunDir = runDir(t)
	}
	h, err := host.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := h.Start(awaittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return h
}

// runDir is a folder with a short path.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ht")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// runUntil starts a run that waits, and returns its process and how it ends.
func runUntil(t *testing.T, ctx context.Context, b executor.Backend) (pid int, ended <-chan error) {
	t.Helper()
	s, done := newSink(), make(chan error, 1)
	go func() {
		_, err := b.Run(ctx, executor.Job{ID: "exe_1", Spec: executor.Spec{Code: "wait"}}, s)
		done <- err
	}()
	select {
	case pid = <-s.pid:
	case err := <-done:
		t.Fatalf("run: %v", err)
	}
	return pid, done
}

// news passes on a host's log, so that a test can wait for what it says.
type news struct {
	slog.Handler
	ready  chan int // generations that are ready
	failed chan struct{}
	pauses chan time.Duration // before it, or the frontend, is started again
}

func newNews() *news {
	return &news{Handler: slog.DiscardHandler, ready: make(chan int, 100), failed: make(chan struct{}, 100), pauses: make(chan time.Duration, 100)}
}

func (n *news) Enabled(context.Context, slog.Level) bool { return true }
func (n *news) WithAttrs([]slog.Attr) slog.Handler       { return n }

func (n *news) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "plugin ready":
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "generation" {
				n.ready <- int(a.Value.Int64())
			}
			return true
		})
	case "plugin is started again", "frontend is started again":
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "pause" {
				n.pauses <- a.Value.Duration()
			}
			return true
		})
	case "plugin does not start":
		n.failed <- struct{}{}
	}
	return nil
}

// await returns when that generation of the only plugin, or a later one, is ready.
func (n *news) await(generation int) {
	for <-n.ready < generation {
	}
}

// served runs a job to its end and returns its process.
func served(t *testing.T, b executor.Backend) int {
	t.Helper()
	s := newSink()
	if _, err := b.Run(t.Context(), executor.Job{ID: "exe_2"}, s); err != nil {
		t.Fatalf("run: %v", err)
	}
	return <-s.pid
}
