package sandbox

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The pauses between two looks at a process whose output has ended. Each is twice the one before. It ends within microseconds, unless
// it has closed its output and goes on.
const (
	firstExitLook = 30 * time.Microsecond
	lastExitLook  = 500 * time.Microsecond
)

// Soon waits a moment for the main process, whose output has ended. The thread that saw that sees the end much earlier than a
// thread that a signal has to wake. pidfd is of the main process, and negative without one.
func (r *Reaper) Soon(pidfd int) {
	if pidfd < 0 {
		return
	}
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for pause := firstExitLook; pause < lastExitLook; pause *= 2 {
		if r.seesExit(pidfd) {
			return
		}
		wait := unix.NsecToTimespec(pause.Nanoseconds())
		if n, err := unix.Ppoll(fds, &wait, nil); n > 0 || errors.Is(err, unix.EINTR) {
			r.reap() // EINTR: the signal that tells of its end came to this thread
			if n > 0 {
				return
			}
		}
	}
}

// seesExit reports whether the main process is a copy that exits, and tells Main of it. Giving back the memory of an interpreter takes
// the kernel about 2 ms, and only then the process can be waited for. The process must be the only one of its program.
func (r *Reaper) seesExit(pidfd int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.copy == 0 || r.ended || r.early {
		return r.early
	}
	at := time.Now()
	status, peak, ok := exitOf(r.copy)
	if peak == 0 {
		return false // only its parent can ask the kernel for the peak of its memory
	}
	// The order counts: a number belongs to the process until the descriptor tells of its end.
	if n, counted := r.group.Threads(); !ok || !counted || n != 1 || !IsAlive(pidfd) {
		return false
	}
	if r.group.CPUTime() < 0 { // the kernel has charged it with nothing yet
		return false
	}
	r.early = true
	r.Main <- Exit{Status: status, At: at, MaxRSS: peak, Alone: true, Early: true}
	return true
}

// The fields of /proc/PID/stat that follow the name, by their place (proc_pid_stat(5)).
const (
	statFlags          = 6
	statUser           = 11 // CPU time in ticks, as the three that follow
	statSystem         = 12
	statChildrenUser   = 13 // of the children that the process has waited for
	statChildrenSystem = 14
	statThreads        = 17
	statMemory         = 20 // the size of the virtual memory in bytes
	statResident       = 21 // in pages
	statRSSLimit       = 22
	statStartCode      = 23
	statExitCode       = 49
)

// procfs returns the folder of a process.
func procfs(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// readStat returns the fields of a process or a thread that follow its name. dir is its folder in procfs.
func readStat(dir string) ([][]byte, error) {
	raw, err := readGroup(dir, "stat")
	return bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]), err
}

// exitOf returns the wait status of a process that exits by itself. ok is false if it does not exit, has not told its status to the kernel,
// or is killed, because the fork server may be killed with it. The kernel sets the status before it takes the memory from the process. The
// caller must be permitted to trace the process, else the status is 0.
//
// peak is what the process has told of its MaxRSS (tell_peak of _fork_end.py), in bytes; 0: it has told nothing. A program could tell anything.
//
// The main thread may exit alone, and another thread may then take its number by execve. So the thread without memory must be the only
// one. The kernel counts the threads after it has looked for the memory, and counts 0 for a thread that it has released.
func exitOf(pid int) (status syscall.WaitStatus, peak int64, ok bool) {
	f, _ := readStat(procfs(pid))
	if len(f) <= statExitCode || !isExiting(f) || parseNumber(f[statMemory]) != 0 || parseNumber(f[statThreads]) != 1 {
		return 0, 0, false
	}
	const told = 1
	if limit := parseNumber(f[statRSSLimit]); limit%1024 == told { // no limit is too large for a number, so it is 0
		peak = limit - told
	}
	status = syscall.WaitStatus(parseNumber(f[statExitCode])) //nolint:gosec // a wait status
	return status, peak, status.Exited()
}

// ResidentSize returns the resident memory of a process in bytes, and whether this process may read its exit status (exitOf). Both are
// zero if the process is gone.
func ResidentSize(pid int) (bytes int64, traceable bool) {
	f, _ := readStat(procfs(pid))
	if len(f) <= statExitCode {
		return 0, false
	}
	return parseNumber(f[statResident]) * int64(os.Getpagesize()), parseNumber(f[statStartCode]) > 1 // 1 stands for a secret
}

// PeakResident returns the peak of the resident memory of a process in bytes, and 0 if it has ended.
func PeakResident(pid int) int64 { return statusBytes(pid, "VmHWM")[0] }

// IsExiting reports whether the main thread of a process exits or has exited.
func IsExiting(pid int) bool {
	f, err := readStat(procfs(pid))
	return isExiting(f) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// isExiting looks at the flag PF_EXITING of the kernel's sched.h.
func isExiting(stat [][]byte) bool {
	const exiting = 4
	return len(stat) > statFlags && parseNumber(stat[statFlags])&exiting != 0
}
