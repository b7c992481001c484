package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/engine/internal/sessions"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

// withSessions is a set-up on a fake that has sessions.
func withSessions(change ...func(*setup)) setup {
	caps := fake.DefaultCapabilities()
	caps.Sessions = true
	caps.Languages = []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell}
	s := setup{fake: fake.Options{Capabilities: &caps, Generation: 1}}
	for _, f := range change {
		f(&s)
	}
	return s
}

// lasting makes the fake's sessions outlive it.
func lasting(s *setup) {
	caps := *s.fake.Capabilities
	caps.Attach = true
	s.fake.Capabilities = &caps
}

func rules(change func(*config.Sessions)) func(*setup) {
	return func(s *setup) {
		s.options.Sessions = config.Default().Sessions
		change(&s.options.Sessions)
	}
}

// open opens a session.
func (r *rig) open(ctx context.Context, change ...func(*executor.Session)) executor.Session {
	r.t.Helper()
	var s executor.Session
	for _, f := range change {
		f(&s)
	}
	s, err := r.OpenSession(ctx, s)
	if err != nil {
		r.t.Fatalf("open a session: %v", err)
	}
	return s
}

func in(s executor.Session) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.Session = s.ID }
}

// say runs code in s and returns what it printed.
func (r *rig) say(ctx context.Context, s executor.Session, code string) string {
	r.t.Helper()
	x := r.submit(ctx, code, in(s))
	if res := r.result(x.ID); res.Status != executor.StatusSucceeded {
		r.t.Fatalf("%q: %s, %+v", code, res.Status, res.Failure)
	}
	return stdout(r.events(x.ID))
}

func (r *rig) session(s executor.Session) executor.Session {
	r.t.Helper()
	return must(r.GetSession(as("root", executor.ScopeAdmin), s.ID))
}

// wantNoSessions fails unless the backend has none left.
func (r *rig) wantNoSessions() {
	r.t.Helper()
	synctest.Wait()
	if left := r.fake.Sessions(); len(left) > 0 {
		r.t.Errorf("the backend still has %v", left)
	}
}

func TestASessionKeepsItsStateAndIsDescribed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.Preload = []string{"numpy"} })))
		ctx := as("alice")
		began := time.Now()
		s := r.open(ctx, func(s *executor.Session) {
			s.Name, s.Description, s.Spec.Requirements = "mine", "to think", "requests==2.32.3"
			s.Spec.Env = map[string]string{"A": "1"}
			s.Spec.Limits.Timeout = 7 * time.Second
		})
		if !sessions.ValidID(s.ID) || s.Owner != "alice" || s.Status != executor.SessionActive || s.Language != executor.LanguagePython ||
			s.Backend != "fake" || !slices.Equal(s.Preload, []string{"numpy"}) || s.Generation != 1 || !s.CreatedAt.Equal(began) || !s.LastUsed.Equal(began) || !s.ExpiresAt.Equal(began.Add(30*time.Minute)) ||
			s.IdleTimeout != 30*time.Minute || s.MaxLife != 24*time.Hour || s.Limits.Timeout != 7*time.Second || s.Limits.MemoryBytes == 0 ||
			!slices.Equal(s.Requirements, []string{"requests==2.32.3"}) || s.PythonVersion == "" || s.Name != "mine" || s.Description != "to think" {
			t.Errorf("the session is %+v", s)
		}
		r.say(ctx, s, "set x 100")
		if got := r.say(ctx, s, "add x 1\nget x"); got != "101\n" {
			t.Errorf("it said %q", got)
		}
		time.Sleep(time.Minute)
		x := r.submit(ctx, "sleep 1h", in(s))
		synctest.Wait()
		if v := r.session(s); v.Running != x.ID || v.Waiting != 0 || !v.ExpiresAt.IsZero() {
			t.Errorf("while it runs: %+v", v)
		}
		if res := r.result(x.ID); res.Status != executor.StatusTimedOut || res.Wall != 7*time.Second || res.SessionState != executor.SessionStateKept {
			t.Errorf("the session's timeout: %+v", res)
		}
		if v := r.session(s); v.Running != "" || !v.LastUsed.Equal(time.Now()) {
			t.Errorf("afterwards: %+v", v)
		}
		if got := r.say(ctx, s, "get x"); got != "101\n" {
			t.Errorf("it said %q", got)
		}
		closed := must(r.CloseSession(ctx, s.ID))
		if closed.Status != executor.SessionClosed || closed.Reason != "by request" {
			t.Errorf("closed: %+v", closed)
		}
		if again := must(r.CloseSession(ctx, s.ID)); again.Status != executor.SessionClosed {
			t.Errorf("closed again: %+v", again)
		}
		_, err := r.Submit(ctx, executor.Spec{Code: "get x", Session: s.ID}, executor.Input{})
		wantCode(t, err, executor.Conflict, "session")
		_, err = r.RestartSession(ctx, s.ID, false)
		wantCode(t, err, executor.Conflict, "session")
		r.wantIdle()
		r.wantNoSessions()
	})
}

func TestNobodySeesAnotherOwnersSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		alice, bob, root := as("alice"), as("bob"), as("root", executor.ScopeAdmin)
		s := r.open(alice)
		time.Sleep(time.Second)
		other := r.open(bob)
		calls := map[string]func(ctx context.Context, id string) error{
			"get":       func(ctx context.Context, id string) error { _, err := r.GetSession(ctx, id); return err },
			"interrupt": func(ctx context.Context, id string) error { _, err := r.InterruptSession(ctx, id); return err },
			"restart":   func(ctx context.Context, id string) error { _, err := r.RestartSession(ctx, id, true); return err },
			"variables": func(ctx context.Context, id string) error { _, err := r.Variables(ctx, id); return err },
			"require":   func(ctx context.Context, id string) error { _, err := r.AddRequirements(ctx, id, "a"); return err },
			"list":      func(ctx context.Context, id string) error { _, err := r.ListFiles(ctx, id, "", false); return err },
			"read":      func(ctx context.Context, id string) error { _, _, err := r.ReadFile(ctx, id, "a"); return err },
			"write": func(ctx context.Context, id string) error {
				_, err := r.WriteFile(ctx, id, executor.File{Path: "a", SizeBytes: 1}, strings.NewReader("a"))
				return err
			},
			"remove": func(ctx context.Context, id string) error { return r.RemoveFile(ctx, id, "a") },
			"submit": func(ctx context.Context, id string) error {
				_, err := r.Submit(ctx, executor.Spec{Code: "exit 0", Session: id}, executor.Input{})
				return err
			},
			"close": func(ctx context.Context, id string) error { _, err := r.CloseSession(ctx, id); return err },
		}
		for name, f := range calls {
			for _, id := range []string{s.ID, "ctx-00000000-0000-4000-8000-000000000000", "ctx-1", "", "../x"} {
				if name == "submit" && id == "" {
					continue // that is no session at all
				}
				if err := f(bob, id); executor.CodeOf(err) != executor.NotFound {
					t.Errorf("%s of %q: %v", name, id, err)
				}
			}
			if err := f(as("bob", executor.ScopeScripts), other.ID); executor.CodeOf(err) != executor.Denied {
				t.Errorf("%s without a scope: %v", name, err)
			}
		}
		if list := must(r.ListSessions(alice)); len(list) != 1 || list[0].ID != s.ID {
			t.Errorf("alice has %+v", list)
		}
		if list := must(r.ListSessions(root)); len(list) != 2 || list[0].ID != other.ID {
			t.Errorf("there are %+v, the newest first", list)
		}
		if v := must(r.GetSession(root, s.ID)); v.Owner != "alice" {
			t.Errorf("root sees %+v", v)
		}
	})
}

func TestEveryBadFieldOfASessionIsNamed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		yes := true
		_, err := r.OpenSession(as("alice"), executor.Session{
			Name: strings.Repeat("n", maxSessionName+1), Description: "\xff", Language: "cobol",
			IdleTimeout: time.Hour * 24 * 300, MaxLife: -1,
			Spec: executor.Spec{
				Code: "x", Command: []string{"x"}, Entrypoint: "x", Args: []string{"x"}, Outputs: []string{"x"}, OutputsChanged: true, Durable: true,
				IdempotencyKey: "k", SampleInterval: time.Second, Session: "s", Interpreter: executor.InterpreterSystem, Detect: &yes, Script: "x",
				HostDirectory: "/x", Requirements: "\x00", PreCommands: []string{"\xff"}, Env: map[string]string{"1": ""}, PythonVersion: "three",
				Image: "?", Network: "some", Backend: "other", Limits: executor.Limits{MemoryBytes: -1, PIDs: 1 << 40},
			},
		})
		wantCode(t, err, executor.Invalid,
			"name", "description", "idle_timeout_seconds", "max_life_seconds",
			"code", "command", "entrypoint", "args", "outputs", "outputs_changed", "durable", "idempotency_key", "sample_interval_seconds", "session",
			"interpreter", "detect", "script", "host_directory", "requirements_txt", "pre_commands[0]", "env",
			"language", "config.network_disabled", "python_version", "docker_image", "config.memory_mb", "config.pids", "backend")
		_, err = r.OpenSession(as("alice"), executor.Session{Spec: executor.Spec{Requirements: "no-such-package"}})
		wantCode(t, err, executor.Invalid, "requirements_txt")
		_, err = r.OpenSession(as("alice"), executor.Session{Language: executor.LanguageJavaScript, Spec: executor.Spec{Requirements: "left-pad"}})
		wantCode(t, err, executor.Invalid, "requirements_txt")
		r.wantNoSessions()
		plain := newRig(t, setup{})
		_, err = plain.OpenSession(as("alice"), executor.Session{})
		wantCode(t, err, executor.Unimplemented, "session")
		none := newRig(t, setup{backend: runFunc(nil)})
		_, err = none.OpenSession(as("alice"), executor.Session{})
		wantCode(t, err, executor.Unimplemented, "session")
	})
}

