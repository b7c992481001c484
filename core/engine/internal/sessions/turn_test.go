package sessions

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
)

func TestTurnsComeInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		first := d.join(s, "first", false, true)
		wantView(t, s, "first", 0)
		second, third := d.join(s, "second", false, true), d.join(s, "third", false, true)
		wantNext(t, third.turn.Wait(), nil)
		wantView(t, s, "first", 2)
		wantNext(t, first.turn.Leave(), nil) // second is not ready, and holds up third
		wantNext(t, second.turn.Wait(), second)
		wantView(t, s, "", 2)
		second.turn.SetRunning(true)
		wantView(t, s, "second", 1)
		second.turn.SetRunning(false) // it pauses before another attempt, and keeps its turn
		wantView(t, s, "", 2)
		wantNext(t, second.turn.Wait(), second)
		wantNext(t, second.turn.Leave(), third)
		wantNext(t, second.turn.Leave(), nil)
		wantNext(t, third.turn.Leave(), nil)
		var none *Turn
		wantNext(t, none.Leave(), nil)
		wantNext(t, none.Finish(true), nil)
		none.SetRunning(true)
		wantView(t, s, "", 0)
	})
}

func TestARunWhoseInputIsBeingUploadedIsPassedBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		slow := d.join(s, "slow", true, false)
		quick := d.join(s, "quick", false, true)
		wantView(t, s, "quick", 1)
		wantNext(t, slow.turn.Wait(), nil)
		wantNext(t, quick.turn.Leave(), slow)
		wantNext(t, slow.turn.Leave(), nil)
	})
}

func TestATurnThatFinishesHoldsTheNextOneUntilItLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		first := d.join(s, "first", false, true)
		waits := d.join(s, "waits", false, true)
		wantNext(t, waits.turn.Wait(), nil)
		wantNext(t, first.turn.Finish(true), nil)
		wantView(t, s, "", 1)
		wantNext(t, waits.turn.Leave(), nil)
		late := d.join(s, "late", false, true) // the log of first is not closed
		wantView(t, s, "", 1)
		wantNext(t, late.turn.Wait(), nil)
		wantNext(t, first.turn.Leave(), late)
		wantNext(t, late.turn.Finish(false), nil)
		wantNext(t, d.join(s, "next", false, true).turn.Finish(false), nil)
	})
}

func TestOnlySoManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, func(o *Options) { o.Rules.MaxWaiting = 1 })
		s := d.open()
		running := d.join(s, "running", false, true)
		waiting := d.join(s, "waiting", false, true)
		start := func(bool) (bool, error) {
			t.Error("a Run that finds no place has been started")
			return false, nil
		}
		if _, err := s.Join(&run{desk: d}, false, start); !errors.Is(err, ErrFull) {
			t.Errorf("a second one that waits: %v", err)
		}
		if _, err := s.Variables(t.Context()); executor.CodeOf(err) != executor.Exhausted || err.Error() != Full {
			t.Errorf("a tool: %v", err)
		}
		no := errors.New("no slot")
		wantNext(t, waiting.turn.Leave(), nil)
		if _, err := s.Join(&run{desk: d}, false, func(bool) (bool, error) { return false, no }); !errors.Is(err, no) {
			t.Errorf("one that start refuses: %v", err)
		}
		wantView(t, s, "running", 0)
		wantNext(t, running.turn.Leave(), nil)
		wantView(t, s, "", 0)
	})
}

func TestATurnOfAnEngineThatStopsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running := d.join(s, "running", false, true)
		stopped := errors.New("the server stopped")
		waited := make(chan error, 1)
		go func() {
			_, err := s.Restart(context.Background(), false)
			waited <- err
		}()
		synctest.Wait()
		d.halt(stopped)
		if err := <-waited; !errors.Is(err, stopped) {
			t.Errorf("it is told %v", err)
		}
		wantNext(t, running.turn.Leave(), nil)
	})
}

func TestAnExecutionOfAnEarlierLifeIsRejoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		x, y := &run{desk: d, name: "x"}, &run{desk: d, name: "y"}
		if got, _, reason := d.Rejoin("ctx-none", x, true); got != nil || reason == "" {
			t.Errorf("in a Session that is gone: %v, %q", got, reason)
		}
		got, running, reason := d.Rejoin(s.ID, x, true)
		_, waiting, _ := d.Rejoin(s.ID, y, false)
		if got != s || reason != "" {
			t.Errorf("%v, %q", got, reason)
		}
		wantView(t, s, "x", 1)
		wantNext(t, waiting.Wait(), nil)
		wantNext(t, running.Leave(), y)
		wantNext(t, waiting.Leave(), nil)
		s.lose("gone", false)
		if got, lost, reason := d.Rejoin(s.ID, x, false); got != s || reason != "its session is lost: gone" {
			t.Errorf("in a lost Session: %v, %q", got, reason)
		} else {
			lost.Leave()
		}
	})
}
