package wire_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// service is a Service that knows one Execution and one Session, and admits nobody but ada.
type service struct {
	t        *testing.T
	submit   func(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error)
	follow   chan struct{} // closed when a follower's ctx has ended
	artifact io.Reader

	*folder
}

var (
	_ executor.Service  = (*service)(nil)
	_ executor.Admitter = (*service)(nil)
)

var (
	theExecution = executor.Execution{ID: "exe_1", Owner: "ada", Status: executor.StatusRunning}
	theSession   = executor.Session{ID: "ctx-1", Owner: "ada", Status: executor.SessionActive}
)

func ask(ctx context.Context, id, want string) error {
	if id != want {
		return executor.Errorf(executor.NotFound, "no %s", id)
	}
	return checkOwner(ctx)
}

func checkOwner(ctx context.Context) error {
	if executor.PrincipalFrom(ctx).Owner != "ada" {
		return executor.Errorf(executor.Denied, "not ada")
	}
	return nil
}

func (s *service) Admit(ctx context.Context) error { return checkOwner(ctx) }

func (s *service) Submit(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
	return s.submit(ctx, spec, in)
}

func (s *service) Get(ctx context.Context, id string) (executor.Execution, error) {
	return theExecution, ask(ctx, id, "exe_1")
}

func (s *service) List(ctx context.Context, f executor.Filter) ([]executor.Execution, error) {
	if !reflect.DeepEqual(f, executor.Filter{Statuses: []executor.Status{executor.StatusRunning}, After: "exe_9", Limit: 3}) {
		s.t.Errorf("filter %+v", f)
	}
	return []executor.Execution{theExecution, theExecution}, checkOwner(ctx)
}

func (s *service) Cancel(ctx context.Context, id string) (executor.Execution, error) {
	return theExecution, ask(ctx, id, "exe_1")
}

func (s *service) Events(ctx context.Context, id string, after uint64) iter.Seq2[executor.Event, error] {
	return func(yield func(executor.Event, error) bool) {
		if err := ask(ctx, id, "exe_1"); err != nil {
			yield(executor.Event{}, err)
			return
		}
		if !executor.DataIsBorrowed(ctx) {
			s.t.Error("Data is copied for a wire that has sent it before it asks for the next Event")
		}
		for seq := after + 1; seq <= 5; seq++ {
			if !yield(executor.Event{Seq: seq, Body: executor.Queued{Position: int(seq)}}, nil) { //nolint:gosec // small
				return
			}
		}
		if after > 0 {
			return
		}
		<-ctx.Done()
		yield(executor.Event{}, ctx.Err())
		close(s.follow)
	}
}

func (s *service) Artifacts(ctx context.Context, id string) (io.ReadCloser, error) {
	if err := ask(ctx, id, "exe_1"); err != nil {
		return nil, err
	}
	return io.NopCloser(s.artifact), nil
}

func (s *service) OpenSession(ctx context.Context, session executor.Session) (executor.Session, error) {
	if session.Name != "mine" {
		s.t.Errorf("session %+v", session)
	}
	return theSession, checkOwner(ctx)
}

func (s *service) GetSession(ctx context.Context, id string) (executor.Session, error) {
	return theSession, ask(ctx, id, "ctx-1")
}

func (s *service) ListSessions(ctx context.Context) ([]executor.Session, error) {
	return []executor.Session{theSession}, checkOwner(ctx)
}

func (s *service) RestartSession(ctx context.Context, id string, wipe bool) (executor.Session, error) {
	session := theSession
	if wipe {
		session.Reason = "wiped"
	}
	return session, ask(ctx, id, "ctx-1")
}

func (s *service) InterruptSession(ctx context.Context, id string) (executor.Session, error) {
	return theSession, ask(ctx, id, "ctx-1")
}

func (s *service) CloseSession(ctx context.Context, id string) (executor.Session, error) {
	return theSession, ask(ctx, id, "ctx-1")
}

func (s *service) Backends(ctx context.Context) ([]executor.Info, error) {
	return []executor.Info{{Name: "uv"}, {Name: "docker"}}, checkOwner(ctx)
}

