package runner

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// The bounds of a tree that comes from outside.
const (
	maxEntries = 100_000
	maxDepth   = 200
	maxPath    = 4096
	maxName    = 255
)

// inputError is the user's input's fault: it becomes a Failure of the phase prepare with code invalid.
type inputError struct {
	entry   string
	message string
}

func (e *inputError) Error() string {
	if e.entry == "" {
		return e.message
	}
	return fmt.Sprintf("%q: %s", e.entry, e.message)
}

func badEntry(entry, format string, args ...any) error {
	return &inputError{entry, fmt.Sprintf(format, args...)}
}

// cleanName checks a name from an archive and returns it relative, clean and without a final slash; "." is the root.
func cleanName(name string) (string, error) {
	switch {
	case name == "":
		return "", badEntry(name, "an entry without a name")
	case !utf8.ValidString(name):
		return "", badEntry(name, "the name is not UTF-8")
	case strings.ContainsRune(name, 0):
		return "", badEntry(name, "the name contains a zero byte")
	case strings.HasPrefix(name, "/"):
		return "", badEntry(name, "an absolute name")
	case len(name) > maxPath:
		return "", badEntry(name[:60]+"…", "a name of %d bytes, at most %d", len(name), maxPath)
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", badEntry(name, "the name contains \"..\"")
		}
		if len(part) > maxName {
			return "", badEntry(name, "a part of the name is longer than %d bytes", maxName)
		}
		if part != "" && part != "." {
			depth++
		}
	}
	if depth > maxDepth {
		return "", badEntry(name, "more than %d folders deep", maxDepth)
	}
	return path.Clean(name), nil
}

// dirStack holds open the folders on the way to the last entry: the next entry mostly lies in the same one. Every step
// is one openat without following links, so nothing can lead out of the root, whatever was unpacked before.
type dirStack struct {
	root  int
	names []string
	fds   []int
	// made is told of every folder that enter has made.
	made func(fd int) error
}

func (s *dirStack) close() {
	s.pop(0)
}

// pop closes the folders deeper than keep.
func (s *dirStack) pop(keep int) {
	for i := len(s.fds) - 1; i >= keep; i-- {
		_ = unix.Close(s.fds[i])
	}
	s.fds, s.names = s.fds[:keep], s.names[:keep]
}

func (s *dirStack) top() int {
	if len(s.fds) == 0 {
		return s.root
	}
	return s.fds[len(s.fds)-1]
}

// enter opens the folder dir ("." is the root) and keeps it. With create it makes what is missing.
func (s *dirStack) enter(dir string, create bool) (int, error) {
	var parts []string
	if dir != "." {
		parts = strings.Split(dir, "/")
	}
	same := 0
	for same < len(parts) && same < len(s.names) && parts[same] == s.names[same] {
		same++
	}
	s.pop(same)
	for _, name := range parts[same:] {
		fd, err := openDir(s.top(), name)
		if errors.Is(err, unix.ENOENT) && create {
			if err = unix.Mkdirat(s.top(), name, 0o755); err == nil {
				if fd, err = openDir(s.top(), name); err == nil {
					err = s.made(fd)
				}
			}
		}
		if err != nil {
			return 0, err
		}
		s.fds, s.names = append(s.fds, fd), append(s.names, name)
	}
	return s.top(), nil
}

// forget closes the folders at and below p, because p is about to be replaced.
func (s *dirStack) forget(p string) {
	parts := strings.Split(p, "/")
	if len(s.names) < len(parts) {
		return
	}
	for i, name := range parts {
		if s.names[i] != name {
			return
		}
	}
	s.pop(len(parts) - 1)
}

// openDir opens a folder, never through a link.
func openDir(at int, name string) (int, error) {
	if onGVisor() {
		return openDirOnGVisor(at, name)
	}
	return ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// lstat describes what name is, without following it.
func lstat(at int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}
