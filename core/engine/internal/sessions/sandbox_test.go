package sessions

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/python-executor/python-executor/core/executor"
)

func TestACheckThatWaitsForAnotherEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s := d.open()
		s.checking <- struct{}{} // another check is under way
		ctx, cancel := context.WithCancelCause(t.Context())
		checked := make(chan error, 1)
		go func() { checked <- s.Check(ctx) }()
		synctest.Wait()
		cancel(errors.New("gone"))
		if err := <-checked; executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), "gone") {
			t.Errorf("it says %v", err)
		}
		<-s.checking
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
