package backend

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
)

type testSession struct{ *Session }

func newTestSession(id string) *testSession { return &testSession{NewSession(id)} }

func TestGetWaitsForASessionThatIsBeingOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sessions Sessions[*testSession]
		good, bad := newTestSession("good"), newTestSession("bad")
		for _, s := range []*testSession{good, bad} {
			if other, err := sessions.Add(s); other != nil || err != nil {
				t.Fatal(other, err)
			}
		}
		if other, err := sessions.Add(newTestSession("good")); other != good || err != nil {
			t.Errorf("the same id again: %v, %v", other, err)
		}
		ended, end := context.WithCancelCause(t.Context())
		end(errors.New("gone"))
		if _, err := sessions.Get(ended, "good"); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("a Get whose ctx has ended: %v", err)
		}
		go func() {
			synctest.Wait()
			good.Opened(nil)
			bad.Opened(errors.New("broken"))
		}()
		if s, err := sessions.Get(t.Context(), "good"); s != good || err != nil {
			t.Errorf("got %v, %v", s, err)
		}
		if s, err := sessions.Get(ended, "good"); s != good || err != nil {
			t.Errorf("an open session and a ctx that has ended: %v, %v", s, err)
		}
		if _, err := sessions.Get(t.Context(), "bad"); executor.CodeOf(err) != executor.NotFound {
			t.Errorf("a session that could not be opened: %v", err)
		}
		sessions.Remove(bad)
		sessions.Remove(newTestSession("good")) // another one of that id
		if n := sessions.Len(); n != 1 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestCloseEndsEverySessionOnce(t *testing.T) {
	t.Parallel()
	var sessions Sessions[*testSession]
	opening := newTestSession("opening")
	for _, s := range []*testSession{opening, newTestSession("a"), newTestSession("b")} {
		if _, err := sessions.Add(s); err != nil {
			t.Fatal(err)
		}
		if s != opening {
			s.Opened(nil)
		}
	}
	broken := errors.New("broken")
	go opening.Opened(broken)
	var ends atomic.Int32
	sessions.Close(func(s *testSession, err error) {
		if (s == opening) != errors.Is(err, broken) {
			t.Errorf("session %s: %v", s.ID, err)
		}
		for range 2 {
			s.Once(func() { ends.Add(1) })
		}
		sessions.Remove(s)
	})
	if ends.Load() != 3 || sessions.Len() != 0 {
		t.Errorf("%d sessions were ended, %d are left", ends.Load(), sessions.Len())
	}
	if _, err := sessions.Add(newTestSession("c")); !errors.Is(err, ErrClosed) {
		t.Errorf("a session after Close: %v", err)
	}
}
