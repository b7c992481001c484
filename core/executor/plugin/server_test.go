package plugin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire"
)

// blocking is a backend whose Run blocks until its ctx ends, or longer, and whose Close may hang.
type blocking struct {
	executor.Backend
	attach    bool
	stubborn  bool
	hangMake  bool
	hangClose bool
	closed    atomic.Int32
	// release ends what is stubborn.
	release chan struct{}
}

func (b *blocking) Info(context.Context) (executor.Info, error) {
	return executor.Info{Capabilities: executor.Capabilities{Attach: b.attach}}, nil
}

func (b *blocking) Run(ctx context.Context, _ executor.Job, _ executor.Sink) (executor.Result, error) {
	if b.stubborn {
		<-b.release
	}
	<-ctx.Done()
	return executor.Result{Status: executor.StatusKilled}, nil
}

func (b *blocking) Close() error {
	b.closed.Add(1)
	if b.hangClose {
		<-b.release
	}
	return nil
}

// supervised is a server whose exit is recorded instead of done.
type supervised struct {
	*server
	began  time.Time
	exited chan time.Duration
}

func serve(b *blocking) *supervised {
	s := &supervised{began: time.Now(), exited: make(chan time.Duration, 4)}
	s.server = newServer("t", "v", func(context.Context, Configure) (executor.Backend, error) {
		if b == nil {
			return nil, executor.Errorf(executor.Invalid, "no")
		}
		if b.hangMake {
			<-b.release
		}
		return b, nil
	}, slog.New(slog.DiscardHandler), func() { s.exited <- time.Since(s.began) })
	return s
}

func (s *supervised) configure(t *testing.T) {
	t.Helper()
	if _, err := s.Configure(t.Context(), wire.Configuration{Name: "n"}); err != nil {
		t.Fatal(err)
	}
}

// call calls f as a gRPC server does: admit decides first.
func (s *supervised) call(ctx context.Context, method string, f func(ctx context.Context) error) error {
	ctx, end, err := s.admit(ctx, method)
	if err != nil {
		return err
	}
	defer end()
	return f(ctx)
}

func (s *supervised) run() error {
	return s.call(context.Background(), "", func(ctx context.Context) error {
		_, err := s.backend.Run(ctx, executor.Job{}, nil)
		return err
	})
}

func (s *supervised) info() error {
	return s.call(context.Background(), "", func(ctx context.Context) error {
		_, err := s.backend.Info(ctx)
		return err
	})
}

func TestWhenAPluginExitsByItself(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		backend *blocking
		act     func(t *testing.T, s *supervised)
		after   time.Duration
		closed  int32
	}{
		"nobody ever supervised it": {
			backend: &blocking{}, act: func(*testing.T, *supervised) {}, after: unsupervised,
		},
		"it was drained and nobody came to kill it": {
			backend: &blocking{}, after: unkilled, closed: 1,
			act: func(t *testing.T, s *supervised) {
				s.configure(t)
				if err := s.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				s.Gone(nil)
			},
		},
		"its configuration was refused": {
			after: unkilled,
			act: func(t *testing.T, s *supervised) {
				if _, err := s.Configure(t.Context(), wire.Configuration{}); executor.CodeOf(err) != executor.Invalid {
					t.Error(err)
				}
				s.Gone(nil)
			},
		},
		"its host went away while it was being configured": {
			backend: &blocking{hangMake: true}, after: closeGrace,
			act: func(t *testing.T, s *supervised) {
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() { _, _ = s.Configure(ctx, wire.Configuration{}) }()
				synctest.Wait()
				cancel(executor.ErrCallerGone)
			},
		},
		"its host went away and nothing runs": {
			backend: &blocking{}, closed: 1,
			act: func(t *testing.T, s *supervised) {
				s.configure(t)
				s.Gone(executor.ErrCallerGone)
			},
		},
		"its host went away and what runs stops": {
			backend: &blocking{}, closed: 1,
			act: func(t *testing.T, s *supervised) {
				s.configure(t)
				go func() { _ = s.run() }()
				synctest.Wait()
				s.Gone(executor.ErrCallerGone)
			},
		},
		"its host went away and what runs does not stop": {
			backend: &blocking{stubborn: true}, closed: 1, after: stopGrace,
			act: func(t *testing.T, s *supervised) {
				s.configure(t)
				go func() { _ = s.run() }()
				synctest.Wait()
				s.Gone(executor.ErrCallerGone)
			},
		},
		"its host went away and what runs is let go": {
			backend: &blocking{stubborn: true, attach: true}, closed: 1,
			act: func(t *testing.T, s *supervised) {
				s.configure(t)
				go func() { _ = s.run() }()
				synctest.Wait()
				s.Gone(executor.ErrCallerGone)
			},
		},
		"its host went away and the backend does not close": {
			backend: &blocking{hangClose: true}, closed: 1, after: closeGrace,
			act: func(t *testing.T, s *supervised) {
				s.configure(t)
				s.Gone(executor.ErrCallerGone)
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if c.backend != nil {
					c.backend.release = make(chan struct{})
					defer close(c.backend.release)
				}
				s := serve(c.backend)
				c.act(t, s)
				if got := <-s.exited; got != c.after {
					t.Errorf("it exited after %s, want %s", got, c.after)
				}
				if c.backend != nil && c.backend.closed.Load() != c.closed {
					t.Errorf("closed %d times, want %d", c.backend.closed.Load(), c.closed)
				}
			})
		})
	}
}

