//go:build !embedrunner

package binary

import "testing"

func TestWithoutTheTagThereIsNone(t *testing.T) {
	t.Parallel()
	if f, ok := Open(); ok || f != nil || Bytes() != nil {
		t.Error("a program out of nothing")
	}
}