func TestWhatIsTheSessionsIsRefusedToItsExecutions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions())
		ctx := as("alice")
		s := r.open(ctx)
		yes := true
		_, err := r.Submit(ctx, executor.Spec{
			Session: s.ID, Code: "exit 0", Args: []string{"a"}, Language: executor.LanguagePython, Entrypoint: "main.py", Env: map[string]string{"A": "b"},
			PythonVersion: "3.12", Interpreter: executor.InterpreterEnvironment, Image: "python:3.12", Requirements: "a", PreCommands: []string{"true"},
			Detect: &yes, Network: executor.NetworkOn, Backend: "fake",
			Limits: executor.Limits{MemoryBytes: 1 << 20, DiskBytes: 1 << 20, CPUShares: 2, PIDs: 3},
		}, executor.Input{Workspace: once(tarOf(t, "main.py", "exit 0"))})
		wantCode(t, err, executor.Invalid, "language", "entrypoint", "env", "python_version", "interpreter", "docker_image", "requirements_txt",
			"pre_commands", "detect", "config.network_disabled", "backend", "config.memory_mb", "config.disk_mb", "config.cpu_shares", "config.pids", "tar", "args")
		x, err := r.Submit(ctx, executor.Spec{
			Session: s.ID, Command: []string{"fake", "-c", "read-stdin\nprint-args\nwrite-file out.txt done"}, Args: []string{"a"}, Outputs: []string{"out.txt"},
			Limits: executor.Limits{Timeout: time.Minute, OutputBytes: 1000, KillGrace: time.Second}, Durable: true, IdempotencyKey: "k",
		}, executor.Input{Stdin: once([]byte("in "))})
		if err != nil {
			t.Fatal(err)
		}
		if res := r.result(x.ID); res.Status != executor.StatusSucceeded || len(res.Artifacts) != 1 || stdout(r.events(x.ID)) != "in a\n" {
			t.Errorf("result %+v, %+v, %q", res, res.Failure, stdout(r.events(x.ID)))
		}
		again := must(r.Submit(ctx, executor.Spec{
			Session: s.ID, Command: []string{"fake", "-c", "read-stdin\nprint-args\nwrite-file out.txt done"}, Args: []string{"a"}, Outputs: []string{"out.txt"},
			Limits: executor.Limits{Timeout: time.Minute, OutputBytes: 1000, KillGrace: time.Second}, Durable: true, IdempotencyKey: "k",
		}, executor.Input{Stdin: once([]byte("in "))}))
		if again.ID != x.ID || len(r.fake.Runs()) != 1 {
			t.Errorf("the same key made %s after %s", again.ID, x.ID)
		}
		r.wantIdle()
	})
}

