package sessions

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
)

func TestAToolTakesTurnsWithRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		running := d.join(s, "running", false, true)
		listed := make(chan error, 1)
		go func() {
			_, err := s.Variables(t.Context())
			listed <- err
		}()
		synctest.Wait()
		behind := d.join(s, "behind", false, true)
		wantNext(t, behind.turn.Wait(), nil)
		wantView(t, s, "running", 1) // a tool is no Execution
		select {
		case err := <-listed:
			t.Errorf("the tool did not wait: %v", err)
		default:
		}
		wantNext(t, running.turn.Leave(), nil) // the tool has it
		if err := <-listed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		behind.want("proceed")
		wantNext(t, behind.turn.Leave(), nil)

		// One that gives up leaves the line.
		running = d.join(s, "running", false, true)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			_, err := s.Variables(ctx)
			listed <- err
		}()
		synctest.Wait()
		cancel(errors.New("gave up"))
		if err := <-listed; executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "gave up") {
			t.Errorf("a tool that gives up: %v", err)
		}
		behind = d.join(s, "behind", false, true)
		wantNext(t, behind.turn.Wait(), nil)
		wantNext(t, running.turn.Leave(), behind)
		wantNext(t, behind.turn.Leave(), nil)
	})
}
