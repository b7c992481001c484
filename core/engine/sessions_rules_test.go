package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestALanguageIsSaidOnceOrTheSame(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.Preload = []string{"numpy"} })))
		ctx := as("alice")
		_, err := r.OpenSession(ctx, executor.Session{Language: executor.LanguagePython, Spec: executor.Spec{Language: executor.LanguageShell}})
		wantCode(t, err, executor.Invalid, "language")
		python := r.open(ctx, func(s *executor.Session) {
			s.Language, s.Spec.Language = executor.LanguagePython, executor.LanguagePython
		})
		shell := r.open(ctx, func(s *executor.Session) { s.Spec.Language = executor.LanguageShell })
		if strings.Join(python.Preload, " ") != "numpy" || shell.Preload != nil || shell.Language != executor.LanguageShell {
			t.Errorf("python preloads %q, a session in %s %q", python.Preload, shell.Language, shell.Preload)
		}
	})
}

func TestASessionNeedsABackendWithSessions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, setup{})
		_, err := r.OpenSession(as("alice"), executor.Session{})
		wantCode(t, err, executor.Unimplemented, "session")
		if left := r.fake.Sessions(); len(left) > 0 {
			t.Errorf("its backend has %v", left)
		}
	})
}

// handles is a backend that gives its sandboxes a handle of size bytes.
type handles struct {
	*fake.Backend
	size int
}

func (b handles) OpenSession(ctx context.Context, s executor.Session) (executor.OpenedSession, error) {
	opened, err := b.Backend.OpenSession(ctx, s)
	opened.Handle = make([]byte, b.size)
	return opened, err
}

func TestTheHandleOfASandboxIsBounded(t *testing.T) {
	t.Parallel()
	for _, size := range []int{maxHandle, maxHandle + 1} {
		inBubble(t, func(t *testing.T) {
			s := withSessions(func(s *setup) { s.options.Embedded = true }) // which leaves no Session
			b := handles{fake.New(s.fake), size}
			s.backend = b
			r := newRig(t, s)
			_, err := r.OpenSession(as("alice"), executor.Session{})
			if refused := executor.CodeOf(err) == executor.Internal; refused != (size > maxHandle) {
				t.Errorf("a handle of %d bytes: %v", size, err)
			}
			_ = r.closeNow()
			synctest.Wait()
			if left := b.Sessions(); len(left) > 0 {
				t.Errorf("a handle of %d bytes: the backend still has %v", size, left)
			}
		})
	}
}

func TestTheLeastRecentlyUsedIdleSessionMakesRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.Max, c.EvictIdleSeconds = 4, 60 })))
		alice, bob := as("alice"), as("bob")
		other := r.open(bob)
		time.Sleep(time.Minute)
		first, second, busy := r.open(alice), r.open(alice), r.open(alice)
		running := r.submit(alice, "hang", in(busy), func(s *executor.Spec) { s.Limits.Timeout = 24 * time.Hour })
		synctest.Wait()
		time.Sleep(30 * time.Second)
		r.say(alice, first, "exit 0") // used after the second
		time.Sleep(40 * time.Second)
		// The second has been idle for 70 s, the first for 40 s, and bob's, the oldest of all, is not alice's to close.
		_ = r.open(alice)
		want := map[string]executor.SessionStatus{other.ID: executor.SessionActive, first.ID: executor.SessionActive, second.ID: executor.SessionClosed, busy.ID: executor.SessionActive}
		for id, status := range want {
			if got := must(r.GetSession(as("root", executor.ScopeAdmin), id)); got.Status != status {
				t.Errorf("%s is %s: %s, want %s", id, got.Status, got.Reason, status)
			}
		}
		_, err := r.OpenSession(alice, executor.Session{})
		full, _ := errors.AsType[*executor.Error](err)
		if full == nil || full.Code != executor.Exhausted || full.RetryAfter < time.Second || full.RetryAfter > time.Minute {
			t.Errorf("nobody makes room: %v", err)
		}
		_ = must(r.Cancel(alice, running.ID))
	})
}

// Where several sessions have been idle for long enough, the order of their last use decides, and not that of their opening.
func TestSessionsMakeRoomInTheOrderOfTheirLastUse(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.Max, c.EvictIdleSeconds = 4, 60 })))
		alice := as("alice")
		all := []executor.Session{r.open(alice), r.open(alice), r.open(alice), r.open(alice)}
		order := []int{2, 0, 3, 1}
		for _, i := range order {
			time.Sleep(time.Second)
			r.say(alice, all[i], "exit 0")
		}
		time.Sleep(2 * time.Minute)
		for _, i := range order {
			if status := r.session(all[i]).Status; status != executor.SessionActive {
				t.Errorf("session %d made room too early, in the order %v: it is %s", i, order, status)
			}
			_ = r.open(alice)
			if status := r.session(all[i]).Status; status != executor.SessionClosed {
				t.Errorf("session %d did not make room, in the order %v: it is %s", i, order, status)
			}
		}
	})
}