func (s *service) Scripts(ctx context.Context) ([]executor.Script, error) {
	if r, ok := executor.RefusedScriptFrom(ctx); ok {
		return []executor.Script{{Path: r.Path, AllowedArgs: r.Args, DefaultArgs: []string{r.Tool, string(r.Code)}}}, checkOwner(ctx)
	}
	return []executor.Script{{Path: "/s"}}, checkOwner(ctx)
}

func ada(ctx context.Context) context.Context {
	return executor.WithPrincipal(ctx, executor.Principal{Owner: "ada", Scopes: []executor.Scope{executor.ScopeExec}})
}

// same calls f as ada, who is served, and as bob, who is denied.
func same[T any](t *testing.T, name string, want T, f func(ctx context.Context) (T, error)) {
	t.Helper()
	if got, err := f(ada(t.Context())); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, %v", name, got, err)
	}
	if _, err := f(executor.WithPrincipal(t.Context(), executor.Principal{Owner: "bob"})); executor.CodeOf(err) != executor.Denied {
		t.Errorf("%s as bob: %v", name, err)
	}
}

func TestEveryMethodOfAServiceCrosses(t *testing.T) {
	t.Parallel()
	svc := plugintest.WireService(t, &service{t: t})
	same(t, "get", theExecution, func(ctx context.Context) (executor.Execution, error) { return svc.Get(ctx, "exe_1") })
	same(t, "cancel", theExecution, func(ctx context.Context) (executor.Execution, error) { return svc.Cancel(ctx, "exe_1") })
	same(t, "list", []executor.Execution{theExecution, theExecution}, func(ctx context.Context) ([]executor.Execution, error) {
		return svc.List(ctx, executor.Filter{Statuses: []executor.Status{executor.StatusRunning}, After: "exe_9", Limit: 3})
	})
	same(t, "open session", theSession, func(ctx context.Context) (executor.Session, error) {
		return svc.OpenSession(ctx, executor.Session{Name: "mine"})
	})
	same(t, "get session", theSession, func(ctx context.Context) (executor.Session, error) { return svc.GetSession(ctx, "ctx-1") })
	same(t, "list sessions", []executor.Session{theSession}, svc.ListSessions)
	same(t, "restart session", theSession, func(ctx context.Context) (executor.Session, error) { return svc.RestartSession(ctx, "ctx-1", false) })
	wiped := theSession
	wiped.Reason = "wiped"
	same(t, "restart and wipe session", wiped, func(ctx context.Context) (executor.Session, error) { return svc.RestartSession(ctx, "ctx-1", true) })
	same(t, "interrupt session", theSession, func(ctx context.Context) (executor.Session, error) { return svc.InterruptSession(ctx, "ctx-1") })
	same(t, "close session", theSession, func(ctx context.Context) (executor.Session, error) { return svc.CloseSession(ctx, "ctx-1") })
	same(t, "backends", []executor.Info{{Name: "uv"}, {Name: "docker"}}, svc.Backends)
	same(t, "scripts", []executor.Script{{Path: "/s"}}, svc.Scripts)
	refused := executor.RefusedScript{Tool: "run_script", Path: "/é\n", Args: []string{"-a"}, Code: executor.Invalid}
	same(t, "a refused script", []executor.Script{{Path: "/é\n", AllowedArgs: []string{"-a"}, DefaultArgs: []string{"run_script", "invalid"}}},
		func(ctx context.Context) ([]executor.Script, error) {
			return svc.Scripts(executor.WithRefusedScript(ctx, refused))
		})
	same(t, "admit", struct{}{}, func(ctx context.Context) (struct{}, error) {
		a, _ := svc.(executor.Admitter)
		return struct{}{}, a.Admit(ctx)
	})
	if _, err := svc.Get(ada(t.Context()), "exe_2"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("get of an unknown id: %v", err)
	}
}

// refusing is a Service that refuses every Get.
type refusing struct {
	executor.Service
	err error
}

func (s refusing) Get(context.Context, string) (executor.Execution, error) {
	return executor.Execution{}, s.err
}

