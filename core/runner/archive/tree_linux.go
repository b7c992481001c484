package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// The bounds of an archive's tree.
const (
	maxEntries = 100_000
	MaxDepth   = 200
	maxPath    = 4096
	maxName    = 255
)

// InputError is an error of the user's input. It becomes a Failure of the phase prepare with code invalid.
type InputError struct {
	entry   string
	message string
}

func (e *InputError) Error() string {
	if e.entry == "" {
		return e.message
	}
	return fmt.Sprintf("%q: %s", e.entry, e.message)
}

func badEntry(entry, format string, args ...any) error {
	return &InputError{entry, fmt.Sprintf(format, args...)}
}

// CleanName checks a name from an archive. It returns the name relative, clean and without a final slash; "." is the root.
func CleanName(name string) (string, error) {
	switch {
	case name == "":
		return "", badEntry(name, "must have a name")
	case !utf8.ValidString(name):
		return "", badEntry(name, "must be UTF-8")
	case strings.ContainsRune(name, 0):
		return "", badEntry(name, "must not contain a zero byte")
	case strings.HasPrefix(name, "/"):
		return "", badEntry(name, "must be relative")
	case len(name) > maxPath:
		return "", badEntry(name[:60]+"…", "must be at most %d bytes long (got %d)", maxPath, len(name))
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", badEntry(name, "must not contain \"..\"")
		}
		if len(part) > maxName {
			return "", badEntry(name, "each part must be at most %d bytes long (got %d)", maxName, len(part))
		}
		if part != "" && part != "." {
			depth++
		}
	}
	if depth > MaxDepth {
		return "", badEntry(name, "must be at most %d folders deep (got %d)", MaxDepth, depth)
	}
	return path.Clean(name), nil
}

// dirStack holds the folders above the last entry open, because the next entry often lies in the same folder. Every step is one
// openat that follows no link, so nothing leads out of the root.
type dirStack struct {
	root  int
	names []string
	fds   []int
	// made is called for every folder that enter has made.
	made func(fd int) error
}

func (s *dirStack) close() {
	s.pop(0)
}

// pop closes the folders that are deeper than keep.
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

// enter opens the folder dir and keeps it open; "." is the root. With create it makes missing folders.
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
		fd, err := OpenDir(s.top(), name)
		if errors.Is(err, unix.ENOENT) && create {
			if err = unix.Mkdirat(s.top(), name, 0o755); err == nil {
				if fd, err = OpenDir(s.top(), name); err == nil {
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

// OpenDir opens a folder, never through a link.
func OpenDir(at int, name string) (int, error) {
	if OnGVisor() {
		return openDirOnGVisor(at, name)
	}
	return OpenAt(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// openDirOnGVisor is OpenDir for gVisor, which follows a link that is opened as a folder, whatever flags say.
func openDirOnGVisor(at int, name string) (int, error) {
	fd, err := OpenAt(at, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
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

// OnGVisor reports whether the kernel is gVisor's, which has a file in /proc that Linux does not have.
var OnGVisor = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/sentry-meminfo")
	return err == nil
})

// openUsable is OpenDir. It also opens a folder of this process's own uid whose rights a program has taken away.
func openUsable(at int, name string) (int, error) {
	fd, err := OpenDir(at, name)
	if errors.Is(err, unix.EACCES) && permit(at, name, unix.S_IFDIR, 0o700) == nil {
		fd, err = OpenDir(at, name)
	}
	return fd, err
}

// openAgain opens the open folder dir once more: reading moves a descriptor's offset.
func openAgain(dir int) (*os.File, error) {
	fd, err := OpenDir(dir, ".")
	if errors.Is(err, unix.EACCES) && unix.Fchmod(dir, 0o700) == nil { // our own uid's folder
		fd, err = OpenDir(dir, ".")
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "folder"), nil //nolint:gosec // a descriptor
}

// permit gives the owner rights to an entry of this process's own uid, if it is of that kind. It uses a descriptor and not the
// name, because a program may put a link in its place at any time.
func permit(at int, base string, kind, mode uint32) error {
	fd, err := OpenAt(at, base, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind {
		return unix.EPERM
	}
	// A file opened with O_PATH has no fchmod. This name leads to the open file and nowhere else.
	return unix.Fchmodat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), mode, 0)
}

// OpenAt is openat, with a descriptor that is closed at exec. A signal does not end it.
func OpenAt(at int, name string, flags int, mode uint32) (int, error) {
	return IgnoringEINTR(func() (int, error) { return unix.Openat(at, name, flags|unix.O_CLOEXEC, mode) })
}

func IgnoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Lstat describes the file name and follows no link.
func Lstat(at int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// WithoutPath returns err without the names of the machine.
func WithoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// diskLimit names a limit of bytes as users set it.
func diskLimit(bytes int64) string {
	if bytes%(1<<20) != 0 {
		return fmt.Sprintf("the disk limit of %d bytes", bytes)
	}
	return fmt.Sprintf("disk_mb %d", bytes>>20)
}

// size returns bytes as a user reads them: in MB, or in GB from 1,000 MB on.
func size(bytes float64) string {
	mb := bytes / (1 << 20)
	if mb < 0 || mb >= 1000 {
		return fmt.Sprintf("%.1f GB", mb/1024)
	}
	return fmt.Sprintf("%.1f MB", mb)
}
