package wire_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

func TestARunCrossesWhole(t *testing.T) {
	t.Parallel()
	job := executor.Job{
		ID: "exe_1", Owner: "ada", Attempt: 2, Spec: executor.Spec{Code: "print(1)"}, Limits: executor.Limits{MemoryBytes: 5},
	}
	events := []executor.Event{
		{Body: executor.Progress{Phase: executor.PhasePrepare, Message: "install", Done: 1, Total: 2, Unit: "packages"}},
		{Body: executor.Started{PID: 7, Handle: []byte{1}}},
		output("hello"),
		{Body: executor.Display{Data: map[string][]byte{"image/png": {0xff}}}},
		{Body: executor.Unknown{Name: "novel", Raw: []byte(`{"a":1}`)}},
	}
	backend := plugintest.Wire(t, &stub{run: func(ctx context.Context, got executor.Job, sink executor.Sink) (executor.Result, error) {
		if !reflect.DeepEqual(got, job) {
			t.Errorf("job %+v, want %+v", got, job)
		}
		if p := executor.PrincipalFrom(ctx); p.Owner != "ada" || !p.Has(executor.ScopeTrusted) {
			t.Errorf("principal %+v", p)
		}
		for _, e := range events {
			if err := sink.Emit(e); err != nil {
				return executor.Result{}, err
			}
		}
		h := &tar.Header{Name: "out/a", Size: 3, Mode: 0o640}
		if err := sink.Artifact(h, strings.NewReader("abc")); err != nil {
			return executor.Result{}, err
		}
		return succeeded, sink.Artifact(&tar.Header{Name: "empty"}, strings.NewReader(""))
	}})
	sink := &recorder{t: t}
	ctx := executor.WithPrincipal(t.Context(), executor.Principal{Owner: "ada", Scopes: []executor.Scope{executor.ScopeTrusted}})
	result, err := backend.Run(ctx, job, sink)
	if err != nil || !reflect.DeepEqual(result, succeeded) {
		t.Fatalf("result %+v, %v", result, err)
	}
	if !reflect.DeepEqual(sink.events, events) {
		t.Errorf("events\n got  %+v\n want %+v", sink.events, events)
	}
	if want := map[string]string{"out/a": "3 640 abc", "empty": "0 0 "}; !reflect.DeepEqual(sink.files, want) {
		t.Errorf("artifacts %q, want %q", sink.files, want)
	}
}

func TestAttachCarriesWhereToResume(t *testing.T) {
	t.Parallel()
	want := executor.Resume{Handle: []byte("h"), Stdout: 4, Stderr: 5}
	backend := plugintest.Wire(t, &stub{
		attach: func(_ context.Context, job executor.Job, r executor.Resume, _ executor.Sink) (executor.Result, error) {
			if job.ID != "exe_2" || !reflect.DeepEqual(r, want) {
				t.Errorf("attach to %s at %+v", job.ID, r)
			}
			return executor.Result{}, executor.Errorf(executor.NotFound, "no such job")
		},
	})
	_, err := backend.Attach(t.Context(), executor.Job{ID: "exe_2"}, want, &recorder{t: t})
	if executor.CodeOf(err) != executor.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestEmitReturnsWhenTheSinkHasReturned(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	backend := plugintest.Wire(t, &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
		for range 2 {
			if err := sink.Emit(output("x")); err != nil {
				return executor.Result{}, err
			}
			note("emitted")
		}
		err := sink.Artifact(&tar.Header{Name: "a", Size: 1}, strings.NewReader("a"))
		note("collected")
		return succeeded, err
	}})
	sink := &recorder{
		t:    t,
		emit: func(executor.Event) error { note("sink"); return nil },
		artifact: func(_ *tar.Header, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			note("kept")
			return err
		},
	}
	if _, err := backend.Run(t.Context(), executor.Job{}, sink); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "sink emitted sink emitted kept collected" {
		t.Errorf("order: %s", got)
	}
}

