package wire_test

import (
	"context"
	"io"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// closeFails is a reader whose Close says that what was read is not whole.
type closeFails struct{ io.Reader }

func (closeFails) Close() error {
	return executor.Errorf(executor.Conflict, "changed while it was read")
}

func TestAFileWhoseCloseFailsIsNotWhole(t *testing.T) {
	t.Parallel()
	f := &folder{read: func(context.Context) (io.ReadCloser, error) { return closeFails{patterned(300 << 10)}, nil }}
	bothWays(t, f, func(t *testing.T, ctx context.Context, tools toolsAndFiles) {
		_, rc, err := tools.ReadFile(ctx, "ctx-1", "a")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, rc); n != 300<<10 || executor.CodeOf(err) != executor.Conflict {
			t.Errorf("%d bytes, then %v", n, err)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	})
}
