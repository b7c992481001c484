//go:build linux && embedrunner

package binary

import (
	_ "embed"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

//go:embed runner.bin
var content []byte

// Open returns the runner as an anonymous, sealed file that can be executed as /proc/self/fd/<Fd>. ok is false if this
// binary carries none or the kernel gives no such file. The caller closes it, after the last start.
func Open() (f *os.File, ok bool) {
	f, err := memfd(content)
	return f, err == nil
}

// Bytes returns the program for places where a file must be written (a container's volume); nil without one.
func Bytes() []byte { return content }

func memfd(program []byte) (*os.File, error) {
	const name = "python-executor-runner"
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 there is no MFD_EXEC and every memfd is executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(program); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// Sealed, it stays what was embedded. Unsealed, it could not be executed while it is open for writing.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