// When a place becomes free, is guessed from the owner's own sessions: of others' it knows nothing.
func TestHowSoonASessionMayBeOpened(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.Max, c.EvictIdleSeconds = 2, 0 })))
		_ = r.open(as("bob"), func(s *executor.Session) { s.IdleTimeout = 5 * time.Second })
		_ = r.open(as("alice"), func(s *executor.Session) { s.IdleTimeout = 20 * time.Second })
		_, err := r.OpenSession(as("alice"), executor.Session{})
		if full, _ := errors.AsType[*executor.Error](err); full == nil || full.RetryAfter != 20*time.Second {
			t.Errorf("alice is told %+v, want 20s", full)
		}
		_, err = r.OpenSession(as("carol"), executor.Session{})
		if full, _ := errors.AsType[*executor.Error](err); full == nil || full.RetryAfter != time.Minute {
			t.Errorf("carol is told %+v, want 1m", full)
		}
	})
}

// The idle time of a session begins at the end of its last use, and what waits or uses its files keeps it open.
func TestAUseKeepsASessionOpen(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		ctx := as("alice")
		idle := func(s *executor.Session) { s.IdleTimeout = time.Minute }
		active := func(when string, s executor.Session, want executor.SessionStatus) {
			t.Helper()
			if got := r.session(s); got.Status != want {
				t.Errorf("%s it is %s: %s, want %s", when, got.Status, got.Reason, want)
			}
		}
		s := r.open(ctx, idle)
		time.Sleep(50 * time.Second)
		_ = must(r.RestartSession(ctx, s.ID, false))
		time.Sleep(50 * time.Second)
		active("50 s after a restart", s, executor.SessionActive)
		_ = must(r.Variables(ctx, s.ID))
		time.Sleep(50 * time.Second)
		active("50 s after a list of its variables", s, executor.SessionActive)
		x := r.submit(ctx, "sleep 2m", in(s))
		time.Sleep(110 * time.Second)
		active("while something runs", s, executor.SessionActive)
		r.result(x.ID)
		time.Sleep(50 * time.Second)
		active("50 s after a run", s, executor.SessionActive)
		time.Sleep(11 * time.Second)
		active("61 s after a run", s, executor.SessionClosed)

		s = r.open(ctx, idle)
		_ = must(r.WriteFile(ctx, s.ID, executor.File{Path: "a", SizeBytes: 1}, strings.NewReader("a")))
		_, reader, err := r.ReadFile(ctx, s.ID, "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		active("while a file is read", s, executor.SessionActive)
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(59 * time.Second)
		active("59 s after a file was read", s, executor.SessionActive)
		time.Sleep(2 * time.Second)
		active("61 s after a file was read", s, executor.SessionClosed)
	})
}

func TestNothingWaitsInASessionWhereTheBoundIsZero(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.MaxWaiting = 0 })))
		ctx := as("alice")
		s := r.open(ctx)
		if got := r.say(ctx, s, "print hi"); got != "hi\n" {
			t.Errorf("it said %q", got)
		}
		_ = must(r.Variables(ctx, s.ID))
		r.submit(ctx, "hang", in(s))
		_, err := r.Submit(ctx, executor.Spec{Code: "exit 0", Session: s.ID}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		_, err = r.Variables(ctx, s.ID)
		wantCode(t, err, executor.Exhausted)
	})
}

func TestWhatAnExecutionInASessionMayAskFor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var seen executor.Job
		setup := withSessions()
		setup.fake.Hook = func(ctx context.Context, job executor.Job, s executor.Sink, run fake.RunFunc) (executor.Result, error) {
			seen = job
			return run(ctx, job, s)
		}
		setup.fake.Capabilities.Artifacts, setup.fake.Capabilities.MemorySamples = false, false
		r := newRig(t, setup)
		ctx := as("alice")
		s := r.open(ctx, func(s *executor.Session) {
			s.Spec.Limits = executor.Limits{Timeout: time.Minute, OutputBytes: 1000, KillGrace: 2 * time.Second, PIDs: 7}
		})
		r.result(r.submit(ctx, "exit 0", in(s)).ID)
		if l := seen.Limits; l.Timeout != time.Minute || l.OutputBytes != 1000 || l.KillGrace != 2*time.Second || l.PIDs != 7 {
			t.Errorf("without limits of its own it gets %+v, want the session's", l)
		}
		r.result(r.submit(ctx, "exit 0", in(s), func(s *executor.Spec) {
			s.Limits = executor.Limits{Timeout: time.Second, OutputBytes: 10, KillGrace: time.Second}
		}).ID)
		if l := seen.Limits; l.Timeout != time.Second || l.OutputBytes != 10 || l.KillGrace != time.Second || l.PIDs != 7 {
			t.Errorf("with limits of its own it gets %+v", l)
		}
		for field, ask := range map[string]func(*executor.Spec){
			"outputs":                 func(s *executor.Spec) { s.Outputs = []string{"*"} },
			"outputs_changed":         func(s *executor.Spec) { s.OutputsChanged = true },
			"sample_interval_seconds": func(s *executor.Spec) { s.SampleInterval = time.Second },
		} {
			spec := executor.Spec{Code: "exit 0", Session: s.ID}
			ask(&spec)
			_, err := r.Submit(ctx, spec, executor.Input{})
			wantCode(t, err, executor.Unimplemented, field)
		}
	})
}

