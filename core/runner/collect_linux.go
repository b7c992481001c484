package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// maxArtifacts bounds how many files one Execution may keep.
const maxArtifacts = 10_000

// tmpName is the TMPDIR inside the work folder. What lies in it is never kept.
const tmpName = ".tmp"

// fileID is what tells whether a file was changed.
type fileID struct {
	ino  uint64
	size int64
	time unix.Timespec
}

// walkFiles calls visit for every regular file below root, in the order of their paths, following no link. at is the open
// folder that holds it under the name base.
func walkFiles(root int, skip func(dir string) bool, visit func(at int, base, name string, st unix.Stat_t) error) error {
	return walkFolder(root, "", 0, skip, visit)
}

func walkFolder(dir int, prefix string, depth int, skip func(string) bool, visit func(int, string, string, unix.Stat_t) error) error {
	again, err := openDir(dir, ".")                                    // a descriptor of its own: reading moves its offset
	if errors.Is(err, unix.EACCES) && unix.Fchmod(dir, 0o700) == nil { // our own uid's folder
		again, err = openDir(dir, ".")
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(again), "folder") //nolint:gosec // a descriptor
	entries, err := f.ReadDir(-1)
	err = errors.Join(err, f.Close())
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		name := path.Join(prefix, e.Name())
		st, err := lstat(dir, e.Name())
		if err != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if err := visit(dir, e.Name(), name, st); err != nil {
				return err
			}
		case unix.S_IFDIR:
			if skip(name) || depth >= maxDepth {
				continue
			}
			sub, err := openDir(dir, e.Name())
			if errors.Is(err, unix.EACCES) && unix.Fchmodat(dir, e.Name(), 0o700, 0) == nil { // our own uid's folder
				sub, err = openDir(dir, e.Name())
			}
			if err != nil {
				continue
			}
			err = walkFolder(sub, name, depth+1, skip, visit)
			if err = errors.Join(err, unix.Close(sub)); err != nil {
				return err
			}
		}
	}
	return nil
}

// skipForChanges leaves out what programs write beside their work.
func skipForChanges(dir string) bool {
	return dir == tmpName || path.Base(dir) == "__pycache__"
}

func skipTmp(dir string) bool { return dir == tmpName }

// snapshot remembers the files that are there before the program starts.
func snapshot(root int) (map[string]fileID, error) {
	seen := map[string]fileID{}
	err := walkFiles(root, skipForChanges, func(_ int, _, name string, st unix.Stat_t) error {
		seen[name] = fileID{st.Ino, st.Size, st.Mtim}
		return nil
	})
	return seen, err
}

// collector sends the files that the Start asked to keep. It runs when nothing of the program is alive any more.
type collector struct {
	out    *frameWriter
	credit *credit
	want   globs
	// before is the snapshot for OutputsChanged; nil without it.
	before   map[string]fileID
	maxBytes int64

	count int
	bytes int64
	// sent are the names so far, each with how often it was wanted.
	sent map[string]int
}

// errTooMany ends a collection that reached a bound; what was sent stays.
type errTooMany struct{ message string }

func (e *errTooMany) Error() string { return e.message }

// collect returns the Failure that cut it off, or nil. The error is the connection's.
func (c *collector) collect(root int) (*executor.Failure, error) {
	err := walkFiles(root, skipTmp, func(at int, base, name string, st unix.Stat_t) error {
		if !c.wanted(name, st) {
			return nil
		}
		return c.send(at, base, name)
	})
	var many *errTooMany
	if errors.As(err, &many) {
		return &executor.Failure{Code: executor.Exhausted, Phase: executor.PhaseCollect, Message: many.message}, nil
	}
	return nil, err
}

func (c *collector) wanted(name string, st unix.Stat_t) bool {
	if c.want.match(name) {
		return true
	}
	if c.before == nil || path.Base(path.Dir(name)) == "__pycache__" || strings.Contains(name, "__pycache__/") {
		return false
	}
	old, ok := c.before[name]
	return !ok || old != fileID{st.Ino, st.Size, st.Mtim}
}

func (c *collector) send(at int, base, name string) error {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(at, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(at, base, 0o600, 0) == nil { // our own uid's file
		fd, err = unix.Openat(at, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return &errTooMany{fmt.Sprintf("%q cannot be read: %s", name, err)}
	}
	f := os.NewFile(uintptr(fd), base) //nolint:gosec // a descriptor
	defer f.Close()                    //nolint:errcheck // read only
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil //nolint:nilerr // it is no file to keep
	}
	if c.count++; c.count > maxArtifacts {
		return &errTooMany{fmt.Sprintf("more than %d artifacts", maxArtifacts)}
	}
	if c.bytes += st.Size(); c.maxBytes > 0 && c.bytes > c.maxBytes {
		return &errTooMany{fmt.Sprintf("the artifacts are larger than the disk limit of %d bytes", c.maxBytes)}
	}
	return c.sendFile(f, artifactHeader{
		Path: c.uniqueName(name), Size: st.Size(), Mode: int64(st.Mode().Perm()), ModTime: sayable(st.ModTime().Round(time.Second)),
	})
}

// sayable is t, or zero (unknown) where JSON has no words for it: a program may give its files a time of any year.
func sayable(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// uniqueName is name as text. Names that are the same as text get a number: of one name there is one artifact.
func (c *collector) uniqueName(name string) string {
	if c.sent == nil {
		c.sent = map[string]int{}
	}
	text := strings.ToValidUTF8(name, "\uFFFD")
	unique := text
	for c.sent[unique] > 0 {
		c.sent[text]++
		unique = fmt.Sprintf("%s~%d", text, c.sent[text])
	}
	c.sent[unique]++
	return unique
}

func (c *collector) sendFile(f *os.File, h artifactHeader) error {
	if err := c.out.json(frameArtifact, h); err != nil {
		return err
	}
	buf := chunks.Get().(*[]byte) //nolint:forcetypeassert // the pool's only type
	defer chunks.Put(buf)
	for left := h.Size; left > 0; {
		room, err := c.credit.take(int(min(left, chunkBytes)))
		if err != nil {
			return err
		}
		n, err := io.ReadFull(f, (*buf)[frameHeader:frameHeader+room])
		if err != nil {
			return fmt.Errorf("artifact %q: %w", h.Path, err)
		}
		if err := c.out.framed(frameArtifactData, (*buf)[:frameHeader+n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return c.out.frame(frameArtifactEnd)
}
