package workers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/worker/workertest"
)

func TestExecutionsGoToTheLeastLoadedWorkerAndWaitForASlot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.worker(1, fake.Options{}), s.worker(3, fake.Options{})
	p := s.pool()
	if i := info(t, p); !i.Healthy || i.Capacity != 4 {
		t.Fatalf("%+v", i)
	}
	var all []*call
	for range 4 {
		all = append(all, running(t, p, job("wait gate")))
	}
	if len(a.fake.Running()) != 1 || len(b.fake.Running()) != 3 {
		t.Errorf("running are %v and %v", a.fake.Running(), b.fake.Running())
	}
	last := start(t, p, job("print last"))
	killed := start(t, p, job("print no"))
	killed.cancel(errors.New("killed"))
	<-killed.done
	if killed.err != nil || killed.result.Status != executor.StatusKilled {
		t.Errorf("killed while it waits: %+v, %v", killed.result, killed.err)
	}
	a.fake.Release("gate")
	last.succeeds(t)
	b.fake.Release("gate")
	for _, c := range all {
		c.succeeds(t)
	}
	if got := a.fake.Runs(); len(got) != 2 || got[1] != last.job.ID {
		t.Errorf("the first worker got %v", got)
	}
}

func TestAnExecutionIsTriedElsewhereOnlyIfNothingOfItHasStarted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// Nobody listens at the address of one worker; one is full with the work of another server.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.board.list1(registration{ID: "a0", Address: l.Addr().String()})
	l.Close()
	full := s.worker(1, fake.Options{})
	p := s.pool()
	other := running(t, s.poolOf("two"), job("wait gate"))
	s.n++
	good := s.worker(1, fake.Options{})
	eventually(t, "the answer of the new worker", func() bool { return info(t, p).Capacity == 2 })
	p.mu.Lock() // as before the last question
	for _, m := range p.members {
		m.others, m.err = 0, nil
		m.info.Healthy, m.info.Capacity = true, 1
		if m.ID == good.ID {
			m.used = 5 // the last choice
		}
	}
	p.mu.Unlock()
	j := job("read-stdin")
	opened := 0
	j.Stdin = &executor.Source{SizeBytes: 2, Open: func() (io.ReadCloser, error) {
		opened++
		return io.NopCloser(strings.NewReader("hi")), nil
	}}
	c := start(t, p, j)
	c.succeeds(t)
	if c.Text() != "hi" || opened != 1 || !slices.Equal(good.fake.Runs(), []string{j.ID}) || len(full.fake.Runs()) != 1 {
		t.Errorf("%q, opened %d times, ran on %v and %v", c.Text(), opened, good.fake.Runs(), full.fake.Runs())
	}
	full.fake.Release("gate")
	other.succeeds(t)
}

func TestAWorkerThatDiesLosesWhatItHasAndGetsNothingNew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sent := make(chan struct{})
	a := s.worker(2, fake.Options{Hook: func(ctx context.Context, j executor.Job, sink executor.Sink, run fake.RunFunc) (executor.Result, error) {
		if j.Spec.Code != "silent" {
			return run(ctx, j, sink)
		}
		close(sent)
		<-ctx.Done()
		return executor.Result{}, context.Cause(ctx)
	}})
	p := s.pool()
	begun := running(t, p, job("hang"))
	// This one has been sent, and has not said anything: it may have started.
	silent := start(t, p, job("silent"))
	<-sent
	b := s.worker(2, fake.Options{})
	eventually(t, "the second worker's answer", func() bool { return info(t, p).Capacity == 4 })
	a.kill()
	for _, c := range []*call{begun, silent} {
		<-c.done
		if executor.CodeOf(c.err) != executor.Unavailable || !strings.Contains(c.err.Error(), "worker w1") {
			t.Errorf("%+v, %v", c.result, c.err)
		}
	}
	if len(b.fake.Runs()) > 0 {
		t.Errorf("it was run again: %v", b.fake.Runs())
	}
	for range 5 {
		runs(t, p, "print on")
	}
	eventually(t, "the end of its slots", func() bool { return info(t, p).Capacity == 2 })
	if i := info(t, p); !i.Healthy || !slices.ContainsFunc(i.Warnings, func(w string) bool { return strings.Contains(w, "w1") }) {
		t.Errorf("%+v", i)
	}
	s.board.unlist(a.ID)
	eventually(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 1 })
}

