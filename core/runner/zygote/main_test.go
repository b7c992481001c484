//go:build linux

package zygote

import (
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) {
	// An interpreter must not inherit what this process has inherited.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	leaktest.Main(m)
}