func TestASinkErrorComesBackAsItself(t *testing.T) {
	t.Parallel()
	full := &executor.Error{Code: executor.Exhausted, Message: "the log is full", Err: errors.New("disk")}
	endless := iterReader(func(b []byte) (int, error) { return len(b), nil })
	cases := map[string]struct {
		act  func(sink executor.Sink) error
		sink *recorder
	}{
		"from an event": {
			act:  func(s executor.Sink) error { return s.Emit(output("x")) },
			sink: &recorder{emit: func(executor.Event) error { return full }},
		},
		"from an artifact that was not read, and never ends": {
			act:  func(s executor.Sink) error { return s.Artifact(&tar.Header{Name: "a", Size: 1 << 40}, endless) },
			sink: &recorder{artifact: func(*tar.Header, io.Reader) error { return full }},
		},
		"from an artifact that was read in part": {
			act: func(s executor.Sink) error { return s.Artifact(&tar.Header{Name: "a", Size: 1 << 40}, endless) },
			sink: &recorder{artifact: func(_ *tar.Header, r io.Reader) error {
				_, err := io.CopyN(io.Discard, r, 3<<20)
				return errors.Join(err, full)
			}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen error
			backend := plugintest.Wire(t, &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
				seen = c.act(sink)
				return executor.Result{}, seen
			}})
			c.sink.t = t
			_, err := backend.Run(t.Context(), executor.Job{}, c.sink)
			if !errors.Is(err, error(full)) || !errors.Is(err, full.Err) {
				t.Errorf("the caller got %#v, not its own error", err)
			}
			if executor.CodeOf(seen) != executor.Exhausted || !strings.Contains(seen.Error(), "the log is full") {
				t.Errorf("the backend saw %v", seen)
			}
		})
	}
}

type iterReader func([]byte) (int, error)

func (f iterReader) Read(b []byte) (int, error) { return f(b) }

// An error of a sink, or of an artifact's content, mostly has no code of ours: of a disk, say. It must not be lost on the way for that.
func TestAnErrorWithoutACodeStopsTheRun(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	unread := iterReader(func([]byte) (int, error) { return 0, full })
	cases := map[string]struct {
		act  func(sink executor.Sink) error
		sink *recorder
		kept bool // the caller gets its own error
	}{
		"of the sink, for an event": {
			act:  func(s executor.Sink) error { return s.Emit(output("x")) },
			sink: &recorder{emit: func(executor.Event) error { return full }}, kept: true,
		},
		"of the sink, for an event that trails": {
			act:  func(s executor.Sink) error { return s.(executor.TrailingSink).Trail(output("x")) }, //nolint:forcetypeassert // the wire's sink is one
			sink: &recorder{emit: func(executor.Event) error { return full }}, kept: true,
		},
		"of the sink, for an artifact": {
			act: func(s executor.Sink) error {
				return s.Artifact(&tar.Header{Name: "a", Size: 1}, strings.NewReader("a"))
			},
			sink: &recorder{artifact: func(*tar.Header, io.Reader) error { return full }}, kept: true,
		},
		"of an artifact's content, at its beginning": {
			act:  func(s executor.Sink) error { return s.Artifact(&tar.Header{Name: "a", Size: 5}, unread) },
			sink: &recorder{},
		},
		"of an artifact's content, behind whole pieces": {
			act: func(s executor.Sink) error {
				return s.Artifact(&tar.Header{Name: "a", Size: 5 << 20}, io.MultiReader(strings.NewReader(strings.Repeat("a", 2<<20)), unread))
			},
			sink: &recorder{},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trails := false
			backend := plugintest.Wire(t, &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
				err := c.act(sink)
				if err == nil {
					trails = true
					return succeeded, nil
				}
				return executor.Result{}, err
			}})
			c.sink.t = t
			_, err := backend.Run(t.Context(), executor.Job{}, c.sink)
			if err == nil || errors.Is(err, full) != c.kept || !strings.Contains(err.Error(), full.Error()) || executor.CodeOf(err) != executor.Internal {
				t.Errorf("the caller got %v", err)
			}
			if want := strings.Contains(name, "trails"); trails != want {
				t.Errorf("the backend saw no error: %t, want %t", trails, want)
			}
			if len(c.sink.files) > 0 {
				t.Errorf("the sink has kept %d files", len(c.sink.files))
			}
		})
	}
}

