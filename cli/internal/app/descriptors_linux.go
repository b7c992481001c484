package app

import (
	"math"

	"golang.org/x/sys/unix"
)

// SealDescriptors keeps descriptors that our own parent left open from reaching the processes that we start. An error
// means a kernel before 5.11; then they are closed by whoever starts a program.
func SealDescriptors() {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) //nolint:errcheck // see above
}