// A list of files that does not name a folder says so; it does not lose its session.
func TestAPathThatIsNotThereLosesNoSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		ctx := as("alice")
		s := r.open(ctx)
		for range 2 {
			_, err := r.ListFiles(ctx, s.ID, "nowhere", false)
			wantCode(t, err, executor.NotFound, "path")
		}
		if got := r.session(s); got.Status != executor.SessionActive {
			t.Errorf("it is %s: %s", got.Status, got.Reason)
		}
	})
}

func TestTheListsOfASpecAreBoundedExactly(t *testing.T) {
	t.Parallel()
	args := func(n, size int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = strings.Repeat("x", size)
		}
		return list
	}
	for i, test := range []struct {
		spec  executor.Spec
		field string
	}{
		{executor.Spec{Args: args(maxCount, 1)}, ""},
		{executor.Spec{Args: args(maxCount+1, 1)}, "args"},
		{executor.Spec{Args: args(8, maxArguments/8-1)}, ""},
		{executor.Spec{Args: args(9, maxArguments/8-1)}, "args"},
		{executor.Spec{Env: map[string]string{"A": strings.Repeat("x", maxArgument-2)}}, ""},
		{executor.Spec{Env: map[string]string{"A": strings.Repeat("x", maxArgument-1)}}, "env.A"},
		{executor.Spec{HostDirectory: "/srv/a"}, ""},
		{executor.Spec{HostDirectory: "/srv/../a"}, "host_directory"},
		{executor.Spec{HostDirectory: "srv"}, "host_directory"},
		{executor.Spec{SampleInterval: minSampleInterval}, ""},
		{executor.Spec{SampleInterval: minSampleInterval - 1}, "sample_interval_seconds"},
		{executor.Spec{Image: strings.Repeat("a", maxImage)}, ""},
		{executor.Spec{Image: strings.Repeat("a", maxImage+1)}, "docker_image"},
	} {
		test.spec.Code = "x"
		var p executor.Problems
		validate(test.spec, executor.Input{}, &p)
		got := ""
		if len(p) > 0 {
			got = p[0].Field
		}
		if got != test.field || len(p) > 1 {
			t.Errorf("case %d: problems %.200s, want one with %q", i, fmt.Sprint(p), test.field)
		}
	}
}

func TestASessionIsAddressedByItsNameToo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		alice, bob, root := as("alice"), as("bob"), as("root", executor.ScopeAdmin)
		named := func(name string) func(*executor.Session) { return func(s *executor.Session) { s.Name = name } }
		first := r.open(alice, named("Ä b/c"))
		_ = r.open(bob, named("Ä b/c"))
		byName := executor.Session{ID: first.Name}
		if got := must(r.GetSession(alice, first.Name)); got.ID != first.ID {
			t.Errorf("%+v", got)
		}
		_ = r.say(alice, byName, "set x 1")
		x := r.submit(alice, "get x", in(byName))
		if got := must(r.Get(alice, x.ID)); got.Spec.Session != first.ID || r.result(x.ID).Status != executor.StatusSucceeded {
			t.Errorf("the execution is in %q", got.Spec.Session)
		}
		if _, err := r.WriteFile(alice, first.Name, executor.File{Path: "a", SizeBytes: 1}, strings.NewReader("a")); err != nil {
			t.Error(err)
		}
		for ctx, asked := range map[context.Context]string{alice: "Ä b/", root: first.Name, bob: first.ID} {
			if _, err := r.GetSession(ctx, asked); executor.CodeOf(err) != executor.NotFound || !strings.Contains(err.Error(), asked) {
				t.Errorf("%q: %v", asked, err)
			}
		}
		if _, err := r.GetSession(alice, "Ä b/x"); !strings.HasSuffix(err.Error(), `did you mean "Ä b/c"?`) {
			t.Error(err)
		}
		if _, err := r.GetSession(alice, ""); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("no name at all: %v", err)
		}
		time.Sleep(time.Second)
		second := r.open(alice, named(first.Name))
		if _, err := r.CloseSession(alice, first.Name); executor.CodeOf(err) != executor.Conflict || !strings.Contains(err.Error(), second.ID+", "+first.ID) {
			t.Errorf("two have the name: %v", err)
		}
		_ = must(r.CloseSession(alice, second.ID))
		if got := must(r.CloseSession(alice, first.Name)); got.ID != first.ID {
			t.Errorf("closed was %s", got.ID)
		}
		if got := must(r.GetSession(alice, first.Name)); got.ID != second.ID || got.Status != executor.SessionClosed {
			t.Errorf("of those that are closed, the newest: %+v", got)
		}
	})
}