func TestABackendThatSwallowsASinkErrorIsNotCovered(t *testing.T) {
	t.Parallel()
	backend := plugintest.Wire(t, &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
		_ = sink.Emit(output("x"))
		return succeeded, nil
	}})
	result, err := backend.Run(t.Context(), executor.Job{}, &recorder{t: t, emit: func(executor.Event) error { return io.ErrShortWrite }})
	if err != nil || result.Status != executor.StatusSucceeded {
		t.Errorf("the wire changed what the backend returned: %+v, %v", result, err)
	}
}

func TestAnArtifactThatCannotBeReadIsAnErrorOfTheSink(t *testing.T) {
	t.Parallel()
	backend := plugintest.Wire(t, &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
		content := io.MultiReader(strings.NewReader("ab"), iterReader(func([]byte) (int, error) {
			return 0, executor.Errorf(executor.Unavailable, "disk gone")
		}))
		return succeeded, sink.Artifact(&tar.Header{Name: "a", Size: 5}, content)
	}})
	_, err := backend.Run(t.Context(), executor.Job{}, &recorder{t: t})
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("got %v", err)
	}
}

func TestTheSinkHasOneGoroutineAtATime(t *testing.T) {
	t.Parallel()
	backend := plugintest.Wire(t, &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if err := sink.Emit(output("x")); err != nil {
						t.Error(err)
					}
				}
				if err := sink.Artifact(&tar.Header{Name: "a", Size: 1}, strings.NewReader("a")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return succeeded, nil
	}})
	sink := &recorder{t: t}
	if _, err := backend.Run(t.Context(), executor.Job{}, sink); err != nil {
		t.Fatal(err)
	}
	if len(sink.events) != 160 {
		t.Errorf("%d events, want 160", len(sink.events))
	}
}

func TestAnEventAfterTheEndIsRefused(t *testing.T) {
	t.Parallel()
	leaked := make(chan executor.Sink, 1)
	backend := plugintest.Wire(t, &stub{run: func(_ context.Context, _ executor.Job, sink executor.Sink) (executor.Result, error) {
		leaked <- sink
		return succeeded, nil
	}})
	sink := &recorder{t: t}
	if _, err := backend.Run(t.Context(), executor.Job{}, sink); err != nil {
		t.Fatal(err)
	}
	if err := (<-leaked).Emit(output("late")); err == nil {
		t.Error("an event after the end was accepted")
	}
	if len(sink.events) != 0 {
		t.Error("an event after the end reached the sink")
	}
}

func TestTwentyRunsAtOnceDoNotMix(t *testing.T) {
	t.Parallel()
	backend := plugintest.Wire(t, &stub{run: func(_ context.Context, job executor.Job, sink executor.Sink) (executor.Result, error) {
		for range 20 {
			if err := sink.Emit(output(job.ID)); err != nil {
				return executor.Result{}, err
			}
		}
		return executor.Result{Status: executor.StatusSucceeded, Signal: job.ID}, nil
	}})
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			id := "exe_" + string(rune('a'+n))
			sink := &recorder{t: t}
			result, err := backend.Run(t.Context(), executor.Job{ID: id}, sink)
			if err != nil || result.Signal != id || len(sink.events) != 20 {
				t.Errorf("%s: %+v, %d events, %v", id, result, len(sink.events), err)
			}
			for _, e := range sink.events {
				if o, _ := e.Body.(executor.Output); string(o.Data) != id {
					t.Errorf("%s got an event of %s", id, o.Data)
				}
			}
		})
	}
	wg.Wait()
}
