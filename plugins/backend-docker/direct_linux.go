package dockerbackend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pipeBytes is the size of a pipe into a container, where the kernel allows it.
const pipeBytes = 1 << 20

// openDirect opens the pipe that is descriptor fd of a container's first process. Then data does not pass through the daemon
// and the container's shim. It needs root, and a daemon on this machine. If it fails, the caller uses the daemon's connection.
func openDirect(pid int, container string, fd int) (_ *os.File, err error) {
	if pid <= 0 {
		return nil, errors.New("no process")
	}
	// The open folder keeps its meaning: if the number is given to another process, the folder is empty.
	process, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return nil, err
	}
	defer process.Close() //nolint:errcheck // read only
	open := func(name string, flags int) (*os.File, error) {
		n, err := unix.Openat(int(process.Fd()), name, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: filepath.Join(process.Name(), name), Err: err}
		}
		return os.NewFile(uintptr(n), name), nil //nolint:gosec // a descriptor
	}
	// A daemon in a virtual machine or another namespace counts processes differently. So the process with this number must be
	// in the control group of the container.
	groups, err := open("cgroup", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(groups)
	if err = errors.Join(err, groups.Close()); err != nil {
		return nil, err
	}
	if !strings.Contains(string(text), container) {
		return nil, fmt.Errorf("process %d is not in the container", pid)
	}
	// With a runtime that has its own kernel, the process is that kernel, whose descriptors mean something else.
	program, err := os.Readlink(filepath.Join(process.Name(), "exe"))
	if err == nil && filepath.Base(program) != runnerFile {
		err = fmt.Errorf("process %d is %s", pid, program)
	}
	if err != nil {
		return nil, err
	}
	f, err := open(filepath.Join("fd", strconv.Itoa(fd)), unix.O_WRONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeNamedPipe == 0 {
		err = fmt.Errorf("descriptor %d of process %d is not a pipe", fd, pid)
	}
	if err != nil {
		_ = f.Close() // nothing was written to it
		return nil, err
	}
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			// A smaller pipe only costs speed.
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeBytes)
		})
	}
	return f, nil
}