// The text of a status is bounded, and must be UTF-8: otherwise gRPC drops the details.
func TestTheDetailsOfAnErrorCrossWhateverItsMessageIs(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"\xff", "x" + strings.Repeat("é", 2000), "xx" + strings.Repeat("€", 2000), "xxx" + strings.Repeat("😀", 2000), strings.Repeat("x\xff", 2000),
		strings.Repeat("\n", 2000), "",
	} {
		in := &executor.Error{
			Code: executor.Exhausted, Message: message, ExecutionID: "exe_1", RetryAfter: 3 * time.Second,
			Fields: []executor.FieldError{{Field: "a.b", Message: message}},
		}
		_, err := plugintest.WireService(t, refusing{err: in}).Get(ada(t.Context()), "exe_1")
		if !reflect.DeepEqual(err, error(in)) {
			t.Errorf("%.10q became %.200v", message, err)
		}
	}
}

func TestASubmitStreamsItsInput(t *testing.T) {
	t.Parallel()
	svc := plugintest.WireService(t, &service{t: t, submit: func(ctx context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
		if spec.Entrypoint != "a.py" || executor.PrincipalFrom(ctx).Owner != "ada" {
			t.Errorf("spec %+v of %+v", spec, executor.PrincipalFrom(ctx))
		}
		if got := readAll(t, in.Workspace); got != digest(t, patterned(5<<20)) {
			t.Errorf("workspace %s", got)
		}
		if got := readAll(t, in.Stdin); got != digest(t, patterned(7)) {
			t.Errorf("stdin %s", got)
		}
		return theExecution, nil
	}})
	workspace := &tracked{make: func() (io.Reader, error) { return patterned(5 << 20), nil }}
	stdin := &tracked{make: func() (io.Reader, error) { return patterned(7), nil }}
	got, err := svc.Submit(ada(t.Context()), executor.Spec{Entrypoint: "a.py"}, executor.Input{Workspace: workspace.source(), Stdin: stdin.source()})
	if err != nil || !reflect.DeepEqual(got, theExecution) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if workspace.closed.Load() != 1 || stdin.closed.Load() != 1 {
		t.Error("a source was not closed")
	}
}

func TestASubmitThatIsRefusedLeavesItsInput(t *testing.T) {
	t.Parallel()
	svc := plugintest.WireService(t, &service{t: t, submit: func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
		r, err := in.Workspace.Open()
		if err != nil {
			return executor.Execution{}, err
		}
		_, err = io.CopyN(io.Discard, r, 1<<20)
		return executor.Execution{}, errors.Join(err, executor.FieldErrorf(executor.Invalid, "entrypoint", "not there"))
	}})
	workspace := &tracked{make: func() (io.Reader, error) { return patterned(1 << 60), nil }}
	_, err := svc.Submit(t.Context(), executor.Spec{}, executor.Input{Workspace: workspace.source()})
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "entrypoint" {
		t.Errorf("got %#v", err)
	}
	if workspace.closed.Load() != 1 {
		t.Error("the workspace was not closed")
	}
}

func TestASubmitEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	svc := plugintest.WireService(t, &service{t: t, submit: func(ctx context.Context, _ executor.Spec, _ executor.Input) (executor.Execution, error) {
		cancel(nil)
		<-ctx.Done()
		return executor.Execution{}, ctx.Err()
	}})
	if _, err := svc.Submit(ctx, executor.Spec{}, executor.Input{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEventsReplayAndFollow(t *testing.T) {
	t.Parallel()
	s := &service{t: t, follow: make(chan struct{})}
	svc := plugintest.WireService(t, s)
	var seqs []uint64
	for e, err := range svc.Events(ada(t.Context()), "exe_1", 2) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.Seq)
	}
	if !reflect.DeepEqual(seqs, []uint64{3, 4, 5}) {
		t.Errorf("after 2 came %v", seqs)
	}
	for _, err := range svc.Events(ada(t.Context()), "exe_2", 0) {
		if executor.CodeOf(err) != executor.NotFound {
			t.Errorf("an unknown id: %v", err)
		}
	}
	for e, err := range svc.Events(ada(t.Context()), "exe_1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 5 {
			break // ends the call, and with it the follower at the other end
		}
	}
	<-s.follow
}