func TestAPluginRefusesWhatComesBeforeAndAfter(t *testing.T) {
	t.Parallel()
	b := &blocking{}
	s := serve(b)
	defer s.unsupervised.Stop()
	if err := s.info(); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("before it is configured: %v", err)
	}
	s.configure(t)
	if err := s.info(); err != nil {
		t.Errorf("configured: %v", err)
	}
	if err := s.call(t.Context(), wire.SessionMethods+"ToolsService/Variables", nil); executor.CodeOf(err) != executor.Unimplemented {
		t.Errorf("a session of a backend that has none: %v", err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.run(); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("after the drain: %v", err)
	}
	if b.closed.Load() != 1 {
		t.Errorf("closed %d times", b.closed.Load())
	}
}

func TestADrainInThePluginEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	b := &blocking{}
	s := serve(b)
	defer s.unsupervised.Stop()
	s.configure(t)
	done := make(chan struct{})
	ctx, stop := context.WithCancelCause(t.Context())
	if err := s.gate.enter(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		if err := s.Drain(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}()
	stop(nil)
	<-done
	s.gate.leave()
	if err := s.gate.wait(t.Context()); err != nil || b.closed.Load() != 0 {
		t.Errorf("%v, closed %d times", err, b.closed.Load())
	}
}

func TestAFrontendServesOnce(t *testing.T) {
	t.Parallel()
	part := &frontendPart{}
	if err := part.serve(t.Context(), nil, 1); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("before it is configured: %v", err)
	}
	part.configure(func(context.Context, executor.Service) error { return nil }, nil)
	first, end := context.WithCancelCause(t.Context())
	part.end = end // it serves
	if err := part.serve(t.Context(), nil, 1); executor.CodeOf(err) != executor.Conflict {
		t.Errorf("while it serves: %v", err)
	}
	part.stop()
	if !errors.Is(context.Cause(first), errDraining) {
		t.Errorf("the first one goes on: %v", context.Cause(first))
	}
}

// describing is a backend that returns the same Info each time.
type describing struct {
	executor.Backend
	info executor.Info
}

func (d describing) Info(context.Context) (executor.Info, error) { return d.info, nil }

func TestTheInfoOfABackendIsCompletedAndNotChanged(t *testing.T) {
	t.Parallel()
	b := describing{info: executor.Info{Type: "own", Details: map[string]string{"a": "b"}}}
	s := newServer("typ", "1.0", func(context.Context, Configure) (executor.Backend, error) { return b, nil }, slog.New(slog.DiscardHandler), func() {})
	info, err := s.Configure(t.Context(), wire.Configuration{Name: "n"})
	if err != nil || info.Name != "n" || info.Type != "own" || info.Version != "1.0" || info.Details["a"] != "b" || info.Details["pid"] != strconv.Itoa(os.Getpid()) {
		t.Errorf("%+v, %v", info, err)
	}
	if len(b.info.Details) != 1 {
		t.Errorf("the backend's own details are %v", b.info.Details)
	}
}

func TestWhatAPluginFindsInItsEnvironment(t *testing.T) {
	// No t.Parallel: it changes the environment.
	t.Setenv("TZ", "inherited")
	t.Setenv("LANG", "inherited")
	env := environment([]string{"TZ=ours", "PLUGIN_DIR=ours"}, []string{"PLUGIN_DIR=handshake", "junk"})
	last := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		last[name] = value
	}
	if _, junk := last["junk"]; junk || last["TZ"] != "ours" || last["LANG"] != "inherited" || last["PLUGIN_DIR"] != "handshake" {
		t.Errorf("%q", env)
	}
}

func TestTheEndOfTheOutputIsKept(t *testing.T) {
	t.Parallel()
	p := newLogPump(nil)
	p.keep([]byte("the first line"))
	for range 2 {
		p.keep(bytes.Repeat([]byte("x"), maxTail/2))
	}
	p.keep([]byte("the last line"))
	if text := p.text(); len(text) > maxTail || !strings.HasSuffix(text, "x\nthe last line") || strings.Contains(text, "first") {
		t.Errorf("%d bytes, from %.20q to %q", len(text), text, text[max(0, len(text)-20):])
	}
}

// TestTheLastWordsOfAProcessAreReadAfterItsPipesTime also checks that they end, although a descendant holds the pipe.
func TestTheLastWordsOfAProcessAreReadAfterItsPipesTime(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	text := strings.Repeat("x", 40_000) + "\nthe last line\n"
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(&lastWords{File: r}); string(got) != text || err != nil {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(text))
	}
	flood := &lastWords{File: r, read: maxPipe - 10}
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(flood); len(got) != 10 || err != nil {
		t.Errorf("of a flood %d bytes, %v; want 10", len(got), err)
	}
}

func TestTheLevelOfALogLine(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]slog.Level{
		"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "WARN": slog.LevelWarn, "error": slog.LevelError, "nonsense": slog.LevelDebug,
	} {
		level, msg, _, ok := parseLine([]byte(`{"@level":"` + name + `","@message":"m"}`))
		if level != want || msg != "m" || !ok {
			t.Errorf("%s is %s, %q, %t", name, level, msg, ok)
		}
	}
}

func FuzzLogLine(f *testing.F) {
	for _, seed := range []string{
		`{"@message":5}`, `{"@level":"warn","@message":"x","@timestamp":{}}`, `{"level":"INFO","msg":"m","time":1}`,
		`{"level":"INFO+3","msg":"m","a":{"b":[1]}}`, "", "{", "panic: x", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		_, _, attrs, ok := parseLine(line)
		if !ok && attrs != nil {
			t.Error("attributes of a line that is none")
		}
	})
}
