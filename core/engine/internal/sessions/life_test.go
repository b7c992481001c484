package sessions

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestACloseEndsWhatRunsAndWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running, waiting := d.join(s, "running", false, true), d.join(s, "waiting", false, true)
		tool := make(chan error, 1)
		go func() {
			_, err := s.AddRequirements(t.Context(), "six")
			tool <- err
		}()
		synctest.Wait()
		closed := make(chan executor.Session, 1)
		go func() {
			v, err := s.Close(t.Context())
			if err != nil {
				t.Error(err)
			}
			closed <- v
		}()
		synctest.Wait()
		told := "its session was closed: by request"
		running.want(told)
		waiting.want(told)
		if err := <-tool; executor.CodeOf(err) != executor.Conflict || !strings.Contains(err.Error(), told) {
			t.Errorf("the tool: %v", err)
		}
		if v := s.View(); v.Status != executor.SessionClosed || v.Reason != "by request" || v.Waiting != 0 {
			t.Errorf("while it closes it is %+v", v)
		}
		if len(closed) > 0 {
			t.Error("closed before its Execution has ended")
		}
		if _, err := s.Join(&run{desk: d}, false, nil); executor.CodeOf(err) != executor.Conflict {
			t.Errorf("a Run that comes too late: %v", err)
		}
		if _, err := s.ListFiles(t.Context(), "", false); executor.CodeOf(err) != executor.Conflict {
			t.Errorf("a file operation that comes too late: %v", err)
		}
		wantNext(t, waiting.turn.Leave(), nil)
		wantNext(t, running.turn.Leave(), nil)
		if v := <-closed; v.Status != executor.SessionClosed {
			t.Errorf("closed, it is %+v", v)
		}
		if left := d.fake.Sessions(); len(left) > 0 {
			t.Errorf("the backend has %v", left)
		}
		v, err := s.Close(t.Context())
		if err != nil || v.Status != executor.SessionClosed {
			t.Errorf("closed again: %+v, %v", v, err)
		}
	})
}

// hanging is a backend whose restarts do not end by themselves.
type hanging struct{ *fake.Backend }

func (hanging) RestartSession(ctx context.Context, _ string, _ bool) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// The restart that is under way ends with the session, and those that wait behind it are refused: no caller waits for nothing.
func TestTheEndOfASessionEndsItsRestarts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *Session){
		"closed: by request": func(t *testing.T, s *Session) { _, _ = s.Close(t.Context()) },
		"lost: it is gone":   func(_ *testing.T, s *Session) { s.registry.Abandon(s.home, "it is gone") },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t)
			d.backend = hanging{d.fake}
			s := d.open()
			began := time.Now()
			restarts := make(chan error, 3)
			for range cap(restarts) {
				go func() {
					_, err := s.Restart(t.Context(), false)
					restarts <- err
				}()
			}
			synctest.Wait()
			end(t, s)
			refused := 0
			for range cap(restarts) {
				err := <-restarts
				if err == nil {
					t.Error("a restart succeeded")
				} else if executor.CodeOf(err) == executor.Conflict && strings.Contains(err.Error(), name) {
					refused++
				}
			}
			if took := time.Since(began); refused != cap(restarts)-1 || took > 0 { // on the bubble's clock
				t.Errorf("%s: %d were refused, and all had ended after %s", name, refused, took)
			}
		})
	}
}

func TestALostInterpreterEndsWhatWaitsUntilARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		died, waiting := d.join(s, "died", false, true), d.join(s, "waiting", false, true)
		_ = waiting.turn.Wait()
		s.Ran(executor.Result{Status: executor.StatusFailed, Signal: "SIGSEGV", SessionState: executor.SessionStateLost})
		waiting.want("its session was lost: its interpreter was ended by SIGSEGV")
		died.want()
		wantNext(t, died.turn.Leave(), nil)
		if _, err := s.Join(&run{desk: d}, false, nil); executor.CodeOf(err) != executor.Conflict || !strings.HasSuffix(err.Error(), "; restart it, or open another session") {
			t.Errorf("a Run in a lost Session: %v", err)
		}
		if _, err := s.ListFiles(t.Context(), "", false); err != nil {
			t.Errorf("the files of a lost Session: %v", err)
		}
		v, err := s.Restart(t.Context(), false)
		if err != nil || v.Status != executor.SessionActive || v.Reason != "" || v.Restarts != 1 {
			t.Errorf("restarted: %+v, %v", v, err)
		}
		rec, err := d.store.GetSessionRecord(t.Context(), s.ID)
		if err != nil || rec.Status != executor.SessionActive || rec.Restarts != 1 {
			t.Errorf("the record is %+v, %v", rec, err)
		}
		again := d.join(s, "again", false, true)
		wantView(t, s, "again", 0)
		wantNext(t, again.turn.Leave(), nil)
	})
}

func TestARestartGoesBeforeWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running, waiting := d.join(s, "running", false, true), d.join(s, "waiting", false, true)
		_ = waiting.turn.Wait()
		restarted := make(chan error, 1)
		go func() {
			_, err := s.Restart(t.Context(), false)
			restarted <- err
		}()
		synctest.Wait()
		running.want("its session was restarted")
		waiting.want()
		wantNext(t, running.turn.Leave(), nil)
		if err := <-restarted; err != nil {
			t.Error(err)
		}
		waiting.want("proceed")
		wantNext(t, waiting.turn.Leave(), nil)
	})
}

func TestNothingOpensWhileTheServerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		d.Drain()
		if _, err := d.Open(t.Context(), executor.Session{Owner: "bob", Backend: "fake"}, d); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("open: %v", err)
		}
		if _, err := s.Restart(t.Context(), false); executor.CodeOf(err) != executor.Unavailable {
			t.Errorf("restart: %v", err)
		}
		time.Sleep(2 * time.Hour) // the idle time is over, and nothing expires any more
		synctest.Wait()
		if v := s.View(); v.Status != executor.SessionActive {
			t.Errorf("it is %+v", v)
		}
		d.spawns = false // the engine has closed
		if v, err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %+v, %v", v, err)
		}
		d.fake.CloseSession(t.Context(), s.ID) //nolint:errcheck // the fake
	})
}