func TestASubmitIsFollowed(t *testing.T) {
	t.Parallel()
	s := &service{t: t, follow: make(chan struct{}), submit: func(_ context.Context, spec executor.Spec, in executor.Input) (executor.Execution, error) {
		if spec.Code == "" {
			return executor.Execution{}, executor.FieldErrorf(executor.Invalid, "code", "none")
		}
		if in.Stdin != nil {
			if _, err := drainSource(in.Stdin); err != nil {
				return executor.Execution{}, err
			}
		}
		return executor.Execution{ID: spec.Code, Owner: "ada"}, nil
	}}
	svc := plugintest.WireService(t, s)
	if _, _, err := executor.SubmitAndFollow(ada(t.Context()), svc, executor.Spec{}, executor.Input{}); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("a Spec that is refused: %v", err)
	}
	stdin := &executor.Source{SizeBytes: 2, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("in")), nil }}
	for name, in := range map[string]executor.Input{"alone": {}, "with its input": {Stdin: stdin}} {
		s.follow = make(chan struct{})
		x, events, err := executor.SubmitAndFollow(ada(t.Context()), svc, executor.Spec{Code: "exe_1"}, in)
		if err != nil || x.ID != "exe_1" {
			t.Fatal(name, x, err)
		}
		var seqs []uint64
		for e, err := range events {
			if err != nil {
				t.Fatal(name, err)
			}
			if seqs = append(seqs, e.Seq); e.Seq == 5 {
				break // ends the call, and with it the follower at the other end
			}
		}
		<-s.follow
		if !reflect.DeepEqual(seqs, []uint64{1, 2, 3, 4, 5}) {
			t.Errorf("%s: followed by %v", name, seqs)
		}
	}
	_, events, err := executor.SubmitAndFollow(ada(t.Context()), svc, executor.Spec{Code: "exe_2"}, executor.Input{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range events {
		if executor.CodeOf(err) != executor.NotFound {
			t.Errorf("what cannot be followed: %v", err)
		}
	}
	s.follow = make(chan struct{})
	ctx, cancel := context.WithCancelCause(ada(t.Context()))
	defer cancel(nil)
	_, events, err = executor.SubmitAndFollow(ctx, svc, executor.Spec{Code: "exe_1"}, executor.Input{})
	if err != nil {
		t.Fatal(err)
	}
	var last error
	for e, err := range events {
		if last = err; e.Seq == 5 {
			cancel(nil)
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("it ended with %v", last)
	}
	<-s.follow
}

func drainSource(s *executor.Source) ([]byte, error) {
	r, err := s.Open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func TestFollowingEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	s := &service{t: t, follow: make(chan struct{})}
	svc := plugintest.WireService(t, s)
	ctx, cancel := context.WithCancelCause(ada(t.Context()))
	defer cancel(nil)
	var last error
	for e, err := range svc.Events(ctx, "exe_1", 0) {
		if e.Seq == 5 {
			cancel(nil)
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("it ended with %v", last)
	}
	<-s.follow
}

func TestArtifactsAreStreamed(t *testing.T) {
	t.Parallel()
	s := &service{t: t, artifact: patterned(3 << 20)}
	svc := plugintest.WireService(t, s)
	r, err := svc.Artifacts(ada(t.Context()), "exe_1")
	if err != nil {
		t.Fatal(err)
	}
	if got := digest(t, r); got != digest(t, patterned(3<<20)) {
		t.Errorf("got %s", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := svc.Artifacts(ada(t.Context()), "exe_2"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("an unknown id: %v", err)
	}

	s.artifact = io.MultiReader(strings.NewReader("abc"), iterReader(func([]byte) (int, error) {
		return 0, executor.Errorf(executor.Purged, "just now")
	}))
	if r, err = svc.Artifacts(ada(t.Context()), "exe_1"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if string(got) != "abc" || executor.CodeOf(err) != executor.Purged {
		t.Errorf("read %q, %v", got, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
