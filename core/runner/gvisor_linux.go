package runner

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernel is what HelloReply says; c may be nil.
func (c *container) kernel() string {
	if c == nil || !c.gvisor {
		return ""
	}
	return KernelGVisor
}

// onGVisor reports whether the kernel below us is gVisor's, which has a file in /proc that Linux has not.
var onGVisor = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/sentry-meminfo")
	return err == nil
})

// catchSignals catches what would end us. gVisor lets every signal reach a PID 1, so what is not caught is not lost on it as
// on Linux: our own SIGPIPE would be the end. Programs may send us none, being another user there; what comes from outside
// does as little as elsewhere. They are caught, not ignored: programs would inherit that.
func catchSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGXFSZ)
}

// openDirOnGVisor is openDir for a kernel that follows a link which is to be a folder, whatever it is told. It sees the link
// if it may be anything.
func openDirOnGVisor(at int, name string) (int, error) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return fd, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// within returns the name of what a session's file really is: on gVisor os.Root is led out of the folder by links, for the
// same reason as above. What changes between this look and the use is changed by the session's own code, in its own sandbox.
func (s *session) within(name string, last bool) (string, error) {
	if s.agent.inside.kernel() == "" {
		return name, nil
	}
	return withoutLinks(s.root, name, last)
}

// maxLinks is how many links a name may lead through, as on Linux.
const maxLinks = 40

// withoutLinks follows the links in name itself, the last part's only if last, and refuses what leads out of root. What is
// not there keeps its name.
func withoutLinks(root *os.Root, name string, last bool) (string, error) {
	done, rest, links := ".", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			if done == "." {
				return "", errEscapes
			}
			done = path.Dir(done)
			continue
		}
		at := path.Join(done, part)
		info, err := root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return path.Join(append([]string{at}, rest...)...), nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode().Type() != fs.ModeSymlink || len(rest) == 0 && !last {
			done = at
			continue
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		target, err := root.Readlink(at)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			return "", errEscapes
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// errEscapes has the words of os.Root, which has no name for it.
var errEscapes = errors.New("path escapes from parent")
