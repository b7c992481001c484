package batch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestTheDetailOfARefusal(t *testing.T) {
	t.Parallel()
	refused := &executor.Error{Code: executor.Invalid, Op: "run", Message: "args[0]: must not have a NUL"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{refused, "args[0]: must not have a NUL"},
		{fmt.Errorf("submit: %w", refused), "args[0]: must not have a NUL"},
		{&executor.Error{Code: executor.Unavailable, Op: "run", Err: errors.New("the plugin ended")}, "the plugin ended"},
		{errors.New("the connection was cut"), "the connection was cut"},
	} {
		if got := message(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
