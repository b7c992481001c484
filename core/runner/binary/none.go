//go:build !linux || !embedrunner

package binary

import "os"

// Open returns the runner as an anonymous, sealed file that can be executed as /proc/self/fd/<Fd>. ok is false if this
// binary carries none or the kernel gives no such file. The caller closes it, after the last start.
func Open() (f *os.File, ok bool) { return nil, false }

// OpenKept is Open.
func OpenKept(dir, stamp string) (f *os.File, ok bool) { return nil, false }

// Bytes returns the program for places where a file must be written (a container's volume); nil without one.
func Bytes() []byte { return nil }
