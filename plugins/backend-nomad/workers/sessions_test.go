package workers

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestASessionStaysWithItsWorker(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
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
		if _, err := next.WriteFile(t.Context(), "ctx-1", executor.File{Path: "a", SizeBytes: 1}, strings.NewReader("a")); err != nil {
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
	})
}

func TestASessionIsOpenedWhereThereIsAPlace(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		full := fake.Options{Capabilities: capable(), OpenHook: func(context.Context, executor.Session) error {
			return &executor.Error{Code: executor.Exhausted, Message: "no place"}
		}}
		s.worker(8, full)
		p := s.pool()
		if _, err := p.OpenSession(t.Context(), executor.Session{ID: "ctx-1"}); executor.CodeOf(err) != executor.Exhausted {
			t.Errorf("got %v", err)
		}
		good := s.worker(1, fake.Options{})
		awaittest.Until(t, "the second worker's answer", func() bool { return info(t, p).Capacity == 9 })
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
	})
}

func TestAnEmbeddedBackendLeavesNoSession(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
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
	})
}