// TestSixteenClientsOfOneSessionKeepOrderAndState: each Execution counts on; they run one at a time, in the order of their
// ids, whatever kind of Submit they came by, and hold no slot while they wait.
func TestSixteenClientsOfOneSessionKeepOrderAndState(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		const clients, each = 16, 5
		var mu sync.Mutex
		inside, highest := 0, 0
		r := newRig(t, withSessions(func(s *setup) {
			s.options.Engine = config.Engine{MaxConcurrent: 2, MaxQueued: 1000}
			s.fake.Hook = func(ctx context.Context, job executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
				mu.Lock()
				inside++
				highest = max(highest, inside)
				mu.Unlock()
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					inside--
				}()
				return run(ctx, job, sink)
			}
		}, rules(func(c *config.Sessions) { c.MaxWaiting = clients * each })))
		ctx := as("alice")
		s := r.open(ctx)
		r.say(ctx, s, "set n 0")
		var wg sync.WaitGroup
		seen := map[string]string{}
		for client := range clients {
			wg.Go(func() {
				for i := range each {
					spec := executor.Spec{Session: s.ID, Code: "add n 1\nsleep 10ms\nget n", Durable: (client+i)%2 == 0}
					x, err := r.Submit(ctx, spec, executor.Input{})
					if err != nil {
						t.Error(err)
						return
					}
					said := stdout(r.events(x.ID))
					mu.Lock()
					seen[x.ID] = said
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		ids := slices.Sorted(func(yield func(string) bool) {
			for id := range seen {
				if !yield(id) {
					return
				}
			}
		})
		for i, id := range ids {
			if seen[id] != fmt.Sprintf("%d\n", i+1) {
				t.Errorf("number %d of the submits counted %q", i+1, seen[id])
			}
		}
		if len(ids) != clients*each || highest != 1 {
			t.Errorf("%d ran, %d of them at once", len(ids), highest)
		}
		r.wantIdle()
	})
}

func TestASessionThatWaitsHoldsNoSlot(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(func(s *setup) { s.options.Engine = config.Engine{MaxConcurrent: 2, MaxQueued: 20} },
			rules(func(c *config.Sessions) { c.MaxWaiting = 3 })))
		ctx := as("alice")
		s := r.open(ctx)
		first := r.submit(ctx, "wait gate", in(s))
		synctest.Wait()
		var waiting []executor.Execution
		for range 3 {
			waiting = append(waiting, r.submit(ctx, "print now", in(s), durable))
		}
		_, err := r.Submit(ctx, executor.Spec{Session: s.ID, Code: "print no"}, executor.Input{})
		wantCode(t, err, executor.Exhausted)
		if e, _ := errors.AsType[*executor.Error](err); e.RetryAfter <= 0 {
			t.Errorf("no hint when to come again: %v", err)
		}
		_, err = r.Variables(ctx, s.ID)
		wantCode(t, err, executor.Exhausted)
		if v := r.session(s); v.Running != first.ID || v.Waiting != 3 {
			t.Errorf("the session is %+v", v)
		}
		if got := r.say(ctx, r.open(ctx), "print free"); got != "free\n" {
			t.Errorf("another session said %q", got)
		}
		if _, err := r.Cancel(ctx, waiting[1].ID); err != nil {
			t.Fatal(err)
		}
		r.fake.Release("gate")
		for i, want := range []executor.Status{executor.StatusSucceeded, executor.StatusKilled, executor.StatusSucceeded} {
			if res := r.result(waiting[i].ID); res.Status != want {
				t.Errorf("waiting %d: %+v", i, res)
			}
		}
		r.wantIdle()
	})
}

func TestARepeatedRequestGetsTheFirstsResultWhateverBecameOfTheSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newRig(t, withSessions(rules(func(c *config.Sessions) { c.KeepClosedSeconds = 60 })))
		s := r.open(t.Context())
		submit := func(ctx context.Context, spec executor.Spec, stdin string) (executor.Execution, error) {
			return r.Submit(ctx, spec, executor.Input{Stdin: once([]byte(stdin))})
		}
		spec := executor.Spec{Session: s.ID, Code: "read-stdin", IdempotencyKey: "k"}
		first, err := submit(t.Context(), spec, "in")
		if err != nil {
			t.Fatal(err)
		}
		r.result(first.ID)
		if _, err := r.CloseSession(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		wantGone := func(err error, code executor.Code) {
			t.Helper()
			if executor.CodeOf(err) != code {
				t.Errorf("error %v, want %s", err, code)
			}
		}
		again := func(when string, gone executor.Code) {
			t.Helper()
			if x, err := submit(t.Context(), spec, "in"); err != nil || x.ID != first.ID || x.Status != executor.StatusSucceeded {
				t.Errorf("%s: %s %s, %v", when, x.ID, x.Status, err)
			}
			_, err := submit(t.Context(), spec, "other")
			wantCode(t, err, executor.Conflict, "idempotency_key")
			other := spec
			other.Code = "exit 1"
			_, err = submit(t.Context(), other, "in")
			wantGone(err, gone)
			other = spec
			other.IdempotencyKey = "another"
			_, err = submit(t.Context(), other, "in")
			wantGone(err, gone)
			_, err = submit(as("somebody"), spec, "in")
			wantGone(err, executor.NotFound)
		}
		again("closed", executor.Conflict)
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, err := r.GetSession(t.Context(), s.ID); executor.CodeOf(err) != executor.NotFound {
			t.Fatalf("the session is kept: %v", err)
		}
		again("forgotten", executor.NotFound)
	})
}
