package awaittest

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process that a test observes. It stays that process when its pid is given to another one.
type Process struct {
	pid int
	fd  *os.File
}

// Observe opens the process pid, which must be there. Close is called by Gone.
func Observe(t T, pid int) Process {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("open process %d: %v", pid, err)
	}
	return Process{pid: pid, fd: os.NewFile(uintptr(fd), "pidfd")}
}

// Ended reports whether the process has ended. A zombie has ended.
func (p Process) Ended() bool { return p.poll(0) }

// Gone waits until the process has ended. A zombie has ended.
func (p Process) Gone(t T) {
	t.Helper()
	if !p.poll(Bound) {
		t.Fatalf("process %d did not end within %s\n%s", p.pid, Bound, evidence())
	}
	p.fd.Close()
}

func (p Process) poll(bound time.Duration) bool {
	for end := time.Now().Add(bound); ; {
		left := max(time.Until(end), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}, int(left.Milliseconds())) //nolint:gosec // a descriptor and ten minutes fit
		if n > 0 {
			return true
		}
		if err != unix.EINTR && left == 0 { //nolint:errorlint // an errno of x/sys
			return false
		}
	}
}