func TestAWorkerThatDrainsKeepsItsSessionsAndGetsNothingNew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(2, fake.Options{})
	p := s.pool()
	if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	begun := running(t, p, job("wait gate"))
	b := s.worker(2, fake.Options{})
	eventually(t, "the second worker's answer", func() bool { return info(t, p).Capacity == 4 })
	drained := make(chan error, 1)
	go func() { drained <- a.server.Drain(t.Context()) }()
	for range 4 {
		runs(t, p, "print on") // also before p has heard of it
	}
	s.board.unlist(a.ID) // Nomad does so at once
	eventually(t, "the end of the registration", func() bool { return info(t, p).Capacity == 2 })
	inside := start(t, p, inSession("ctx-1", "set x 1\nget x"))
	inside.succeeds(t)
	if len(b.fake.Runs()) < 4 || !slices.Contains(a.fake.Runs(), inside.job.ID) {
		t.Errorf("they ran on %v and %v", a.fake.Runs(), b.fake.Runs())
	}
	a.fake.Release("gate")
	begun.succeeds(t)
	if err := p.CloseSession(t.Context(), "ctx-1"); err != nil {
		t.Error(err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	eventually(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 1 })
}

func TestAProgramIsFollowedWhereItsWorkerIsNow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(2, fake.Options{Capabilities: capable(attaches)})
	b := s.worker(2, fake.Options{Capabilities: capable(attaches)})
	p := s.pool()
	c := running(t, p, job("print before\nwait gate\nprint after"))
	<-c.Wrote
	at, other := a, b
	if len(b.fake.Running()) > 0 {
		at, other = b, a
	}
	at.kill()
	<-c.done
	if executor.CodeOf(c.err) != executor.Unavailable {
		t.Fatalf("%+v, %v", c.result, c.err)
	}
	attach := func(b executor.Backend) *call {
		return begin(t, c.job, func(ctx context.Context, sink executor.Sink) (executor.Result, error) {
			return b.Attach(ctx, c.job, executor.Resume{Handle: c.Handle(), Stdout: int64(len(c.Text()))}, sink)
		})
	}
	// The worker's process comes back at another address, while somebody waits for it. The server has another life, too.
	next := s.pool()
	waiting := attach(next)
	back := s.serve(at.ID, 2, at.fake.Abandon())
	s.board.list1(back.registration)
	back.fake.Release("gate")
	waiting.succeeds(t)
	if got := c.Text() + waiting.Text(); got != "before\nafter\n" {
		t.Errorf("the output is %q", got)
	}
	// It is kept until it is removed.
	attach(next).succeeds(t)
	if err := next.Remove(t.Context(), c.job.ID); err != nil {
		t.Error(err)
	}
	gone := attach(next)
	<-gone.done
	if executor.CodeOf(gone.err) != executor.NotFound {
		t.Errorf("after Remove: %v", gone.err)
	}
	if slices.Contains(other.fake.Removed(), c.job.ID) {
		t.Error("a worker that never had it was asked")
	}
}

func TestAProgramWhoseWorkerIsGoneIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(2, fake.Options{Capabilities: capable(attaches)})
	p := s.pool(func(c *Config) { c.ReturnTimeoutSeconds = 1 })
	c := running(t, p, job("hang"))
	if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	a.kill()
	<-c.done
	attach := func(handle []byte) error {
		_, err := p.Attach(t.Context(), c.job, executor.Resume{Handle: handle}, workertest.NewJournal())
		return err
	}
	if err := attach(c.Handle()); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("while it is registered: %v", err)
	}
	if err := p.Remove(t.Context(), c.job.ID); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("remove while it is registered: %v", err)
	}
	if !info(t, p).Capabilities.Attach {
		t.Error("the promise does not outlast a moment without workers")
	}
	s.board.unlist(a.ID)
	eventually(t, "the end of the member", func() bool { return info(t, p).Metrics["workers"] == 0 })
	if err := attach(c.Handle()); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("afterwards: %v", err)
	}
	if err := p.Remove(t.Context(), c.job.ID); err != nil {
		t.Errorf("remove afterwards: %v", err)
	}
	if err := attach([]byte("foreign")); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("a foreign handle: %v", err)
	}
	if _, err := p.Variables(t.Context(), "ctx-1"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("its session: %v", err)
	}
}

func TestTheGroupCountIsFollowedUpAndDown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.pool(func(c *Config) { c.SlotTimeoutSeconds = 1 })
	if i := info(t, p); i.Healthy || !strings.Contains(i.Message, "no worker is registered") {
		t.Errorf("%+v", i)
	}
	c := start(t, p, job("print no"))
	<-c.done
	if executor.CodeOf(c.err) != executor.Unavailable {
		t.Errorf("without a worker: %v", c.err)
	}
	var nodes []*node
	for n := 1; n <= 3; n++ {
		nodes = append(nodes, s.worker(2, fake.Options{}))
		eventually(t, "growth", func() bool { i := info(t, p); return i.Healthy && i.Capacity == 2*n })
	}
	var all []*call
	for range 6 {
		all = append(all, running(t, p, job("wait gate")))
	}
	late := start(t, p, job("print no"))
	<-late.done
	if e, ok := errors.AsType[*executor.Error](late.err); !ok || e.Code != executor.Exhausted || e.RetryAfter == 0 {
		t.Errorf("no slot comes free: %v", late.err)
	}
	for _, n := range nodes[1:] {
		s.board.unlist(n.ID)
	}
	eventually(t, "shrinking", func() bool { return info(t, p).Capacity == 2 })
	for _, n := range nodes {
		n.fake.Release("gate")
	}
	for _, c := range all {
		c.succeeds(t)
	}
	eventually(t, "the end of the members", func() bool { return info(t, p).Metrics["workers"] == 1 })
}

func TestARegistryThatIsAwayChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(2, fake.Options{})
	p := s.pool()
	s.board.fail(errors.New("no leader"))
	asked := func() int { s.board.mu.Lock(); defer s.board.mu.Unlock(); return s.board.asked }
	before := asked()
	eventually(t, "another question", func() bool { return asked() > before+1 })
	runs(t, p, "print on")
	if _, err := newPool(t.Context(), p.config, pluginConfigure(), s.board); executor.CodeOf(err) != executor.Unavailable {
		t.Errorf("a start without a registry: %v", err)
	}
	s.worker(2, fake.Options{})
	s.board.fail(nil)
	eventually(t, "the second worker", func() bool { return info(t, p).Capacity == 4 })
}

func TestTheCapabilitiesAreThoseThatAllWorkersHave(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(2, fake.Options{Version: "1", Images: []string{"a", "b"}, Capabilities: capable(attaches, func(can *executor.Capabilities) {
		can.Images, can.PythonVersions, can.Languages = false, []string{"3.13", "3.12"}, []executor.Language{"python", "shell"}
		can.HostDirectories, can.LocalPath = true, true
	})})
	s.worker(3, fake.Options{Version: "2", Images: []string{"b", "c"}, Capabilities: capable(func(can *executor.Capabilities) {
		can.Images, can.PythonVersions, can.Memory, can.Isolation = false, []string{"3.12", "3.11"}, false, executor.IsolationNone
	})})
	s.worker(4, fake.Options{Version: "2", Capabilities: capable(func(can *executor.Capabilities) { can.Isolation, can.PythonVersions = executor.IsolationVM, nil })})
	i := info(t, s.pool())
	can := i.Capabilities
	if can.Attach || can.Memory || can.Images || can.HostDirectories || !can.Disk || !can.Sessions || !can.LocalPath || can.Isolation != executor.IsolationNone {
		t.Errorf("%+v", can)
	}
	if !slices.Equal(can.PythonVersions, []string{"3.12"}) || !slices.Equal(can.Languages, []executor.Language{"python"}) || !slices.Equal(i.Images, []string{"b"}) {
		t.Errorf("%v, %v, %v", can.PythonVersions, can.Languages, i.Images)
	}
	if i.Capacity != 9 || i.Version != "1, 2" || !slices.Contains(i.Warnings, "config.memory_mb is not enforced") || i.Type != "nomad" || i.Name != "nomad" {
		t.Errorf("%+v", i)
	}
}

func TestASessionStaysWithItsWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.worker(2, fake.Options{}), s.worker(2, fake.Options{})
	p := s.pool()
	var opened []executor.OpenedSession
	for _, id := range []string{"ctx-1", "ctx-2"} {
		o, err := p.OpenSession(t.Context(), executor.Session{ID: id})
		if err != nil || len(o.Handle) == 0 {
			t.Fatalf("%+v, %v", o, err)
		}
		opened = append(opened, o)
	}
	if len(a.fake.Sessions()) != 1 || len(b.fake.Sessions()) != 1 {
		t.Errorf("the sessions are %v and %v", a.fake.Sessions(), b.fake.Sessions())
	}
	start(t, p, inSession("ctx-1", "set x 7")).succeeds(t)
	// The server's next life knows the session by its handle only.
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	next := s.pool()
	if _, err := next.Variables(t.Context(), "ctx-1"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("before it is adopted: %v", err)
	}
	if _, err := next.AdoptSession(t.Context(), executor.Session{ID: "ctx-1"}, opened[0].Handle); err != nil {
		t.Fatal(err)
	}
	again := start(t, next, inSession("ctx-1", "get x"))
	again.succeeds(t)
	if strings.TrimSpace(again.Text()) != "7" {
		t.Errorf("got %q", again.Text())
	}
	if _, err := next.WriteFile(t.Context(), "ctx-1", "a", 1, strings.NewReader("a")); err != nil {
		t.Error(err)
	}
	_, content, err := next.ReadFile(t.Context(), "ctx-1", "a")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(content)
	if string(raw) != "a" || err != nil || content.Close() != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if _, err := next.ListFiles(t.Context(), "ctx-1", "none", false); executor.CodeOf(err) != executor.NotFound || next.workerOf("ctx-1") == "" {
		t.Errorf("a missing path: %v", err)
	}
	if err := next.RemoveFile(t.Context(), "ctx-1", "a"); err != nil {
		t.Error(err)
	}
	if err := next.RestartSession(t.Context(), "ctx-1", true); err != nil {
		t.Error(err)
	}
	if _, err := next.AddRequirements(t.Context(), "ctx-1", "pyexec-probe==1.2.3"); err != nil {
		t.Error(err)
	}
	// Nobody here knows where the other one is, so all are asked.
	for _, id := range []string{"ctx-1", "ctx-2", "ctx-unknown"} {
		if err := next.CloseSession(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if len(a.fake.Sessions())+len(b.fake.Sessions()) > 0 {
		t.Errorf("left are %v and %v", a.fake.Sessions(), b.fake.Sessions())
	}
}

func TestASessionIsOpenedWhereThereIsAPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	full := fake.Options{Capabilities: capable(), OpenHook: func(context.Context, executor.Session) error {
		return &executor.Error{Code: executor.Exhausted, Message: "no place"}
	}}
	s.worker(8, full)
	p := s.pool()
	if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); executor.CodeOf(err) != executor.Exhausted {
		t.Errorf("got %v", err)
	}
	good := s.worker(1, fake.Options{})
	eventually(t, "the second worker's answer", func() bool { return info(t, p).Capacity == 9 })
	for _, id := range []string{"ctx-2", "ctx-3"} {
		if _, err := p.OpenSession(t.Context(), executor.Session{ID: id}); err != nil {
			t.Error(err)
		}
	}
	if len(good.fake.Sessions()) != 2 {
		t.Errorf("open are %v", good.fake.Sessions())
	}
	none := newSite(t)
	without := fake.DefaultCapabilities()
	none.worker(1, fake.Options{Capabilities: &without})
	if _, err := none.pool().OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); executor.CodeOf(err) != executor.Unimplemented {
		t.Errorf("no worker has sessions: %v", err)
	}
}

func TestAnEmbeddedBackendLeavesNoSession(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(2, fake.Options{})
	p := s.pool()
	p.embedded = true
	if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); err != nil {
		t.Fatal(err)
	}
	c := running(t, p, job("hang"))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	<-c.done
	if len(a.fake.Sessions()) > 0 || len(a.fake.Running()) > 0 {
		t.Errorf("left are %v and %v", a.fake.Sessions(), a.fake.Running())
	}
}

func TestAWorkspaceCrossesAsBytesWhateverItsNameIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	seen := make(chan [32]byte, 1)
	s.worker(1, fake.Options{Hook: func(_ context.Context, j executor.Job, _ executor.Sink, _ fake.RunFunc) (executor.Result, error) {
		if j.Workspace.Path != "" {
			t.Errorf("the worker got the name %s", j.Workspace.Path)
		}
		r, err := j.Workspace.Open()
		if err != nil {
			return executor.Result{}, err
		}
		defer r.Close()
		h := sha256.New()
		if _, err := io.Copy(h, r); err != nil {
			return executor.Result{}, err
		}
		seen <- [32]byte(h.Sum(nil))
		return executor.Result{Status: executor.StatusKilled}, nil
	}})
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB, for which a plugin of this machine would get a socket
	path := filepath.Join(t.TempDir(), "workspace.tar")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	j := job("print no")
	j.Workspace = &executor.Source{Path: path, SizeBytes: int64(len(content)), Replayable: true, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
	c := start(t, s.pool(), j)
	<-c.done
	if c.err != nil || <-seen != sha256.Sum256(content) {
		t.Errorf("%+v, %v", c.result, c.err)
	}
}

func TestTheErrorOfASinkIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(1, fake.Options{})
	p := s.pool()
	full := executor.Errorf(executor.Unavailable, "the log is full")
	if _, err := p.Run(t.Context(), job("print x"), failing{full}); !errors.Is(err, full) || err.Error() != full.Error() {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Emit(executor.Event) error                { return f.err }
func (f failing) Artifact(h *tarHeader, r io.Reader) error { return f.err }

func TestRemoveEndsWhatRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.worker(1, fake.Options{})
	p := s.pool()
	c := running(t, p, job("hang"))
	if err := p.Remove(t.Context(), c.job.ID); err != nil {
		t.Error(err)
	}
	<-c.done
	if len(a.fake.Running()) > 0 || !slices.Contains(a.fake.Removed(), c.job.ID) {
		t.Errorf("running %v, removed %v", a.fake.Running(), a.fake.Removed())
	}
	if err := p.Remove(t.Context(), "exe_unknown"); err != nil || !slices.Contains(a.fake.Removed(), "exe_unknown") {
		t.Errorf("%v, removed %v", err, a.fake.Removed())
	}
}
