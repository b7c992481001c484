package app

import (
	"math"

	"golang.org/x/sys/unix"
)

// SealDescriptors prevents that child processes inherit descriptors which the parent of this process left open. An error means a
// kernel before 5.11. The code that starts a program then closes them.
func SealDescriptors() {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) //nolint:errcheck // see above
}
